"""Attention scores by content and distance (DeBERTa, arXiv 2006.03654), without gathering them number by number.

A product of contents with one row for each distance gives [rows, heads, length, 2 length], row i of which holds the
scores of token i at its own offset: `skew` cuts them out with two copies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vecmill.graph.ops import FUSED, INPUT, Graph


@dataclass(frozen=True, slots=True)
class Distances:
    """Names of which rows of a table of distances an input of some length needs.

    Attributes:
        falling: Rows for the distances length - 1 to -length, query less key, int64 [2 length].
        rising: Rows for the distances 1 - length to length.
        whole: The lengths that `skew` needs.
    """

    falling: str
    rising: str
    whole: "Lengths"

    @classmethod
    def of(cls, graph: Graph, rows: NDArray[np.int64], heads: int) -> "Distances":
        """Of the rows for the distances n to -n, int64 [2 n + 1], n being at least the longest input."""
        length = graph.op("Shape", INPUT, start=1, end=2)
        middle = graph.integers(len(rows) // 2 + 1)
        ends = graph.op("Sub", middle, length), graph.op("Add", middle, length)
        falling, rising = (
            graph.op("Slice", graph.integers(*order.tolist()), *ends, graph.integers(0)) for order in (rows, rows[::-1])
        )
        return cls(falling, rising, Lengths.of(graph, length, heads))


@dataclass(frozen=True, slots=True)
class Lengths:
    """Names of what turns [rows, heads, length, 2 length] into [rows, heads, length, length]; see `skew`.

    Attributes:
        flat: The shape [0, heads, -1].
        ends: Where the flat numbers begin and end.
        square: The shape [0, heads, length, 2 length - 1].
        length: int64 [1].
    """

    flat: str
    ends: tuple[str, str]
    square: str
    length: str

    @classmethod
    def of(cls, graph: Graph, length: str, heads: int) -> "Lengths":
        """Of a graph's inputs."""
        one = graph.integers(1)
        start = graph.op("Sub", length, one)
        odd = graph.op("Sub", graph.op("Add", length, length), one)
        end = graph.op("Add", start, graph.op("Mul", length, odd))
        square = graph.op("Concat", graph.integers(0, heads), length, odd, axis=0)
        return cls(graph.integers(0, heads, -1), (start, end), square, length)


def skew(graph: Graph, x: str, at: Lengths) -> str:
    """Row i of [..., length, 2 length] from its number length - 1 - i on: [..., length, length], by copies alone."""
    flat = graph.op("Slice", graph.op("Reshape", x, at.flat), *at.ends, graph.integers(2))
    square = graph.op("Reshape", flat, at.square)
    return graph.op("Slice", square, graph.integers(0), at.length, graph.integers(3))


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one layer's tokens.

    Attributes:
        graph: Where to emit.
        query: [rows, heads, queries, head dims].
        key: [rows, heads, length, head dims].
        factor: Of all scores.
        distances: What the length needs of tables.
    """

    graph: Graph
    query: str
    key: str
    factor: float
    distances: Distances

    def c2p(self, table: NDArray[np.float32], *, first_only: bool) -> str:
        """Of query contents with distances, [rows, heads, queries, length].

        Args:
            table: Distances as keys, [rows of the table, heads, head dims].
            first_only: The first token is the only query.
        """
        if first_only:
            return self.product(self.query, self._heads_first(table, self._from_first()))
        scores = self.product(self.query, self._heads_first(table, self.distances.falling))
        return skew(self.graph, scores, self.distances.whole)

    def p2c(self, table: NDArray[np.float32], *, first_only: bool) -> str:
        """Of key contents with distances, as `c2p`; the table holds distances as queries."""
        if first_only:
            products = self.graph.op("Mul", self.key, self._heads_first(table, self._from_first()))
            ones = np.full((table.shape[2], 1), self.factor, dtype=np.float32)
            return self._turned(self.graph.op("MatMul", products, self.graph.weight(ones)))
        scores = self.product(self.key, self._heads_first(table, self.distances.rising))
        return self._turned(skew(self.graph, scores, self.distances.whole))

    def product(self, x: str, y: str) -> str:
        """X Y^T, times the factor."""
        return self.graph.op("FusedMatMul", x, y, domain=FUSED, transB=1, alpha=self.factor)

    def _heads_first(self, table: NDArray[np.float32], rows: str) -> str:
        """These rows of a table, [1, heads, distances, head dims]."""
        chosen = self.graph.op("Gather", self.graph.weight(table), rows, axis=0)
        return self.graph.op("Unsqueeze", self.graph.op("Transpose", chosen, perm=[1, 0, 2]), self.graph.integers(0))

    def _from_first(self) -> str:
        """Rows for the distances 0 to 1 - length."""
        graph, length = self.graph, self.distances.whole.length
        start = graph.op("Sub", length, graph.integers(1))
        return graph.op("Slice", self.distances.falling, start, graph.op("Add", start, length), graph.integers(0))

    def _turned(self, scores: str) -> str:
        return self.graph.op("Transpose", scores, perm=[0, 1, 3, 2])
