"""Self-attention in the variants that families need, and what goes into it: rotary tables, biases, groups of heads.

Where all rows of a batch have one length there is no padding and no mask; rows of several lengths are laid side by side
for this alone (`vecmill.graph.packed`), and only these, and graphs that know of tokens that are not seen (`Mark`), say
how many tokens of each row are. A bias is float32 [1, heads or 1, length, length] and is added to the scores.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.graph import packed
from vecmill.graph.ops import FUSED, INPUT, INT32, MARKS, Graph, length_of, linear, rms_norm
from vecmill.graph.packed import either, end_to_end, side_by_side

Linear = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""Weight [out, in] and bias [out] of a linear layer, as torch stores them."""

MASKED = float(np.finfo(np.float32).min)

GROUPED_DIMS = 8
"""ONNX Runtime's operator for grouped queries takes heads of a multiple of this."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary position embedding (Su et al., arXiv 2104.09864), halves rotated as transformers does.

    Attributes:
        cos: Name of a table, float32 [positions, head dims / 2].
        sin: As `cos`.
    """

    cos: str
    sin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """How the width is divided.

    Attributes:
        query: Query heads.
        key: Key and value heads; fewer than `query` in grouped-query attention.
        dims: Numbers of a head.
        scale: Factor of the scores; None is 1 / sqrt(dims).
        causal: Whether a token sees only itself and those before it.
        window: How many of these it sees, itself included; None for all. Without effect where not causal.
    """

    query: int
    key: int
    dims: int
    scale: float | None = None
    causal: bool = False
    window: int | None = None


def equal_heads(count: int, width: int) -> Heads:
    """Heads of an encoder: as many keys as queries, all tokens visible."""
    return Heads(query=count, key=count, dims=width // count)


def attention(
    graph: Graph,
    x: str,
    projections: tuple[Linear, Linear, Linear],
    heads: Heads,
    *,
    bias: str = "",
    rotary: Rotary | None = None,
    norms: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
    epsilon: float = 0.0,
) -> str:
    """Self-attention before the output projection: [rows, length, in] to [rows, length, query heads x dims].

    Args:
        graph: Where to emit.
        x: [rows, length, in].
        projections: Query, key and value.
        heads: How the width is divided.
        bias: Added to the scores; "" for none.
        rotary: Position tables; None for families that have positions elsewhere.
        norms: RMSNorm scales [dims] of query and key heads, where the family normalises them.
        epsilon: Of these norms.
    """
    plain = rotary is None and norms is None and heads.query == heads.key and heads.window is None
    if plain and graph.precision == "float32":
        return _fused(graph, x, projections, heads, bias)
    product = _product(graph, x, projections)

    def of(product: str) -> str:
        query, key, value = _split(graph, product, heads)
        if norms is not None:
            query = _head_norm(graph, query, norms[0], heads.query, heads.dims, epsilon)
            key = _head_norm(graph, key, norms[1], heads.key, heads.dims, epsilon)
        if rotary is not None:
            query, key = _rotate(graph, query, rotary, heads.query), _rotate(graph, key, rotary, heads.key)
        if heads.causal and not bias and heads.dims % GROUPED_DIMS == 0:
            return _grouped(graph, query, key, value, heads)
        added = window_bias(graph, INPUT, heads.window - 1) if heads.causal and heads.window is not None else bias
        if heads.query != heads.key:
            key, value = _repeat(graph, key, heads), _repeat(graph, value, heads)
        return score(graph, query, key, value, heads, bias=added)

    width = heads.query * heads.dims
    return either(graph, lambda: end_to_end(graph, of(side_by_side(graph, product)), width), lambda: of(product))


def attention_of_one(
    graph: Graph, x: str, token: int, projections: tuple[Linear, Linear, Linear], heads: Heads, *, bias: str = ""
) -> str:
    """`attention` of one token to all, [rows, 1, width]: the last layer, where the pooling wants no other.

    Args:
        graph: Where to emit.
        x: [rows, length, in].
        token: Its place, 0 or -1.
        projections: Query, key and value.
        heads: How the width is divided; every token visible.
        bias: Added to the scores of all tokens; "" for none.
    """
    query = linear(graph, one_token(graph, x, token), *projections[0])
    pair = [weight for weight, _ in projections[1:]], [bias for _, bias in projections[1:] if bias is not None]
    both = linear(graph, x, np.concatenate(pair[0]), np.concatenate(pair[1]) if pair[1] else None)
    width = heads.dims * heads.key

    queries = PACKED_QUERIES if graph.packed else 1
    if queries > 1:
        query = graph.op("Expand", query, graph.integers(1, queries, 1))

    def of(both: str) -> str:
        key = graph.op("Split", both, graph.integers(width, width), outputs=2, axis=-1)
        seen = graph.op("Gather", bias, graph.integers(*[token] * queries), axis=2) if bias else ""
        context = score(graph, query, key, f"{key}_1", heads, bias=seen)
        return context if queries == 1 else graph.op("Gather", context, graph.integers(0), axis=1)

    return either(graph, lambda: of(side_by_side(graph, both)), lambda: of(both))


PACKED_QUERIES = 2
"""The one token stands there twice where rows may be padded: a product of one row adds in an order that depends on how
long the padding is."""


def one_token(graph: Graph, x: str, token: int) -> str:
    """The state of each row's first (0) or last (-1) token, [rows, 1, width]."""
    return either(
        graph,
        lambda: packed.token(graph, x, token),
        lambda: graph.op("Gather", x, graph.integers(token), axis=1),
    )


def score(graph: Graph, query: str, key: str, value: str, heads: Heads, *, bias: str = "") -> str:
    """softmax(Q K^T scale + bias) V, all of [rows, length, query heads x dims]."""
    inputs = [query, key, value, "", _seen(graph), bias]
    attributes = {"unidirectional": int(heads.causal), **_attributes(heads)}

    def of(outputs: int) -> str:
        return graph.op("MultiHeadAttention", *inputs, domain=FUSED, outputs=outputs, **attributes)

    if not graph.packed or graph.mixed or bias:
        return of(1)
    return packed.if_short(graph, lambda: of(WITH_KEYS), lambda: of(1))


WITH_KEYS = 2
"""Outputs of MultiHeadAttention that keep it from its tiled way, whose bytes are not those of rows that are padded."""


def rotary_tables(graph: Graph, positions: int, frequencies: NDArray[np.float32], factor: float = 1.0) -> Rotary:
    """Tables of cosines and sines for positions 0 to `positions`.

    Angles are rounded to float32 as torch rounds them: at position 8,000 that moves a cosine by up to 0.0005, and it is
    what models were trained with.

    Args:
        graph: Where the tables go.
        positions: How many.
        frequencies: Angle of a step, [head dims / 2].
        factor: What the tables are multiplied by (attention scaling of long-context variants).
    """
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies.astype(np.float32)).astype(np.float64)
    cos, sin = ((table * factor).astype(np.float32) for table in (np.cos(angles), np.sin(angles)))
    return Rotary(graph.weight(cos), graph.weight(sin))


def frequencies(dims: int, theta: float) -> NDArray[np.float32]:
    """theta^(-2i / dims), [dims / 2], rounded where torch rounds."""
    exponents = np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims)
    powers = (theta ** exponents.astype(np.float64)).astype(np.float32)
    steps: NDArray[np.float32] = np.float32(1) / powers
    return steps


def distances(graph: Graph, x: str) -> str:
    """Key position minus query position, int64 [length, length], of token states [rows, length, width]."""
    length = packed.longest(graph) if graph.packed else length_of(graph, x)
    last = graph.op("Squeeze", length)
    steps = graph.op("Range", graph.scalar(0), last, graph.scalar(1))
    return graph.op(
        "Sub", graph.op("Unsqueeze", steps, graph.integers(0)), graph.op("Unsqueeze", steps, graph.integers(1))
    )


def window_bias(graph: Graph, x: str, reach: int) -> str:
    """A bias that hides tokens more than `reach` away, [1, 1, length, length]; of `x` only the length counts."""
    hidden = graph.op("Greater", graph.op("Abs", distances(graph, x)), graph.scalar(reach))
    bias = graph.op("Where", hidden, graph.number(MASKED), graph.number(0.0))
    return graph.op("Unsqueeze", bias, graph.integers(0, 1))


def relative_bias(graph: Graph, x: str, table: NDArray[np.float32], reach: int) -> str:
    """A bias by the distance of key and query, [1, heads, length, length].

    Args:
        graph: Where to emit.
        x: Token states, for their length.
        table: [2 reach + 1, heads]: the bias at distances -reach to reach.
        reach: At least the longest input less one.
    """
    rows = graph.op("Add", distances(graph, x), graph.scalar(reach))
    bias = graph.op("Gather", graph.weight(np.ascontiguousarray(table.T)), rows, axis=1)
    return graph.op("Unsqueeze", bias, graph.integers(0))


def _fused(graph: Graph, x: str, projections: tuple[Linear, Linear, Linear], heads: Heads, bias: str) -> str:
    """One operator for the projections and the scores."""
    weight = graph.weight(np.concatenate([weight.T for weight, _ in projections], axis=1))
    shift = graph.weight(np.concatenate([np.zeros(len(w), np.float32) if b is None else b for w, b in projections]))
    sizes = [len(weight) for weight, _ in projections]
    attributes = {"qkv_hidden_sizes": sizes, "unidirectional": int(heads.causal), **_attributes(heads)}

    def of(x: str) -> str:
        return graph.op("Attention", x, weight, shift, _seen(graph), "", bias, domain=FUSED, **attributes)

    def mixed() -> str:
        return end_to_end(graph, of(side_by_side(graph, x)), heads.query * heads.dims)

    return either(graph, mixed, lambda: of(x))


def _product(graph: Graph, x: str, projections: tuple[Linear, Linear, Linear]) -> str:
    """Query, key and value from one product."""
    weight = np.concatenate([weight for weight, _ in projections])
    biased = any(bias is not None for _, bias in projections)
    shift = [np.zeros(len(w), np.float32) if b is None else b for w, b in projections]
    return linear(graph, x, weight, np.concatenate(shift) if biased else None)


def _split(graph: Graph, product: str, heads: Heads) -> tuple[str, str, str]:
    """Query, key and value of their product."""
    sizes = graph.integers(*(heads.dims * count for count in (heads.query, heads.key, heads.key)))
    first = graph.op("Split", product, sizes, outputs=3, axis=-1)
    return first, f"{first}_1", f"{first}_2"


def _head_norm(graph: Graph, x: str, scale: NDArray[np.float32], count: int, dims: int, epsilon: float) -> str:
    """RMSNorm of each head."""
    split = graph.op("Reshape", x, graph.integers(0, 0, count, dims))
    return graph.op("Reshape", rms_norm(graph, split, scale, epsilon), graph.integers(0, 0, count * dims))


def _grouped(graph: Graph, query: str, key: str, value: str, heads: Heads) -> str:
    """Causal scores: two to three times as fast as repeated key heads and MultiHeadAttention, and knows windows."""
    rows, length = (graph.op("Shape", INPUT, start=axis, end=axis + 1) for axis in (0, 1))
    last = graph.op("Expand", graph.op("Sub", length, graph.integers(1)), rows)
    sizes = [graph.op("Cast", size, to=INT32) for size in (last, length)]
    attributes = {"kv_num_heads": heads.key, **_attributes(heads)}
    if heads.window is not None:
        attributes["local_window_size"] = heads.window
    return graph.op("GroupQueryAttention", query, key, value, "", "", *sizes, domain=FUSED, **attributes)


def _rotate(graph: Graph, x: str, rotary: Rotary, count: int) -> str:
    first = graph.integers(0)
    return graph.op("RotaryEmbedding", x, first, rotary.cos, rotary.sin, domain=FUSED, num_heads=count)


def _repeat(graph: Graph, x: str, heads: Heads) -> str:
    """Each key head as often as query heads share it: a b becomes a a b b."""
    times = heads.query // heads.key
    split = graph.op("Reshape", x, graph.integers(0, 0, heads.key, 1, heads.dims))
    tiled = graph.op("Tile", split, graph.integers(1, 1, 1, times, 1))
    return graph.op("Reshape", tiled, graph.integers(0, 0, heads.query * heads.dims))


def _seen(graph: Graph) -> str:
    """How many tokens of each row are seen by the others, int32 [rows]; "" for all."""
    if graph.mixed:
        return packed.LENGTHS.name
    return MARKS.name if graph.mark == "seen" else ""


def _attributes(heads: Heads) -> dict[str, Any]:
    scale = {} if heads.scale is None else {"scale": heads.scale}
    return {"num_heads": heads.query, **scale}
