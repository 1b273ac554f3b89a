"""Rows of several lengths in one pass: laid end to end, and side by side where tokens see one another.

Everything but attention and pooling works on tokens one by one, so rows laid end to end, [1, tokens], need no padding
there. Attention takes them side by side, [rows, longest], and is told how long each is: what is beyond a row's end is
added as exact zeros, so a row's bytes are those that it has alone. Where all rows have one length the same graph takes
them as [rows, length], with no padding and no mask (docs/decisions/0012-packed-batches.md).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vecmill.graph.ops import INT32, INT64, Given, Graph

PLACES = Given("places", INT64, ("several", "longest"))
"""The token at each place of each row, 0 beyond its end; of no rows where all have one length, and then as long."""

KEPT = Given("kept", INT64, ("kept",))
"""Where each token is among the places of all rows; none where all have one length."""

LENGTHS = Given("lengths", INT32, ("several",))
"""Tokens of each row; none where all have one length."""

LAYOUT = (PLACES, KEPT, LENGTHS)

NEAR = (16, 32, 64)
"""Lengths up to which rows run in one pass. Longer ones are worth a pass of their own, and padding costs them more."""


def near(length: int) -> int:
    """What lengths have in common that run in one pass: the next of `NEAR`, and beyond these the length itself."""
    at = bisect_left(NEAR, length)
    return NEAR[at] if at < len(NEAR) else length


def either(graph: Graph, mixed: Callable[[], str], equal: Callable[[], str]) -> str:
    """What `mixed` emits where rows have several lengths, else what `equal` does: that alone, where none can have."""
    if not graph.packed:
        return equal()
    if graph.mixed:
        return mixed()
    several = graph.op("Greater", _size(graph, 0), graph.integers(0))
    graph.mixed = True
    then = graph.branch(mixed)
    graph.mixed = False
    return graph.op("If", several, then_branch=then, else_branch=graph.branch(equal))


def if_short(graph: Graph, short: Callable[[], str], long: Callable[[], str]) -> str:
    """What `short` emits where rows, of one length, might have run in one pass with others; else what `long` does."""
    condition = graph.op("LessOrEqual", longest(graph), graph.integers(NEAR[-1]))
    return graph.op("If", condition, then_branch=graph.branch(short), else_branch=graph.branch(long))


def side_by_side(graph: Graph, x: str) -> str:
    """[1, tokens, width] as [rows, longest, width]; beyond a row's end stands whatever."""
    return graph.op("Gather", graph.op("Squeeze", x, graph.integers(0)), PLACES.name)


def end_to_end(graph: Graph, x: str, width: int) -> str:
    """[rows, longest, width] as [1, tokens, width]."""
    flat = graph.op("Reshape", x, graph.integers(-1, width))
    return graph.op("Unsqueeze", graph.op("Gather", flat, KEPT.name), graph.integers(0))


def longest(graph: Graph) -> str:
    """Tokens of the longest row, int64 [1]."""
    return _size(graph, 1)


def positions(graph: Graph) -> str:
    """The position of each token in its row, int64 [tokens]; rows have several lengths."""
    return graph.op("Mod", KEPT.name, longest(graph))


def token(graph: Graph, x: str, place: int) -> str:
    """The first (0) or last (-1) token of each row, [rows, 1, width] of [1, tokens, width]."""
    at = graph.op("Gather", PLACES.name, graph.scalar(0), axis=1)
    if place:
        at = graph.op("Add", at, graph.op("Sub", _lengths(graph), graph.integers(1)))
    rows = graph.op("Gather", graph.op("Squeeze", x, graph.integers(0)), at)
    return graph.op("Unsqueeze", rows, graph.integers(1))


def last(graph: Graph, x: str) -> str:
    """The last token of each row, [rows, width] of [rows, longest, width]."""
    at = graph.op("Sub", _lengths(graph), graph.integers(1))
    return graph.op("GatherND", x, graph.op("Unsqueeze", at, graph.integers(1)), batch_dims=1)


def seen(graph: Graph) -> str:
    """Whether a place of a row is a token, bool [rows, longest]; rows have several lengths."""
    places = graph.op("Range", graph.scalar(0), graph.op("Squeeze", longest(graph)), graph.scalar(1))
    return graph.op("Less", places, graph.op("Unsqueeze", _lengths(graph), graph.integers(1)))


def layout(lengths: Sequence[int] | NDArray[np.int32]) -> dict[str, NDArray[np.int32 | np.int64]]:
    """What `LAYOUT` is for rows of these lengths, at least two of them different."""
    sizes = np.asarray(lengths, dtype=np.int32)
    steps = np.arange(sizes.max(), dtype=np.int64)
    inside = steps < sizes[:, None]
    first = np.cumsum(sizes, dtype=np.int64) - sizes
    return {
        PLACES.name: np.where(inside, first[:, None] + steps, 0),
        KEPT.name: np.flatnonzero(inside),
        LENGTHS.name: sizes,
    }


def equal_layout(length: int) -> dict[str, NDArray[np.int32 | np.int64]]:
    """What `LAYOUT` is where all rows are of this length."""
    return {
        PLACES.name: np.empty((0, length), dtype=np.int64),
        KEPT.name: np.empty(0, dtype=np.int64),
        LENGTHS.name: np.empty(0, dtype=np.int32),
    }


def _size(graph: Graph, axis: int) -> str:
    return graph.op("Shape", PLACES.name, start=axis, end=axis + 1)


def _lengths(graph: Graph) -> str:
    return graph.op("Cast", LENGTHS.name, to=INT64)
