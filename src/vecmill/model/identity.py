"""Which checkpoint this is: by its files' times, which costs nothing, or by what is in them, which is so everywhere."""

import hashlib
from pathlib import Path


def facts_of_files(folder: Path) -> list[object]:
    """Where a checkpoint is, and every file's path, size, inode and times of change.

    Nobody reads the files for it; whatever changes a file changes its time of change, which no program can set.
    """
    files = [(str(path.relative_to(folder)), path.stat()) for path in sorted(folder.rglob("*"))]
    return [
        str(folder.resolve()),
        *([name, one.st_size, one.st_ino, one.st_mtime_ns, one.st_ctime_ns] for name, one in files),
    ]


def digest_of_files(folder: Path) -> str:
    """The same for equal files on any machine: a hash of their paths and contents, hidden ones left out."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
            whole.update(name.as_posix().encode() + b"\0" + content)
    return whole.hexdigest()
