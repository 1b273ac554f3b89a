"""Table lookup: a text's row is the mean of its tokens' vectors. No graph, no threads, no limit worth the name."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Output
from vecmill.engine.base import Batch, Column, Engine, Ids, only_dense
from vecmill.errors import UnsupportedModel
from vecmill.graph import quantize
from vecmill.model.spec import ModelSpec, Normalize
from vecmill.model.static import Table, read_table

CHUNK = 128
"""Most tokens of a text that are added one by one; sums of sums lose fewer digits of a long text."""

LOOKED_UP = 512
"""Most tokens that are looked up at once: as many vectors as a core has cache for."""

TINY = np.float32(1e-12)
"""A shorter row is divided by this instead of by its length, as torch does."""


class StaticEngine(Engine):
    """A static model.

    Rows of one length are gathered together and added token by token, in the order of the text: 7 million tokens a
    second of 256 numbers on one core, 3 times as many as `np.add.reduceat`, and a row has the same bytes alone and in a
    batch. A text without tokens gets a row of zeros, which the caller must refuse.

    Args:
        spec: The model.
        threads: Ignored; a row is copied from memory, not computed.
        precision: One of `PRECISIONS`; float32 means as the file has it.

    Raises:
        UnsupportedModel: Another module than Normalize follows the table, or the precision is another.
        LoadError: As `vecmill.model.static.read_table`.
    """

    shared = instant = True

    def __init__(self, spec: ModelSpec, *, threads: int = 1, precision: str = "float32") -> None:
        del threads
        if any(not isinstance(module, Normalize) for module in spec.tail):
            raise UnsupportedModel(f"{spec.folder}: after StaticEmbedding only Normalize is supported, not Dense")
        if precision not in PRECISIONS:
            has = ", ".join(PRECISIONS)
            raise UnsupportedModel(f"{spec.folder}: a static model has no precision {precision!r}; it has: {has}")
        self._table = PRECISIONS[precision](read_table(spec.transformer))
        self._normalize = spec.normalized
        self._folder = spec.folder
        self.weight_bytes = self._table.size_bytes

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """A column for each output: dense rows are all that it has."""
        only_dense(outputs, self._folder)
        return batch.by_length(self._means)

    def close(self) -> None:
        """Give the memory back."""
        del self._table

    def _means(self, ids: Ids, _marks: Ids | None) -> list[Column]:
        count, length = ids.shape
        rows = np.zeros((count, self._table.dims), dtype=np.float32)
        step = LOOKED_UP // min(max(1, length), CHUNK)
        for first in range(0, count, step):
            for start in range(0, length, CHUNK):
                rows[first : first + step] += self._sums(ids[first : first + step, start : start + CHUNK])
        rows /= np.float32(max(1, length))
        if self._normalize:
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), TINY)
        return [rows]

    def _sums(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """The sum of the tokens' vectors, ids [rows, length] to float32 [rows, dims]."""
        table = self._table
        vectors = table.values[ids if table.index is None else table.index[ids]]
        total: NDArray[np.float32] = (
            vectors.sum(axis=1, dtype=np.float32)
            if table.scale is None
            else np.einsum("nl,nld->nd", table.scale[ids], vectors)
        )
        return total


def _as_stored(table: Table) -> Table:
    return table


def _in_bytes(table: Table) -> Table:
    """The table in int8 with a scale a row; one that has integers already stays."""
    if table.values.dtype == np.int8:
        return table
    small = quantize.rows(np.asarray(table.values, dtype=np.float32))
    scales = small.scales if table.index is None else small.scales[table.index]
    return Table(small.values, table.index, scales if table.scale is None else scales * table.scale)


PRECISIONS: dict[str, Callable[[Table], Table]] = {"float32": _as_stored, "int8": _in_bytes}
"""What a table can be kept in."""
