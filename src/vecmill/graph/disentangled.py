"""Attention scores by content and distance (DeBERTa, arXiv 2006.03654): products with a table, gathered by distance.

An input of n tokens reaches the distances 1 - n to n - 1 alone, which are neighbours in the table: the product is with
these rows, and each pair of tokens picks its number from it.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vecmill.graph.attention import distances
from vecmill.graph.ops import FUSED, INPUT, INT32, Graph


@dataclass(frozen=True, slots=True)
class Distances:
    """Names of what an input of some length needs of a table of distances.

    Attributes:
        start: First row of the table that is needed, int64 [1].
        end: The row after the last, int64 [1].
        pairs: Row of each pair of query and key, counted from `start`, int32 [rows, heads, queries, length].
    """

    start: str
    end: str
    pairs: str

    @classmethod
    def of(cls, graph: Graph, table_rows: NDArray[np.int64], heads: int) -> "Distances":
        """Of a graph's inputs.

        Args:
            graph: Where to emit.
            table_rows: Rows for the distances -n to n, query less key, never falling, int64 [2 n + 1]; n is at least
                the longest input less one.
            heads: How many.
        """
        middle, one = len(table_rows) // 2, graph.integers(1)
        known = graph.integers(*table_rows.tolist())
        rows, length = (graph.op("Shape", INPUT, start=axis, end=axis + 1) for axis in (0, 1))
        farthest = graph.op("Sub", length, one)
        start, last = (
            graph.op("Gather", known, graph.op(way, graph.integers(middle), farthest)) for way in ("Sub", "Add")
        )
        chosen = graph.op("Gather", known, graph.op("Sub", graph.scalar(middle), distances(graph, INPUT)))
        counted = graph.op("Cast", graph.op("Sub", chosen, start), to=INT32)
        shape = graph.op("Concat", rows, graph.integers(heads), length, length, axis=0)
        return cls(start, graph.op("Add", last, one), graph.op("Expand", counted, shape))

    def of_first(self, graph: Graph) -> "Distances":
        """The same with the first token as the only query."""
        return replace(self, pairs=graph.op("Gather", self.pairs, graph.integers(0), axis=2))


def c2p(graph: Graph, query: str, table: NDArray[np.float32], at: Distances, factor: float) -> str:
    """Scores of query contents with distances, times the factor: [rows, heads, queries, length].

    Args:
        graph: Where to emit.
        query: [rows, heads, queries, head dims].
        table: Distances as keys, [rows of the table, heads, head dims].
        at: What the input needs of it.
        factor: Of the scores.
    """
    return graph.op("GatherElements", product(graph, query, _needed(graph, table, at), factor), at.pairs, axis=3)


def p2c(graph: Graph, key: str, table: NDArray[np.float32], at: Distances, factor: float) -> str:
    """Scores of key contents with distances, as `c2p`; keys are [rows, heads, length, head dims], distances queries."""
    return graph.op("GatherElements", product(graph, _needed(graph, table, at), key, factor), at.pairs, axis=2)


def product(graph: Graph, x: str, y: str, factor: float) -> str:
    """X Y^T, times the factor."""
    return graph.op("FusedMatMul", x, y, domain=FUSED, transB=1, alpha=factor)


def _needed(graph: Graph, table: NDArray[np.float32], at: Distances) -> str:
    """The rows of a table that the input needs, [1, heads, distances, head dims]."""
    whole = graph.weight(table.transpose(1, 0, 2)[None])
    return graph.op("Slice", whole, at.start, at.end, graph.integers(2))
