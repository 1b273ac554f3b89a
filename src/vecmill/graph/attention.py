"""Self-attention in the variants that families need, and what goes into it: rotary tables, biases, groups of heads.

All rows of a batch have one length, so there is no padding and no padding mask. A bias is float32 [1, heads or 1,
length, length] and is added to the scores.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.graph.ops import FUSED, Graph, linear

Linear = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""Weight [out, in] and bias [out] of a linear layer, as torch stores them."""

MASKED = float(np.finfo(np.float32).min)


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
    """

    query: int
    key: int
    dims: int
    scale: float | None = None
    causal: bool = False


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
    if rotary is None and norms is None and heads.query == heads.key:
        return _fused(graph, x, projections, heads, bias)
    query, key, value = _project(graph, x, projections, heads)
    if norms is not None:
        query = _head_norm(graph, query, norms[0], heads.query, heads.dims, epsilon)
        key = _head_norm(graph, key, norms[1], heads.key, heads.dims, epsilon)
    if rotary is not None:
        query, key = _rotate(graph, query, rotary, heads.query), _rotate(graph, key, rotary, heads.key)
    if heads.query != heads.key:
        key, value = _repeat(graph, key, heads), _repeat(graph, value, heads)
    return score(graph, query, key, value, heads, bias=bias)


def score(graph: Graph, query: str, key: str, value: str, heads: Heads, *, bias: str = "") -> str:
    """softmax(Q K^T scale + bias) V, all of [rows, length, query heads x dims]."""
    inputs = [query, key, value, *(["", "", bias] if bias else [])]
    return graph.op("MultiHeadAttention", *inputs, domain=FUSED, outputs=1, **_attributes(heads))


def rotary_tables(graph: Graph, positions: int, frequencies: NDArray[np.float64], factor: float = 1.0) -> Rotary:
    """Tables of cosines and sines for positions 0 to `positions`.

    Args:
        graph: Where the tables go.
        positions: How many.
        frequencies: Angle of a step, [head dims / 2].
        factor: What the tables are multiplied by (attention scaling of long-context variants).
    """
    angles = np.outer(np.arange(positions), frequencies)
    cos, sin = ((table * factor).astype(np.float32) for table in (np.cos(angles), np.sin(angles)))
    return Rotary(graph.weight(cos), graph.weight(sin))


def frequencies(dims: int, theta: float) -> NDArray[np.float64]:
    """theta^(-2i / dims), [dims / 2]."""
    steps: NDArray[np.float64] = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    return steps


def distances(graph: Graph, x: str) -> str:
    """Key position minus query position, int64 [length, length], of token states [rows, length, width]."""
    last = graph.op("Squeeze", graph.op("Shape", x, start=1, end=2))
    steps = graph.op("Range", graph.scalar(0), last, graph.scalar(1))
    return graph.op(
        "Sub", graph.op("Unsqueeze", steps, graph.integers(0)), graph.op("Unsqueeze", steps, graph.integers(1))
    )


def window_bias(graph: Graph, x: str, reach: int, *, causal: bool = False) -> str:
    """A bias that hides tokens more than `reach` away, [1, 1, length, length]; all later ones too when causal."""
    away = distances(graph, x)
    hidden = graph.op("Greater", graph.op("Abs", away), graph.scalar(reach))
    if causal:
        hidden = graph.op("Or", hidden, graph.op("Greater", away, graph.scalar(0)))
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
    weight = np.concatenate([weight.T for weight, _ in projections], axis=1)
    shift = np.concatenate([np.zeros(len(w), np.float32) if b is None else b for w, b in projections])
    sizes = [len(weight) for weight, _ in projections]
    inputs = [x, graph.weight(weight), graph.weight(shift), *(["", "", bias] if bias else [])]
    return graph.op("Attention", *inputs, domain=FUSED, outputs=1, qkv_hidden_sizes=sizes, **_attributes(heads))


def _project(graph: Graph, x: str, projections: tuple[Linear, Linear, Linear], heads: Heads) -> tuple[str, str, str]:
    """Query, key and value from one product."""
    weight = np.concatenate([weight for weight, _ in projections])
    biased = any(bias is not None for _, bias in projections)
    shift = [np.zeros(len(w), np.float32) if b is None else b for w, b in projections]
    product = linear(graph, x, weight, np.concatenate(shift) if biased else None)
    sizes = graph.integers(*(heads.dims * count for count in (heads.query, heads.key, heads.key)))
    first = graph.op("Split", product, sizes, outputs=3, axis=-1)
    return first, f"{first}_1", f"{first}_2"


def _head_norm(graph: Graph, x: str, scale: NDArray[np.float32], count: int, dims: int, epsilon: float) -> str:
    """RMSNorm of each head."""
    split = graph.op("Reshape", x, graph.integers(0, 0, count, dims))
    normed = graph.op("SimplifiedLayerNormalization", split, graph.weight(scale), axis=-1, epsilon=epsilon)
    return graph.op("Reshape", normed, graph.integers(0, 0, count * dims))


def _rotate(graph: Graph, x: str, rotary: Rotary, count: int) -> str:
    first = graph.integers(0)
    return graph.op("RotaryEmbedding", x, first, rotary.cos, rotary.sin, domain=FUSED, num_heads=count)


def _repeat(graph: Graph, x: str, heads: Heads) -> str:
    """Each key head as often as query heads share it: a b becomes a a b b."""
    times = heads.query // heads.key
    split = graph.op("Reshape", x, graph.integers(0, 0, heads.key, 1, heads.dims))
    tiled = graph.op("Tile", split, graph.integers(1, 1, 1, times, 1))
    return graph.op("Reshape", tiled, graph.integers(0, 0, heads.query * heads.dims))


def _attributes(heads: Heads) -> dict[str, Any]:
    scale = {} if heads.scale is None else {"scale": heads.scale}
    return {"num_heads": heads.query, "unidirectional": int(heads.causal), **scale}
