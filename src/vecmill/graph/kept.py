"""Compiled graphs with quantised weights, kept on disk for the next start.

A file is known by what it was made of: every file of the checkpoint by its path, size, inode and times of change, what
was asked of it, and the version that made it. Nobody reads the checkpoint to find out; whatever changes a file changes
its time of change, which no program can set. The file itself is safetensors, so that it is mapped and its pages shared.
Figures: docs/decisions/0008-quantised-weights-on-disk.md.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vecmill import __version__
from vecmill.errors import LoadError
from vecmill.graph.ops import Array, Compiled
from vecmill.graph.quantize import largest_weight
from vecmill.model.identity import facts_of_files
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import read_safetensors

log = logging.getLogger(__name__)

FORMAT = 2
"""To be raised where the same version would quantise otherwise."""

MODEL = "model"
"""What the serialised graph is called among the weights."""

LEAST_BYTES = 32_000_000
"""Graphs below this many bytes are quantised in less time than it takes to notice."""

ALIGNED = 64

ABANDONED_S = 3600.0
"""Age at which a file that was never finished is nobody's."""

NAMES = {"float32": "F32", "int8": "I8", "uint8": "U8"}
"""numpy's names of types in those of safetensors."""

TYPES = {stored: np.dtype(name) for name, stored in NAMES.items()}


def kept(
    folder: Path, limit_bytes: int, spec: ModelSpec, asked: tuple[str, ...], make: Callable[[], Compiled]
) -> Compiled:
    """The compiled graph, from disk where it was kept, else made and kept. A disk that does not take it costs a line.

    Args:
        folder: Where such graphs are kept.
        limit_bytes: Most bytes of all of them; those that were not used for longest go first.
        spec: The model.
        asked: Precision and outputs.
        make: Makes it; its errors are raised.
    """
    path = folder / f"{_key(spec, asked)}.safetensors"
    try:
        if path.is_file():
            found = _read(path)
            os.utime(path)
            return found
    except (OSError, LoadError) as error:
        log.warning("%s is damaged and is made anew: %s", path, error)
    compiled = make()
    size = sum(array.nbytes for array in compiled.weights.values())
    if LEAST_BYTES <= size <= limit_bytes:
        try:
            _write(path, compiled)
            _make_room(folder, limit_bytes)
        except OSError as error:
            log.warning("the quantised weights are not kept: %s", error)
    return compiled


def _key(spec: ModelSpec, asked: tuple[str, ...]) -> str:
    facts = [
        *(FORMAT, __version__, largest_weight(), *asked, spec.task, spec.max_tokens, spec.normalized),
        *facts_of_files(spec.folder),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:40]


def _read(path: Path) -> Compiled:
    tensors = read_safetensors(path)
    weights: dict[str, Array] = {
        name: np.require(one.data.view(TYPES[one.dtype]).reshape(one.shape), requirements="A")
        for name, one in tensors.items()
        if name not in {MODEL, PADDING}
    }
    return Compiled(tensors[MODEL].data.tobytes(), weights)


def _write(path: Path, compiled: Compiled) -> None:
    """Whole or not at all."""
    arrays: dict[str, Array] = {MODEL: np.frombuffer(compiled.model, dtype=np.uint8), **compiled.weights}
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes + -array.nbytes % ALIGNED
    header[PADDING] = {"dtype": "U8", "shape": [0], "data_offsets": [at, at]}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % ALIGNED)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                file.write(np.ascontiguousarray(array).data)
                file.write(bytes(-array.nbytes % ALIGNED))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


PADDING = "end"
"""A tensor of no numbers, which says where the file ends."""


def _make_room(folder: Path, limit_bytes: int) -> None:
    """Remove what was not used for longest until the rest fits, and what a killed process left half written."""
    for path in folder.iterdir():
        if path.suffix != ".safetensors" and path.stat().st_mtime < time.time() - ABANDONED_S:
            path.unlink(missing_ok=True)
    files = sorted(folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    total = 0
    for path in files:
        total += path.stat().st_size
        if total > limit_bytes:
            path.unlink(missing_ok=True)
            log.info("removed %s: quantised weights may take %d MB", path.name, limit_bytes // 1_000_000)
