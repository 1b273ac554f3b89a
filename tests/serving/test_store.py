"""Stored answers: found at the next start, behind the answer, and no request fails or hangs over them."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakeredis import TcpFakeServer

from checkpoints import write_bert, write_modules
from conftest import Serve, distinct
from vecmill.config import Settings
from vecmill.core import Options, Request, Result
from vecmill.engine.fake import FakeEngine
from vecmill.errors import BadSettings
from vecmill.model.identity import digest_of_files
from vecmill.model.spec import ModelSpec
from vecmill.serving import store as module
from vecmill.serving.events import Events
from vecmill.serving.registry import load
from vecmill.serving.served import ServedModel
from vecmill.serving.store import ResultStore, Store, open_store

PAUSE_S = 0.05


class Shelf:
    """A store in memory that hangs and fails on demand."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.asked: list[int] = []
        self.opened = 0

    def _ready(self) -> None:
        self.gate.wait(20)
        if self.error is not None:
            raise self.error

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What is held."""
        self.asked.append(len(keys))
        self._ready()
        return [self.held.get(key) for key in keys]

    def put(self, entries: Mapping[bytes, bytes], _: float) -> None:
        """Hold it."""
        self._ready()
        self.held.update(entries)

    def close(self) -> None:
        """Nothing to do."""

    def open(self) -> tuple[Store, bytes]:
        """As `ResultStore` opens one."""
        self.opened += 1
        if self.error is not None:
            raise self.error
        return self, b"tiny"


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """A store whose gate is open in the end."""
    one = Shelf()
    yield one
    one.gate.set()


@pytest.fixture
def stored(serve: Serve, fake: FakeEngine, shelf: Shelf) -> Callable[..., ServedModel]:
    """Makes models of one fake engine that share the shelf; memory remembers nothing."""

    def make(ttl_s: float = 60.0) -> ServedModel:
        store = ResultStore("tiny", shelf.open, {"dense": 16}, ttl_s, PAUSE_S)
        model = serve(fake, store=store, result_cache_mb=0)
        until(lambda: store.ready or shelf.error is not None)
        return model

    return make


def until(true: Callable[[], bool]) -> None:
    """Wait for another thread's doing."""
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def ask(model: ServedModel, *inputs: str, no_store: bool = False) -> Result:
    """The answer of a model."""
    return model.compute(Request(model=None, inputs=list(inputs), options=Options(no_store=no_store)))


def inputs_of(fake: FakeEngine) -> int:
    """How many inputs the engine computed."""
    return sum(map(len, fake.batches))


def test_another_process_finds_what_one_stored(
    stored: Callable[..., ServedModel], fake: FakeEngine, shelf: Shelf
) -> None:
    """What one model computed another finds, to the bit, in one question for all inputs; and counts it as cached."""
    first = ask(stored(), "the cat", "dog")
    until(lambda: len(shelf.held) == 2)
    model = stored()
    second = ask(model, "dog", "hello", "the cat", "dog")
    assert inputs_of(fake) == 3
    assert np.array_equal(second.rows[[2, 0, 3]], first.rows[[0, 1, 1]])
    assert (second.cached, shelf.asked) == (3, [2, 3])
    assert model.store is not None
    assert (model.store.counts.hits, model.store.counts.misses) == (2, 1)
    until(lambda: len(shelf.held) == 3)


def test_memory_is_asked_first(serve: Serve, fake: FakeEngine, shelf: Shelf) -> None:
    """What memory knows is not looked for; what was found is in memory from then on."""
    model = serve(fake, store=ResultStore("tiny", shelf.open, {"dense": 16}, 60, PAUSE_S))
    assert model.store is not None
    until(lambda: model.store is not None and model.store.ready)
    ask(model, "the cat")
    ask(model, "the cat")
    ask(model, "the cat", "dog")
    assert shelf.asked == [1, 1]
    other = serve(fake, store=ResultStore("tiny", shelf.open, {"dense": 16}, 60, PAUSE_S))
    until(lambda: len(shelf.held) == 2 and other.store is not None and other.store.ready)
    ask(other, "dog")
    ask(other, "dog")
    assert shelf.asked == [1, 1, 1]


def test_no_store_is_not_stored(stored: Callable[..., ServedModel], fake: FakeEngine, shelf: Shelf) -> None:
    """A request that wants nothing stored neither looks nor stores."""
    model = stored()
    ask(model, "the cat", no_store=True)
    ask(model, "dog")
    until(lambda: bool(shelf.held))
    assert (len(shelf.held), shelf.asked) == (1, [1])
    ask(model, "dog", no_store=True)
    assert inputs_of(fake) == 3


def test_too_old_is_unknown(stored: Callable[..., ServedModel], fake: FakeEngine, shelf: Shelf) -> None:
    """Whatever the store holds, an answer past its time is asked again."""
    model = stored(ttl_s=0.0)
    ask(model, "the cat")
    until(lambda: bool(shelf.held))
    ask(model, "the cat")
    assert inputs_of(fake) == 2


def test_malformed_is_unknown(stored: Callable[..., ServedModel], fake: FakeEngine, shelf: Shelf) -> None:
    """What is stored and is no answer is asked again, and stored again."""
    model = stored()
    row = ask(model, "the cat").rows[0]
    until(lambda: bool(shelf.held))
    (key,) = shelf.held
    for bad in (b"", b"nonsense", shelf.held[key][:-1]):
        shelf.held[key] = bad
        assert np.array_equal(ask(model, "the cat").rows[0], row)
        until(lambda bad=bad: shelf.held[key] != bad)  # type: ignore[misc]
    assert inputs_of(fake) == 4


async def test_a_store_that_hangs_is_waited_for_once(
    stored: Callable[..., ServedModel], fake: FakeEngine, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """One request waits a bounded time; the next ones do not ask, on loops and threads, and all have answers."""
    model = await asyncio.to_thread(stored)
    shelf.gate.clear()
    with caplog.at_level(logging.WARNING):
        for text in distinct(10):
            assert (await model.submit(Request(model=None, inputs=[text]))).rows.any()
        await asyncio.sleep(2 * PAUSE_S)  # the pause is over, and the store still hangs
        assert model.store is not None
        for text in distinct(12):
            assert (await asyncio.to_thread(ask, model, text)).rows.any()
    assert (len(shelf.asked), model.store.counts.errors) == (1, 1)
    assert inputs_of(fake) == 22
    assert [record.message for record in caplog.records if "stored answers" in record.message] == [
        "the stored answers of tiny are not used for now: no answer in 0.2 s"
    ]
    shelf.gate.set()
    await asyncio.to_thread(until, lambda: model.store is not None and model.store.ready)
    await asyncio.to_thread(until, lambda: bool(shelf.held))


def test_a_store_that_dies_is_left_alone_and_comes_back(
    stored: Callable[..., ServedModel], fake: FakeEngine, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that fails in the middle is opened again after a pause, as often as it takes, with one line logged."""
    model = stored()
    ask(model, "the cat")
    until(lambda: bool(shelf.held))
    with caplog.at_level(logging.INFO):
        shelf.error = OSError("gone")
        assert ask(model, "the cat").rows.any()
        until(lambda: shelf.opened > 3)
        assert ask(model, "the cat").cached == 0
        shelf.error = None
        until(lambda: model.store is not None and model.store.ready)
        assert ask(model, "the cat").cached == 1
        until(lambda: "are used again" in caplog.text)
    assert caplog.text.count("not used for now: OSError: gone") == 1
    assert inputs_of(fake) == 3


def test_a_store_that_cannot_be_opened(stored: Callable[..., ServedModel], fake: FakeEngine, shelf: Shelf) -> None:
    """A store that is not there at start costs nothing; what was computed in the meantime is stored when it is."""
    shelf.error = OSError("not yet")
    model = stored()
    assert ask(model, "the cat").rows.any()
    assert shelf.asked == []
    shelf.error = None
    until(lambda: len(shelf.held) == 1)
    assert ask(model, "the cat").cached == 1
    assert inputs_of(fake) == 1


def test_the_queue_is_bounded(
    stored: Callable[..., ServedModel], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the store is slower than the engine, what does not fit is not stored, and counted."""
    monkeypatch.setattr(module, "QUEUED_BYTES", 5000)
    model = stored()
    assert model.store is not None
    shelf.error = OSError("no")
    ask(model, *distinct(100))
    assert model.store.counts.dropped > 50
    assert model.store._queued_bytes <= 5000


def test_what_waits_is_written_at_the_end(stored: Callable[..., ServedModel], shelf: Shelf) -> None:
    """A model that is closed writes what it has not written yet."""
    model = stored()
    ask(model, *distinct(600))
    model.close()
    assert len(shelf.held) == 600


def test_a_store_that_hangs_does_not_hold_up_the_end(
    stored: Callable[..., ServedModel], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing gives up after a bounded time."""
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    model = stored()
    shelf.gate.clear()
    ask(model, "the cat")
    model.close()
    assert model.store is not None
    assert model.store._thread.is_alive()
    assert model.store._thread.daemon


def of_settings(serve: Serve, fake: FakeEngine, spec: ModelSpec, place: str, **asked: str) -> ServedModel:
    """A model with the store that settings name; memory remembers nothing."""
    settings = Settings(result_store=place, result_store_mb=1)
    store = open_store("tiny", spec, settings, [asked.get("precision", "float32")])
    assert store is not None
    model = serve(fake, store=store, result_cache_mb=0)
    until(lambda: store.ready)
    return model


def test_a_folder(serve: Serve, fake: FakeEngine, tiny_spec: ModelSpec, tmp_path: Path) -> None:
    """What was stored in a folder is there for the next process; another precision has answers of its own."""
    first = of_settings(serve, fake, tiny_spec, str(tmp_path / "store"))
    row = ask(first, "the cat").rows
    first.close()
    second = of_settings(serve, fake, tiny_spec, str(tmp_path / "store"))
    found = ask(second, "the cat")
    assert (found.cached, np.array_equal(found.rows, row)) == (1, True)
    assert ask(of_settings(serve, fake, tiny_spec, str(tmp_path / "store"), precision="int8"), "the cat").cached == 0


def test_another_checkpoint_has_other_answers(tmp_path: Path) -> None:
    """A checkpoint is known by the contents of its files, wherever they are."""
    one, same, other = (write_modules(write_bert(tmp_path / name)) for name in ("one", "same", "other"))
    weights = other / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    assert digest_of_files(one) == digest_of_files(same) != digest_of_files(other)
    (same / ".cache").mkdir()
    (same / ".cache" / "notes").write_text("of a download")
    assert digest_of_files(one) == digest_of_files(same)
    (same / "more").write_text("a file")
    assert digest_of_files(one) != digest_of_files(same)


def test_a_loaded_model_stores(tiny_folder: Path, tmp_path: Path) -> None:
    """The setting reaches the real engine: a second start finds the first one's answer."""
    settings = Settings(result_store=str(tmp_path / "store"), cache=tmp_path)
    rows = []
    for cached in (0, 1):
        model = load(str(tiny_folder), settings, Events())
        until(lambda model=model: model.store.ready)  # type: ignore[misc]
        result = ask(model, "the cat sat")
        assert result.cached == cached
        rows.append(result.rows)
        model.close()
    assert np.array_equal(rows[0], rows[1])


def test_a_folder_that_takes_nothing(
    serve: Serve, fake: FakeEngine, tiny_spec: ModelSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the folder cannot be used, requests are answered and the log says why, once."""
    (tmp_path / "store").write_text("a file")
    with caplog.at_level(logging.WARNING):
        store = open_store("tiny", tiny_spec, Settings(result_store=str(tmp_path / "store")), [])
        model = serve(fake, store=store)
        assert ask(model, *distinct(20)).rows.any()
        until(lambda: "not used for now: FileExistsError" in caplog.text)
    assert ask(model, *distinct(20)).cached == 20


@pytest.fixture
def redis_server() -> Iterator[TcpFakeServer]:
    """A Redis of this process, on a free port."""
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_redis(serve: Serve, fake: FakeEngine, tiny_spec: ModelSpec, redis_server: TcpFakeServer) -> None:
    """Replicas that share a Redis share answers, many in one question; they expire by themselves."""
    place = f"redis://127.0.0.1:{redis_server.server_address[1]}/0"
    first = of_settings(serve, fake, tiny_spec, place)
    rows = ask(first, *distinct(600)).rows
    first.close()
    second = of_settings(serve, fake, tiny_spec, place)
    found = ask(second, *distinct(600))
    assert (found.cached, np.array_equal(found.rows, rows)) == (600, True)
    assert second.store is not None
    assert second.store.counts.outcomes == {"hit": 600, "miss": 0, "error": 0, "dropped": 0}


@pytest.mark.parametrize("silent", [False, True])
def test_a_redis_that_does_not_answer(serve: Serve, fake: FakeEngine, tiny_spec: ModelSpec, silent: bool) -> None:
    """Where nothing listens, or what listens says nothing, requests are answered without it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if silent else 1
        store = open_store("tiny", tiny_spec, Settings(result_store=f"redis://127.0.0.1:{port}/0"), [])
        assert store is not None
        model = serve(fake, store=store)
        until(lambda: store.counts.errors > 0)
        assert ask(model, "the cat").rows.any()
        assert not store.ready


def test_settings_without_sense(tiny_spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown scheme and a missing library are said at start; a password in the URL is not shown."""
    with pytest.raises(BadSettings, match="result_store begins with http://; allowed are"):
        Settings(result_store="http://somewhere")
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    settings = Settings(result_store="rediss://:secret@somewhere/0")
    assert "secret" not in repr(settings)
    with pytest.raises(BadSettings, match=r"pip install 'vecmill\[redis\]'"):
        open_store("tiny", tiny_spec, settings, [])
    assert open_store("tiny", tiny_spec, replace(settings, result_store=""), []) is None
