"""Answers in a file, for the next start and for other processes on the same machine."""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

log = logging.getLogger(__name__)

Made = TypeVar("Made")

FILE = "results-1.sqlite3"
"""To be renamed with the tables."""

BUSY_S = 0.1
"""How long to wait for another process that writes."""

AT_ONCE = 500
"""Keys of one query."""

USED_S = 60.0
"""When an answer was last used is known to so many seconds: reading must not write each time."""

KEPT = 0.9
"""The part of the room that is left filled when something has to go."""

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

TABLES = """
CREATE TABLE IF NOT EXISTS results (key BLOB NOT NULL UNIQUE, value BLOB NOT NULL, until REAL NOT NULL, used REAL NOT NULL);
CREATE INDEX IF NOT EXISTS results_used ON results (used);
CREATE INDEX IF NOT EXISTS results_until ON results (until);
"""  # noqa: E501 (a line a statement)


class DiskStore:
    """Answers by key, in SQLite. Of one thread; several processes may share the folder.

    A damaged file is removed, and another begun. Beyond the bound the least recently used go, a tenth at a time.

    Args:
        folder: Where the file is; made where it is not there.
        max_bytes: Most bytes of it, its log not counted.
        clock: Unix seconds.

    Raises:
        OSError: The folder cannot be made.
        sqlite3.Error: The file cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / FILE
        self._max_bytes = max_bytes
        self._clock = clock
        self._read: set[bytes] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._file = self._open()
        except sqlite3.DatabaseError as error:
            self._begin_anew(error)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What is stored under each key and not too old; None where nothing is.

        Raises:
            sqlite3.Error: The disk fails.
        """
        return self._whole(lambda: self._get(keys)) or [None] * len(keys)

    def put(self, entries: Mapping[bytes, bytes], ttl_s: float) -> None:
        """Store these for so many seconds.

        Raises:
            sqlite3.Error: The disk fails or is full.
        """
        self._whole(lambda: self._put(entries, ttl_s))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        now, found = self._clock(), dict[bytes, bytes]()
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            marks = ", ".join("?" * len(part))
            query = f"SELECT key, value, used FROM results WHERE key IN ({marks}) AND until > ?"  # noqa: S608 (marks)
            for key, value, used in self._file.execute(query, [*part, now]):
                found[key] = value
                if now - used > USED_S:
                    self._read.add(key)
        if len(self._read) >= AT_ONCE:
            with self._writing():
                self._note_use()
        return [found.get(key) for key in keys]

    def _put(self, entries: Mapping[bytes, bytes], ttl_s: float) -> None:
        size = sum(map(len, entries.values()))
        if size > self._max_bytes / 2:
            return
        now = self._clock()
        rows = [(key, value, now + ttl_s, now) for key, value in entries.items()]
        with self._writing():
            self._note_use()
            if self._used_bytes() + size > self._max_bytes:
                self._make_room(size)
            self._file.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", rows)

    def _note_use(self) -> None:
        now = self._clock()
        self._file.executemany("UPDATE results SET used = ? WHERE key = ?", [(now, key) for key in self._read])
        self._read.clear()

    def _make_room(self, needed_bytes: int) -> None:
        """What is too old goes, then what was not used for longest."""
        self._file.execute("DELETE FROM results WHERE until <= ?", [self._clock()])
        while self._used_bytes() + needed_bytes > KEPT * self._max_bytes:
            count = self._number("SELECT count(*) FROM results")
            if not count:
                return
            oldest = "SELECT rowid FROM results ORDER BY used, rowid LIMIT ?"
            self._file.execute(f"DELETE FROM results WHERE rowid IN ({oldest})", [max(1, count // 10)])  # noqa: S608

    def _used_bytes(self) -> int:
        pages, free, size = (self._number(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size

    def _number(self, query: str) -> int:
        (number,) = self._file.execute(query).fetchone()
        return int(number)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """All of it or nothing."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._file.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._file.execute("ROLLBACK")
            raise

    def _whole(self, work: Callable[[], Made]) -> Made | None:
        """Do something with the file; None where it turns out to be damaged, and another one is begun."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            self._begin_anew(error)
            return None

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in DAMAGED:
            raise error
        log.warning("%s is damaged (%s) and is begun anew", self._path, error)
        if hasattr(self, "_file"):
            self._file.close()
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        self._file = self._open()

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        try:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            file.execute("PRAGMA journal_size_limit = 4000000")
            file.executescript(TABLES)
        except BaseException:
            file.close()
            raise
        return file
