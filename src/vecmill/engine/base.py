"""What an engine is, and the table from which one is chosen."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from vecmill.config import HOSTS
from vecmill.core import DENSE, Output, Sparse, Value
from vecmill.errors import UnsupportedModel
from vecmill.model.onnxfile import onnx_files
from vecmill.model.spec import ModelSpec
from vecmill.model.static import STATIC
from vecmill.model.weights import has_weights

Ids = NDArray[np.int32]
Column = NDArray[np.float32] | Sequence[Value]
"""An output for each row of a batch: rows of one width as an array, others one by one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of token ids laid end to end; padding, where an engine wants it, is the engine's private business.

    Attributes:
        ids: int32 [tokens].
        offsets: int32 [rows + 1]; row i is ids[offsets[i]:offsets[i + 1]].
        marks: int32 [rows]: the place in each row that the model wants to know, as its `ModelSpec.mark` says. None
            where it wants none.
    """

    ids: Ids
    offsets: Ids
    marks: Ids | None = None

    @classmethod
    def pack(cls, rows: Sequence[Ids], marks: Sequence[int] | None = None) -> Self:
        """Lay rows end to end."""
        offsets = np.array([0, *accumulate(map(len, rows))], dtype=np.int32)
        return cls(np.concatenate(rows), offsets, None if marks is None else np.array(marks, dtype=np.int32))

    @property
    def lengths(self) -> Ids:
        """Tokens of each row, int32 [rows]."""
        return self.offsets[1:] - self.offsets[:-1]

    def by_length(self, run: Callable[[Ids, Ids | None], list[Column]]) -> list[Column]:
        """Columns of the batch, each group of one length in one call: nothing is padded.

        Args:
            run: Ids int32 [rows, length], and their marks, to columns.
        """
        return self.in_groups(same, lambda part: run(part.ids.reshape(len(part.lengths), -1), part.marks))

    def in_groups(self, alike: Callable[[int], int], run: Callable[[Self], list[Column]]) -> list[Column]:
        """Columns of the batch, rows of like lengths in one call.

        Args:
            alike: Length to what lengths that run together have in common.
            run: A part of the batch to columns.
        """
        groups: dict[int, list[int]] = {}
        for row, length in enumerate(self.lengths.tolist()):
            groups.setdefault(alike(length), []).append(row)
        if len(groups) == 1:
            return run(self)
        places = [np.array(rows) for rows in groups.values()]
        return [_merge(places, columns) for columns in zip(*(run(self._part(rows)) for rows in places), strict=True)]

    def _part(self, rows: NDArray[np.intp]) -> Self:
        ids = [self.ids[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        return self.pack(ids, None if self.marks is None else self.marks[rows].tolist())


def same(length: int) -> int:
    """For engines that run rows of one length alone."""
    return length


def _merge(groups: list[NDArray[np.intp]], columns: Sequence[Column]) -> Column:
    """One column of the columns of groups; a group is the places of its rows."""
    count = sum(map(len, groups))
    first = columns[0]
    if isinstance(first, np.ndarray) and first.ndim == ROWS_AND_NUMBERS:
        merged: NDArray[np.float32] = np.empty((count, first.shape[1]), dtype=np.float32)
        for places, column in zip(groups, columns, strict=True):
            merged[places] = np.asarray(column)
        return merged
    by_place = {
        place: value
        for places, column in zip(groups, columns, strict=True)
        for place, value in zip(places, column, strict=True)
    }
    return [by_place[place] for place in range(count)]


def picked(column: Column, places: list[int]) -> Column:
    """The values at some places of a column."""
    return column[places] if isinstance(column, np.ndarray) else [column[place] for place in places]


ROWS_AND_NUMBERS = 2
"""Axes of a column whose rows have one width."""


class Engine(Protocol):
    """One loaded model.

    Attributes:
        weight_bytes: What its weights take in memory.
        shared: Whether several threads may call `compute` at once.
        instant: Whether a short batch takes less than waking another thread for it. Such an engine is shared, and gains
            nothing from a second one.
    """

    weight_bytes: int
    shared: bool = False
    instant: bool = False

    def alike(self, length: int) -> int:
        """What lengths have in common that run best in one pass."""
        return same(length)

    def gives(self, output: Output) -> bool:  # noqa: ARG002 (not all engines give all)
        """Whether it gives an output that the model has."""
        return True

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """A column for each output, each row independent of its mates.

        Dense is float32 [rows, dims], scores float32 [rows, labels] as the network gives them; multi has float32
        [tokens, dims] for each row, sparse a `Sparse`.

        Raises:
            UnsupportedModel: The model gives no such output.
        """

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """The dense rows of the batch alone, float32 [rows, dims]."""
        (rows,) = self.compute(batch, DENSE)
        return np.asarray(rows)

    def close(self) -> None:
        """Give the memory back."""


def numbers(value: Value, size: int) -> NDArray[np.float32]:
    """A value as one row of numbers, to compare it with another of the same text: float32 [numbers].

    Args:
        value: Of any output.
        size: Entries of the vocabulary, where it is sparse.
    """
    if isinstance(value, Sparse):
        row: NDArray[np.float32] = np.zeros(size, dtype=np.float32)
        row[value.indices] = value.values
        return row
    return value.reshape(-1)


def only_dense(outputs: Sequence[Output], folder: Path) -> None:
    """Refuse other outputs than dense, once.

    Raises:
        UnsupportedModel: Another is asked for.
    """
    if tuple(outputs) != DENSE:
        raise UnsupportedModel(f"{folder}: this engine gives dense vectors, not {', '.join(outputs)}")


ENGINES = {
    "onnx": "vecmill.engine.onnx:OnnxEngine",
    "exported": "vecmill.engine.exported:ExportedEngine",
    "static": "vecmill.engine.static:StaticEngine",
    "torch": "vecmill.engine.pytorch:TorchEngine",
    "fake": "vecmill.engine.fake:FakeEngine",
}
"""Name to module:class, imported on first use. `fake` is for tests."""


TORCH = ("torch", "transformers")
"""What the torch engine needs, which only vecmill[torch] installs."""


def choose(spec: ModelSpec, device: str = "auto") -> str:
    """The engine for a checkpoint: a table, our graph of its weights, the ONNX file that came with it, or else torch.

    Args:
        spec: The model.
        device: Where to compute; only torch knows others than `HOSTS`.

    Raises:
        UnsupportedModel: No engine can run it; the message says what could be run.
    """
    if spec.family == STATIC:
        return "static"
    if device not in HOSTS:
        return "torch"
    from vecmill.graph.build import FAMILIES  # late: a static model needs no ONNX library

    known = spec.family in FAMILIES
    if known and has_weights(spec.transformer):
        return "onnx"
    if onnx_files(spec.transformer):
        return "exported"
    if known:
        return "onnx"  # whose error says which file is missing
    if all(find_spec(library) for library in TORCH):
        return "torch"
    supported = ", ".join(sorted(FAMILIES))
    raise UnsupportedModel(
        f"{spec.folder}: architecture {spec.family!r} has no graph here; those that have: {supported}. Any other "
        "needs an ONNX file of its own (onnx/model.onnx), which is not there, or PyTorch: pip install 'vecmill[torch]'"
    )


def load_engine(
    name: str,
    spec: ModelSpec,
    *,
    threads: int = 0,
    precision: str = "float32",
    device: str = "auto",
    keep: tuple[Path, int] | None = None,
) -> Engine:
    """Load a model into the engine of that name.

    Args:
        name: A key of `ENGINES`.
        spec: The model.
        threads: Threads to compute with; 0 means as many as this process may use.
        precision: What the weights are kept in.
        device: Where the torch engine computes.
        keep: Where the onnx engine keeps quantised weights, and most bytes of them; None keeps none.

    Raises:
        LoadError: The model cannot be loaded, or what the engine needs is not installed.
    """
    if name == "torch" and not all(find_spec(library) for library in TORCH):
        raise UnsupportedModel("the torch engine needs PyTorch and transformers: pip install 'vecmill[torch]'")
    module, attribute = ENGINES[name].split(":")
    create: Callable[..., Engine] = getattr(import_module(module), attribute)
    own: dict[str, dict[str, Any]] = {"torch": {"device": device}, "onnx": {"keep": keep}}
    return create(spec, threads=threads or usable_cpus(), precision=precision, **own.get(name, {}))


def usable_cpus(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """CPUs that this process may use: the affinity mask, bounded by the container's quota, never the host's count."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, min(cpus, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup v2 here, or "max": no quota
        return cpus


def usable_memory(memory_max: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes that this process may use: the machine's, bounded by the container's limit; 0 where none can tell."""
    try:
        bytes_there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return 0
    try:
        return min(bytes_there, int(memory_max.read_text()))
    except (OSError, ValueError):  # no cgroup v2 here, or "max": no limit
        return bytes_there
