"""What an engine is, and the table from which one is chosen."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.model.onnxfile import onnx_files
from vecmill.model.spec import ModelSpec
from vecmill.model.static import STATIC
from vecmill.model.weights import has_weights


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of token ids laid end to end; padding, where an engine wants it, is the engine's private business.

    Attributes:
        ids: int32 [tokens].
        offsets: int32 [rows + 1]; row i is ids[offsets[i]:offsets[i + 1]].
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int32]

    @classmethod
    def pack(cls, rows: Sequence[NDArray[np.int32]]) -> Self:
        """Lay rows end to end."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return cls(np.concatenate(rows), offsets)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each row, int32 [rows]."""
        return np.diff(self.offsets)

    def by_length(self, dims: int, run: Callable[[NDArray[np.int32]], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Rows of the batch, float32 [rows, dims], each group of one length in one call: nothing is padded.

        Args:
            dims: Numbers of a row.
            run: Ids int32 [rows, length] to float32 [rows, dims].
        """
        lengths = self.lengths
        distinct = np.unique(lengths)
        if len(distinct) == 1:
            return run(self.ids.reshape(len(lengths), distinct[0]))
        rows = np.empty((len(lengths), dims), dtype=np.float32)
        for length in distinct:
            chosen = np.flatnonzero(lengths == length)
            rows[chosen] = run(self.ids[self.offsets[chosen][:, None] + np.arange(length)])
        return rows


class Engine(Protocol):
    """One loaded model. Owned by one thread.

    Attributes:
        weight_bytes: What its weights take in memory.
    """

    weight_bytes: int

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Rows of the batch, float32 [rows, dims], each independent of its mates."""

    def close(self) -> None:
        """Give the memory back."""


ENGINES = {
    "onnx": "vecmill.engine.onnx:OnnxEngine",
    "exported": "vecmill.engine.exported:ExportedEngine",
    "static": "vecmill.engine.static:StaticEngine",
    "fake": "vecmill.engine.fake:FakeEngine",
}
"""Name to module:class, imported on first use. `fake` is for tests."""


def choose(spec: ModelSpec) -> str:
    """The engine for a checkpoint: a table, our graph of its weights, or else the ONNX file that came with it.

    Raises:
        UnsupportedModel: No engine can run it; the message says what could be run.
    """
    if spec.family == STATIC:
        return "static"
    from vecmill.graph.build import FAMILIES  # late: a static model needs no ONNX library

    known = spec.family in FAMILIES
    if known and has_weights(spec.transformer):
        return "onnx"
    if onnx_files(spec.transformer):
        return "exported"
    if known:
        return "onnx"  # whose error says which file is missing
    supported = ", ".join(sorted(FAMILIES))
    raise UnsupportedModel(
        f"{spec.folder}: architecture {spec.family!r} is not supported yet; supported: {supported}, "
        "and any other with an ONNX file of its own (onnx/model.onnx), which is not there"
    )


def load_engine(name: str, spec: ModelSpec, *, threads: int = 0, precision: str = "float32") -> Engine:
    """Load a model into the engine of that name.

    Args:
        name: A key of `ENGINES`.
        spec: The model.
        threads: Threads to compute with; 0 means as many as this process may use.
        precision: What the weights are kept in.
    """
    module, attribute = ENGINES[name].split(":")
    create: Callable[..., Engine] = getattr(import_module(module), attribute)
    return create(spec, threads=threads or usable_cpus(), precision=precision)


def usable_cpus(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """CPUs that this process may use: the affinity mask, bounded by the container's quota, never the host's count."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, min(cpus, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup v2 here, or "max": no quota
        return cpus
