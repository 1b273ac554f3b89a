"""An engine whose answers follow from the input, and that fails on demand: for tests of everything above it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vecmill.engine.base import Batch
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


FAULTS: dict[str, Fault] = {"raise": _raise, "nan": _nan, "zero": _zero, "exit": _exit}


@dataclass
class FakeEngine:
    """Rows of cosines of a sum over the ids: equal inputs give equal rows, others do not.

    Attributes:
        spec: Only its `dims` are used.
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

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Rows of the batch, float32 [rows, dims]."""
        self.gate.wait()
        self.batches.append(batch.lengths.tolist())
        ids = [batch.ids[start:end] for start, end in zip(batch.offsets, batch.offsets[1:], strict=False)]
        rows = np.stack([fake_row(row, self.spec.dims) for row in ids])
        for number, row in enumerate(ids):
            for token in set(row.tolist()) & self.faults.keys():
                FAULTS[self.faults[token]](rows, number)
        return rows

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


def fake_row(ids: NDArray[np.int32], dims: int) -> NDArray[np.float32]:
    """The row that `FakeEngine` gives for these ids, float32 [dims], of length 1."""
    seed = float(np.sum(ids * np.arange(1, len(ids) + 1)) % 10007)
    row = np.cos(seed * np.arange(1, dims + 1)).astype(np.float32)
    result: NDArray[np.float32] = row / np.linalg.norm(row)
    return result
