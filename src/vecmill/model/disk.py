"""A folder that is written whole or not at all, and what a disk says when it cannot take it."""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vecmill.errors import DiskFull, LoadError

STAGING_PREFIX = ".part-"
"""Folders of this prefix are unfinished work; nothing else looks like them."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MEGABYTE = 1_000_000


def demand_room(folder: Path, needed_bytes: int) -> None:
    """Raise DiskFull when the disk under `folder`, which need not exist yet, has fewer free bytes than needed."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if needed_bytes > free_bytes:
        needed, free = needed_bytes / _MEGABYTE, free_bytes / _MEGABYTE
        raise DiskFull(f"no room in {folder}: {needed:,.1f} MB needed, {free:,.1f} MB free")


def disk_error(error: OSError, folder: Path, variable: str) -> LoadError:
    """The line for an operating system's refusal to work in `folder`, which `variable` moves elsewhere."""
    if error.errno in _FULL:
        free_bytes = shutil.disk_usage(folder).free if folder.exists() else 0
        return DiskFull(f"the disk is full: {folder} ({free_bytes / _MEGABYTE:,.1f} MB free); {variable} moves it")
    where = error.filename or folder
    return LoadError(f"cannot use {where}: {error.strerror or error}; {variable} chooses another folder")


@contextmanager
def using(folder: Path, variable: str) -> Iterator[None]:
    """Errors of the operating system inside become LoadErrors that name `folder` and the `variable` that moves it."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, folder, variable) from error


@contextmanager
def alone_in(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One process or thread at a time is inside; what killed ones left in `folder` is swept away first.

    Where the file system knows no locks, several may be inside: `publish` is safe then too.
    """
    descriptor = os.open(folder, os.O_RDONLY) if sys.platform != "win32" else -1
    try:
        if _locked(descriptor, lambda: say(f"waiting for another process that fetches into {folder}")):
            for left_behind in folder.glob(f"{STAGING_PREFIX}*"):
                shutil.rmtree(left_behind, ignore_errors=True)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _locked(descriptor: int, on_wait: Callable[[], None]) -> bool:
    """Whether the lock was taken; it ends with the descriptor, so a killed process holds none."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A fresh folder inside `folder`, on the same disk, that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=STAGING_PREFIX, dir=folder) as temporary:
        yield Path(temporary)


def publish(finished: Path, target: Path) -> None:
    """Give the folder its name in one step; where another was faster, theirs stays and ours goes."""
    try:
        finished.rename(target)
    except OSError:
        if not target.is_dir():
            raise
