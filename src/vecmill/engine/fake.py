"""An engine whose answers follow from the input, and that fails on demand: for tests of everything above it."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Output, Sparse
from vecmill.engine.base import Batch, Column, Engine, Ids
from vecmill.model.spec import ModelSpec

Fault = Callable[[NDArray[np.float32], int], None]


class FakeEngineError(Exception):
    """The failure that was asked for."""


def _raise(_rows: NDArray[np.float32], _row: int) -> None:
    raise FakeEngineError("asked to fail")


def _nan(rows: NDArray[np.float32], row: int) -> None:
    rows[row, 0] = np.nan


def _zero(rows: NDArray[np.float32], row: int) -> None:
    rows[row] = 0


def _exit(_rows: NDArray[np.float32], _row: int) -> None:
    raise SystemExit("asked to kill the thread")


def _memory(_rows: NDArray[np.float32], _row: int) -> None:
    raise MemoryError("asked to be short of memory")


FAULTS: dict[str, Fault] = {"memory": _memory, "raise": _raise, "nan": _nan, "zero": _zero, "exit": _exit}


FAKE_DIMS = 8
"""Numbers of a token's vector."""


@dataclass
class FakeEngine(Engine):
    """Rows of cosines of a sum over the ids: equal inputs give equal rows, others do not.

    Attributes:
        spec: Only the widths of its outputs are used.
        threads: Ignored; real engines take it.
        precision: Ignored; real engines take it.
        faults: Token id to a key of `FAULTS`: what happens to a batch that holds it.
        gate: The engine stalls while this is clear.
        batches: Lengths of the rows of every batch that ran.
    """

    spec: ModelSpec
    threads: int = 1
    precision: str = "float32"
    faults: dict[int, str] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)
    batches: list[list[int]] = field(default_factory=list)
    closed: bool = False
    weight_bytes: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """A column for each output; faults befall those of one width."""
        self.gate.wait()
        self.batches.append(batch.lengths.tolist())
        ids = [batch.ids[start:end] for start, end in zip(batch.offsets, batch.offsets[1:], strict=False)]
        return [self._column(output, ids) for output in outputs]

    def _column(self, output: Output, ids: list[Ids]) -> Column:
        if output == "sparse":
            return [fake_sparse(row) for row in ids]
        if output == "multi":
            return [np.stack([fake_row(row[: end + 1], FAKE_DIMS) for end in range(len(row))]) for row in ids]
        make = fake_scores if output == "scores" else fake_row
        rows = np.stack([make(row, self.spec.width(output)) for row in ids])
        for number, row in enumerate(ids):
            for token in set(row.tolist()) & self.faults.keys():
                FAULTS[self.faults[token]](rows, number)
        return rows

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


def fake_row(ids: NDArray[np.int32], dims: int) -> NDArray[np.float32]:
    """The row that `FakeEngine` gives for these ids, float32 [dims], of length 1."""
    row = fake_scores(ids, dims)
    result: NDArray[np.float32] = row / np.linalg.norm(row)
    return result


def fake_scores(ids: NDArray[np.int32], labels: int) -> NDArray[np.float32]:
    """The scores that `FakeEngine` gives for these ids, float32 [labels], from -1 to 1."""
    seed = float(np.sum(ids * np.arange(1, len(ids) + 1)) % 10007)
    scores: NDArray[np.float32] = np.cos(seed * np.arange(1, labels + 1)).astype(np.float32)
    return scores


def fake_sparse(ids: NDArray[np.int32]) -> Sparse:
    """The entries that `FakeEngine` gives for these ids: each id, weighted by how often it occurs."""
    entries, counts = np.unique(ids, return_counts=True)
    return Sparse(entries.astype(np.int32), counts.astype(np.float32))
