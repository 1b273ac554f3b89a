"""Answers in a file: bounded, shared by processes, and begun anew when damaged."""

import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from vecmill.serving.disk_store import FILE, USED_S, DiskStore

MEGABYTE = 1_000_000


class Clock:
    """A clock that is set."""

    now = 1000.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def name(number: int) -> bytes:
    """A key."""
    return number.to_bytes(32, "big")


def test_what_is_stored_is_there_at_the_next_start(tmp_path: Path) -> None:
    """Entries outlive the process that stored them, in order of the keys asked; more than one query's worth too."""
    first = DiskStore(tmp_path / "new" / "folder", MEGABYTE)
    first.put({name(number): b"%d" % number for number in range(1200)}, 60)
    first.close()
    second = DiskStore(tmp_path / "new" / "folder", MEGABYTE)
    assert second.get([name(7), b"none", name(1199)]) == [b"7", None, b"1199"]
    assert second.get([name(number) for number in range(1200)])[1100] == b"1100"
    second.put({name(7): b"seven"}, 60)
    assert second.get([name(7)]) == [b"seven"]
    second.close()


def test_what_is_too_old_is_not_there(tmp_path: Path) -> None:
    """An entry is found until its time is over."""
    clock = Clock()
    store = DiskStore(tmp_path, MEGABYTE, clock)
    store.put({b"key": b"value"}, 5)
    clock.now += 4.9
    assert store.get([b"key"]) == [b"value"]
    clock.now += 0.1
    assert store.get([b"key"]) == [None]
    store.close()


def test_the_file_is_bounded_and_the_least_used_go(tmp_path: Path) -> None:
    """However much is stored, the file stays within its bound; what was read lately is kept."""
    clock = Clock()
    store = DiskStore(tmp_path, MEGABYTE, clock)
    for number in range(3000):
        clock.now += USED_S
        store.put({name(number): bytes(1000)}, 1e9)
        assert store.get([name(0)]) == [bytes(1000)]
    assert store.get([name(1), name(2999)]) == [None, bytes(1000)]
    store.put({b"huge": bytes(MEGABYTE)}, 1e9)
    assert store.get([b"huge", name(0)]) == [None, bytes(1000)]
    store.close()
    assert MEGABYTE / 2 < (tmp_path / FILE).stat().st_size < 1.05 * MEGABYTE


def test_use_is_noted_where_nothing_is_stored(tmp_path: Path) -> None:
    """A store that is only read writes when what is read was used, some time or other."""
    clock = Clock()
    store = DiskStore(tmp_path, MEGABYTE, clock)
    keys = [name(number) for number in range(600)]
    store.put(dict.fromkeys(keys, b"value"), 1e9)
    clock.now += 2 * USED_S
    store.get(keys)
    assert store._file.execute("SELECT count(*) FROM results WHERE used = ?", [clock.now]).fetchone() == (600,)
    store.close()


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is none of ours, or has holes, costs a warning and what it held; then it works again."""
    store = DiskStore(tmp_path, MEGABYTE)
    store.put({name(number): bytes(900) for number in range(400)}, 60)
    store.close()
    path = tmp_path / FILE
    size = path.stat().st_size
    path.write_bytes(b"not a database " * 4000 if damage == "text" else path.read_bytes()[:8192] + b"\xff" * size)
    with caplog.at_level(logging.WARNING):
        store = DiskStore(tmp_path, MEGABYTE)
        assert store.get([name(number) for number in range(400)]) == [None] * 400
        store.put({b"key": b"value"}, 60)
        store.put({b"key": b"value"}, 60)
    assert store.get([b"key"]) == [b"value"]
    assert "is damaged" in caplog.text
    store.close()


def test_a_lock_that_another_holds_is_an_error_in_time(tmp_path: Path) -> None:
    """Where another process writes for long, storing fails; reading goes on, and storing works afterwards."""
    store, other = DiskStore(tmp_path, MEGABYTE), sqlite3.connect(tmp_path / FILE, isolation_level=None)
    store.put({b"key": b"value"}, 60)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        store.put({b"other": b"value"}, 60)
    assert store.get([b"key"]) == [b"value"]
    other.execute("ROLLBACK")
    store.put({b"other": b"value"}, 60)
    assert store.get([b"other"]) == [b"value"]
    other.close()
    store.close()


def test_a_full_disk_is_an_error_and_harms_nothing(tmp_path: Path) -> None:
    """What does not fit is not stored at all, and what is there stays."""
    store = DiskStore(tmp_path, 100 * MEGABYTE)
    store.put({b"key": b"value"}, 60)
    store._file.execute("PRAGMA max_page_count = 20")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.put({name(number): bytes(1000) for number in range(1000)}, 60)
    assert store.get([b"key", name(0)]) == [b"value", None]
    store.close()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    """A folder that cannot be is an error of the operating system."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="exists"):
        DiskStore(tmp_path / "file", MEGABYTE)


WRITER = """
import sys
from pathlib import Path
from vecmill.serving.disk_store import DiskStore

folder, own = Path(sys.argv[1]), sys.argv[2].encode()
store = DiskStore(folder, 300_000)
for number in range(200):
    key = own + b"%d" % number
    try:
        store.put({key: key * 40}, 60)
    except Exception as error:
        assert "locked" in str(error), error
    assert store.get([key]) in ([key * 40], [None])
store.close()
"""


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    """Processes that read, write and make room at one time find whole values, and leave a whole file."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, own], env=environment, stderr=subprocess.PIPE)
        for own in ("first", "second", "third")
    ]
    assert [(one.communicate(timeout=100)[1], one.returncode) for one in writers] == [(b"", 0)] * 3
    file = sqlite3.connect(tmp_path / FILE)
    assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert file.execute("SELECT count(*) FROM results").fetchone() > (0,)
    file.close()
