"""A hub id becomes a snapshot in the hub library's own cache, which other programs share.

The library takes a third of a second to import, so that a cached model is found without it, by the layout that it
documents: `refs/REVISION` holds a commit, `snapshots/COMMIT/` the files, `.no_exist/COMMIT/` what the repository lacks.
"""

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TypeVar

from vecmill.config import FetchSettings
from vecmill.errors import LoadError, MissingFile, NetworkUnavailable
from vecmill.model.disk import demand_room, using
from vecmill.model.hub_errors import CACHE_VARIABLE, explained
from vecmill.model.onnxfile import onnx_files, served_onnx
from vecmill.model.static import MODULE

FORM = "ORG/NAME[@REVISION]"
_T = TypeVar("_T")
_REFERENCE = re.compile(r"(?P<id>\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(?P<revision>\w[\w./-]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# Where sentence-transformers before version 5 puts a static model's table; later ones put it into the root.
_TABLE = f"0_{MODULE}/{_WEIGHTS}"
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
# The root, and the folders that modules.json numbers: 1_Pooling, 2_Dense, query_0_Transformer.
_SERVED = re.compile(
    r"(?:(?:\w+_)?\d+_\w+/)?"
    r"(?:[^/]+\.(?:json|txt|model|safetensors)|pytorch_model[^/]*\.bin|(?:sparse|colbert)_linear\.pt|artifact\.metadata)"
)
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
"""PyTorch's own files, taken where there are no safetensors."""
_M3 = "colbert_linear.pt"
"""What tells BGE-M3, whose own library is the only one that fetches it."""
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True)
class HubId:
    """A repository and one of its revisions: a branch, a tag or a commit."""

    id: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A repository's files at a commit."""

    folder: Path
    commit: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What the hub says that a revision holds: bytes by path."""

    commit: str
    sizes: dict[str, int]


def parse(source: str) -> HubId | None:
    """Read `ORG/NAME[@REVISION]`; None for anything else."""
    match = _REFERENCE.fullmatch(source)
    if match is None or ".." in source or "--" in match["id"]:
        return None
    return HubId(match["id"], match["revision"] or "main")


def cache_folder() -> Path:
    """Where the hub library keeps models, by the environment as it is now."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    chosen = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(chosen)).expanduser()


def cached(wanted: HubId) -> Snapshot | None:
    """The snapshot that can be served without asking anybody, or None."""
    snapshot = _present(wanted)
    return snapshot if snapshot and _is_settled(wanted, snapshot) else None


def fetch(wanted: HubId, settings: FetchSettings, say: Callable[[str], None], *, refresh: bool = False) -> Snapshot:
    """The snapshot from the hub, of which only what serving needs and is not cached is downloaded.

    A cached one without modules.json may be whole or half: the hub is asked, and only where it cannot be reached is it
    taken as it is. Raises ModelNotFound, AccessDenied, NetworkUnavailable, MissingFile, DiskFull or a plain LoadError.
    """
    partial = None if refresh else _present(wanted)
    try:
        return _download(wanted, partial.commit if partial else wanted.revision, settings, say)
    except NetworkUnavailable as error:
        if partial is None:
            raise
        say(f"{error}; taking the cached copy, which may lack files: without its modules.json the pooling is a guess")
        return partial


def _store(model: str) -> Path:
    return cache_folder() / f"models--{model.replace('/', '--')}"


def _present(wanted: HubId) -> Snapshot | None:
    """The cached snapshot if it has a configuration and all weights of one kind."""
    store = _store(wanted.id)
    with using(cache_folder(), CACHE_VARIABLE):
        commit = wanted.revision if _COMMIT.fullmatch(wanted.revision) else _read(store / "refs" / wanted.revision)
        folder = store / "snapshots" / commit
        return Snapshot(folder, commit) if _COMMIT.fullmatch(commit) and _has_weights(folder) else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _has_weights(folder: Path) -> bool:
    if MODULE in _read(folder / "modules.json"):
        return _has_tensors(folder)
    return (folder / "config.json").is_file() and (_has_tensors(folder) or bool(onnx_files(folder)))


def _has_tensors(folder: Path) -> bool:
    return _has_safetensors(folder) or (folder / _PICKLED[0]).is_file() or _has_shards(folder, _PICKLED[1])


def _has_safetensors(folder: Path) -> bool:
    return any((folder / file).is_file() for file in (_WEIGHTS, _TABLE)) or _has_shards(folder, _INDEX)


def _has_shards(folder: Path, index: str) -> bool:
    try:
        shards = set(json.loads(_read(folder / index))["weight_map"].values())
        return bool(shards) and all((folder / shard).is_file() for shard in shards)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_settled(wanted: HubId, snapshot: Snapshot) -> bool:
    """Whether modules.json and safetensors are there, or known not to exist.

    Programs that want no pooling cache the transformer alone. Taken for the whole it would give wrong vectors. Others
    cache the ONNX file alone, or of BGE-M3, which has no safetensors, the encoder alone.
    """
    names = ["modules.json"]
    if not _has_tensors(snapshot.folder):
        names.append(_WEIGHTS)
    elif not _has_safetensors(snapshot.folder):
        names.append(_M3)
    places = [(snapshot.folder / name, _absence(wanted, snapshot.commit, name)) for name in names]
    return all(file.is_file() or absence.is_file() for file, absence in places)


def _absence(wanted: HubId, commit: str, name: str) -> Path:
    return _store(wanted.id) / ".no_exist" / commit / name


def _download(wanted: HubId, revision: str, settings: FetchSettings, say: Callable[[str], None]) -> Snapshot:
    if settings.offline or _is_offline():
        raise NetworkUnavailable(f"{wanted.id} is not on this machine and offline mode forbids to fetch it")
    say(f"asking the hub for {wanted.id}")
    with _explaining(wanted):
        listing = _ask(wanted.id, revision, settings.hub_timeout_s)
        files = choose(listing.sizes)
        _demand_served(wanted, listing.sizes)
        folder = _store(wanted.id) / "snapshots" / listing.commit
        missing = [file for file in files if not (folder / file).is_file()]
        demand_room(cache_folder(), sum(listing.sizes[file] for file in missing))
        for file in missing:
            say(f"fetching {file} of {wanted.id} from the hub ({listing.sizes[file] / 1e6:,.1f} MB)")
            _download_file(wanted.id, file, listing.commit)
        _seal(wanted, listing)
    return Snapshot(folder, listing.commit)


def _is_offline() -> bool:
    chosen = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return chosen.upper() in _TRUE


def _endpoint() -> str | None:
    """The mirror to use; None is the library's own."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


@contextmanager
def _explaining(wanted: HubId) -> Iterator[None]:
    try:
        yield
    except LoadError:
        raise
    except Exception as error:
        # The library lets several HTTP stacks' and a native downloader's exceptions through, which share no base.
        raise explained(error, wanted.id, wanted.revision, cache_folder()) from error


def _ask(model: str, revision: str, timeout_s: float) -> Listing:
    """What the hub holds; TimeoutError when it does not answer in time, whatever it is that hangs."""
    started = time.monotonic()
    # The library may first ask the hub for a list that serves its statistics, which is a second wait.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi

    # The import counts, but on a cold disk it must not eat all of the hub's time.
    left_s = max(timeout_s - (time.monotonic() - started), timeout_s / 2)
    api = HfApi(endpoint=_endpoint())
    # The library's own timeout starts anew with every step; it ends the thread, not the wait.
    try:
        info = _within(
            left_s, lambda: api.model_info(model, revision=revision, timeout=2 * left_s, files_metadata=True)
        )
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {timeout_s:g} s") from error
    if info.sha is None or not _COMMIT.fullmatch(info.sha):
        raise NetworkUnavailable(f"the hub names no commit for {model}: does HF_ENDPOINT lead to a hub?")
    return Listing(info.sha, {file.rfilename: file.size or 0 for file in info.siblings or []})


def _within(seconds: float, call: Callable[[], _T]) -> _T:
    """The call's result, or TimeoutError; a call that hangs stays behind in a daemon thread that nobody awaits."""
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            answer.set_exception(error)

    Thread(target=run, name="hub", daemon=True).start()
    return answer.result(timeout=seconds)


def choose(files: Collection[str]) -> list[str]:
    """The files that serving needs, the root's weights last: what has them has the rest, even if it was cut short.

    The repository's own ONNX file is among them where there are no weights of the whole model.
    """
    served = [file for file in files if _SERVED.fullmatch(file) and _is_no_duplicate(file, files)]
    exported = served_onnx(files) if {_WEIGHTS, _INDEX, _TABLE, *_PICKLED}.isdisjoint(files) else []
    return sorted(served, key=lambda file: (file.endswith((".safetensors", ".bin")), "/" not in file, file)) + exported


def _is_no_duplicate(file: str, files: Collection[str]) -> bool:
    """Whether no other file of the same folder holds the same weights."""
    slash = file.rfind("/") + 1
    folder, name = file[:slash], file[slash:]
    if name in _PICKLED or name.endswith(".bin"):
        safe = not {folder + _WEIGHTS, folder + _INDEX, folder + _TABLE}.isdisjoint(files)
        whole = name == _PICKLED[0] or folder + _PICKLED[0] not in files
        return not safe and whole
    if name != _INDEX and not name.endswith(".safetensors"):
        return True
    if folder + _WEIGHTS in files:
        return name == _WEIGHTS
    return name == _INDEX or folder + _INDEX not in files or _SHARD.fullmatch(name) is not None


def _demand_served(wanted: HubId, files: Collection[str]) -> None:
    if "config.json" in files and not {_WEIGHTS, _INDEX, *_PICKLED}.isdisjoint(files):
        return
    if "config.json" in files and served_onnx(files):
        return
    if "modules.json" in files and (_WEIGHTS in files or _TABLE in files):
        return
    kinds = sorted({Path(file).suffix for file in files} & {".bin", ".h5", ".gguf", ".onnx", ".msgpack"})
    has = f"its weights are {', '.join(kinds)}" if kinds else f"it has {', '.join(sorted(files)[:8]) or 'no files'}"
    raise MissingFile(f"{wanted.id} has no config.json with {_WEIGHTS} or an ONNX file on the hub; {has}")


def _download_file(model: str, file: str, commit: str) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download(model, file, revision=commit, cache_dir=cache_folder(), endpoint=_endpoint())


def _seal(wanted: HubId, listing: Listing) -> None:
    """Let the next start find the snapshot. Only now does the revision's name move to it, so that none is half."""
    for name in {"modules.json", _WEIGHTS, _M3} - set(listing.sizes):
        absence = _absence(wanted, listing.commit, name)
        absence.parent.mkdir(parents=True, exist_ok=True)
        absence.touch()
    if not _COMMIT.fullmatch(wanted.revision):
        ref = _store(wanted.id) / "refs" / wanted.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        unfinished = _store(wanted.id) / f".ref-{os.getpid()}"
        unfinished.write_text(listing.commit, encoding="ascii")
        unfinished.replace(ref)
