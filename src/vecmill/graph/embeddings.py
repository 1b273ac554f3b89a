"""What encoders begin with: the tables that ids, positions and types are looked up in."""

import numpy as np
from numpy.typing import NDArray

from vecmill.graph.ops import INPUT, INT32, INT64, MARKS, Graph, embedding, from_mark, length_of
from vecmill.graph.packed import either
from vecmill.graph.packed import positions as positions_of_tokens


def embed_norm(
    graph: Graph,
    words: NDArray[np.float32],
    positions: NDArray[np.float32],
    norm: tuple[NDArray[np.float32], NDArray[np.float32]],
    epsilon: float,
    types: NDArray[np.float32] | None = None,
) -> str:
    """LayerNorm(word + position + type) of the ids.

    Args:
        graph: Where to emit.
        words: Table [vocabulary, width].
        positions: Table [positions, width].
        norm: Scale and shift.
        epsilon: Of the norm.
        types: Table [types, width] where texts come in pairs; None where all tokens have one type.
    """
    table = graph.weight(positions)
    used = either(graph, lambda: graph.op("Gather", table, positions_of_tokens(graph)), lambda: _first(graph, table))
    summed = graph.op("Add", embedding(graph, words), used)
    if types is not None:
        summed = graph.op("Add", summed, graph.op("Gather", graph.weight(types), segments(graph)))
    scales = [graph.weight(array) for array in norm]
    return graph.op("LayerNormalization", summed, *scales, axis=-1, epsilon=epsilon)


def segments(graph: Graph) -> str:
    """The type of each token, 1 in the second text, int32 [rows, length]; or [1, tokens], with a mark for each."""
    return either(graph, lambda: _from_marks(graph), lambda: graph.op("Cast", from_mark(graph), to=INT32))


def _from_marks(graph: Graph) -> str:
    marks = graph.op("Cast", MARKS.name, to=INT64)
    seconds = graph.op("GreaterOrEqual", positions_of_tokens(graph), marks)
    return graph.op("Cast", graph.op("Unsqueeze", seconds, graph.integers(0)), to=INT32)


def _first(graph: Graph, table: str) -> str:
    """The rows of a table [positions, width] for the positions of an input, [length, width]."""
    return graph.op("Slice", table, graph.integers(0), length_of(graph, INPUT), graph.integers(0))
