"""Fixtures that several tests share."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import product
from pathlib import Path

import httpx
import pytest

from checkpoints import write_bert, write_modules
from vecmill import cli
from vecmill.api.app import build
from vecmill.config import DEFAULT_MODEL, Settings
from vecmill.engine.base import Engine, load_engine
from vecmill.engine.fake import FakeEngine
from vecmill.errors import NetworkUnavailable
from vecmill.model.source import resolve
from vecmill.model.spec import ModelSpec, read_spec
from vecmill.serving.engines import Engines
from vecmill.serving.events import Event, Events
from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel
from vecmill.serving.store import ResultStore

Complaint = Callable[..., str]


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The demo model, fetched on first use; without a network the test is skipped, but not in CI."""
    try:
        return resolve(DEFAULT_MODEL).folder
    except NetworkUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers folder: BERT of 2 layers, mean pooling, normalised, two prompts, 40 tokens."""
    folder = write_bert(tmp_path_factory.mktemp("checkpoints") / "tiny")
    return write_modules(folder, prompts={"prompts": {"query": "query : ", "passage": "passage : "}})


@pytest.fixture(scope="session")
def tiny_spec(tiny_folder: Path) -> ModelSpec:
    """The spec of `tiny_folder`."""
    return read_spec(tiny_folder)


@pytest.fixture
def events() -> Events:
    """Where things are told; its first subscriber fills `seen`."""
    return Events()


@pytest.fixture
def seen(events: Events) -> list[Event]:
    """Every event so far."""
    told: list[Event] = []
    events.subscribers.append(told.append)
    return told


@pytest.fixture
def fake(tiny_spec: ModelSpec) -> FakeEngine:
    """An engine that fails on demand."""
    return FakeEngine(tiny_spec)


Serve = Callable[..., ServedModel]


@pytest.fixture
def serve(tiny_spec: ModelSpec, events: Events) -> Iterator[Serve]:
    """Makes served models of the tiny checkpoint: `serve(engine, name=..., **settings)`; closes them in the end."""
    models = []

    def make(
        engine: Engine | None = None, name: str = "tiny", store: ResultStore | None = None, **settings: object
    ) -> ServedModel:
        engine = engine or load_engine("onnx", tiny_spec, threads=1)
        spec = engine.spec if isinstance(engine, FakeEngine) else tiny_spec
        model = ServedModel(name, spec, Engines(engine), Settings(**settings), events, store=store)  # type: ignore[arg-type]
        models.append(model)
        return model

    yield make
    for model in models:
        for engine in (model.runner._engines.wide, model.runner._engines.narrow):
            if isinstance(engine, FakeEngine):
                engine.gate.set()
        model.close()


def client_of(models: list[ServedModel], events: Events, **settings: object) -> httpx.AsyncClient:
    """A client whose requests reach the application without a socket."""
    registry = Registry([model.name for model in models])
    for model in models:
        registry.add(model)
    app = build(registry, Settings(**settings), events)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


@pytest.fixture
async def client(serve: Serve, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that serves the tiny model on the real engine, as "tiny"."""
    async with client_of([serve()], events) as one:
        yield one


def distinct(count: int) -> list[str]:
    """So many texts of 5 tokens, no two of them equal: equal ones are computed once."""
    letters = product("abcdefghijklmnopqrstuvwxyz", repeat=3)
    return [" ".join(next(letters)) for _ in range(count)]


@pytest.fixture
def complaint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complaint:
    """Runs a command in this process; the one line that it ends with: `complaint(arguments, variables, code)`."""

    def run(arguments: list[str], variables: dict[str, str] | None = None, code: int = 1) -> str:
        monkeypatch.setattr(cli.app, "config", cli.app.config)
        monkeypatch.setattr(sys, "argv", ["vecmill", *arguments])
        monkeypatch.setattr(os, "_exit", sys.exit)  # `serve` ends its process without unwinding threads
        ours = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
        monkeypatch.setattr(os, "environ", ours | (variables or {}))
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        (line,) = printed.err.splitlines()
        assert (end.value.code, printed.out) == (code, "")
        assert line.startswith("vecmill: ")
        return line.removeprefix("vecmill: ")

    return run
