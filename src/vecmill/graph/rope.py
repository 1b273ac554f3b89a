"""Rotary positions as config.json describes them, in `rope_parameters` (transformers 5) or `rope_scaling` (before).

Scalings whose tables depend on the length of the input (dynamic, longrope) are not supported.
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.attention import Rotary, frequencies, rotary_tables
from vecmill.graph.ops import Graph
from vecmill.model.spec import ModelSpec

Steps = NDArray[np.float32]
TURN = 2 * math.pi


class Rope(msgspec.Struct):
    """How positions turn; `type` is what `rope_type` was called before, `mixed_b` is of Alibaba's NTK scaling."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    factor: float = 1.0
    partial_rotary_factor: float = 1.0
    mixed_b: float | None = None
    original_max_position_embeddings: float = 0.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


def rotary(graph: Graph, spec: ModelSpec, dims: int, theta: float, rope: Rope | None = None) -> Rotary:
    """Tables for as many positions as an input can have.

    Args:
        graph: Where the tables go.
        spec: The model, for its longest input.
        dims: Numbers of a head.
        theta: Base where `rope` states none.
        rope: What config.json says; None is the plain rotation.

    Raises:
        UnsupportedModel: The scaling is unknown.
    """
    rope = rope or Rope()
    kind = rope.rope_type or rope.type or "default"
    place = spec.transformer / "config.json"
    if kind not in SCALINGS:
        raise UnsupportedModel(f"{place}: rope_type = {kind!r} is not supported; supported: {', '.join(SCALINGS)}")
    limits = (("mixed_b", rope.mixed_b, None), ("partial_rotary_factor", rope.partial_rotary_factor, 1))
    for name, value, allowed in limits:
        if value != allowed:
            raise UnsupportedModel(f"{place}: {name} = {value!r} is not supported")
    theta = rope.rope_theta or theta
    rope = msgspec.structs.replace(rope, original_max_position_embeddings=_trained_positions(spec, rope))
    steps = SCALINGS[kind](dims, theta, rope)
    return rotary_tables(graph, spec.max_tokens, steps, _sharpness(rope) if kind == "yarn" else 1.0)


def _trained_positions(spec: ModelSpec, rope: Rope) -> float:
    """The context before it was stretched; config.json itself wins over its dictionary, as in transformers."""
    stated = spec.config.get("original_max_position_embeddings") or rope.original_max_position_embeddings
    return float(stated or spec.config.get("max_position_embeddings") or spec.max_tokens)


def _plain(dims: int, theta: float, _rope: Rope) -> Steps:
    return frequencies(dims, theta)


def _linear(dims: int, theta: float, rope: Rope) -> Steps:
    """Positions closer together (Chen et al., arXiv 2306.15595)."""
    return frequencies(dims, theta) / np.float32(rope.factor)


def _ntk(dims: int, theta: float, rope: Rope) -> Steps:
    """The slowest pair turns `factor` times slower, the fastest nearly as before: https://kexue.fm/archives/9706."""
    if rope.factor <= 1:
        return frequencies(dims, theta)
    return frequencies(dims, theta * rope.factor) / np.float32(rope.factor ** (2 / dims))


def _llama3(dims: int, theta: float, rope: Rope) -> Steps:
    """Pairs that turn often in the trained context stay, those that turn seldom slow down, between them a mixture.

    Dubey et al., arXiv 2407.21783, and Llama 3.1's reference code.
    """
    steps = frequencies(dims, theta)
    turns = steps * np.float32(rope.original_max_position_embeddings / TURN)
    kept = np.clip((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0, 1)
    mixed: Steps = steps * (kept + (1 - kept) / np.float32(rope.factor))
    return mixed


def _yarn(dims: int, theta: float, rope: Rope) -> Steps:
    """As llama3, but the mixture is a ramp over the pairs (Peng et al., arXiv 2309.00071)."""

    def pair(turns: float) -> float:
        """The pair, a fraction, that turns so often in the trained context."""
        return dims * math.log(rope.original_max_position_embeddings / (turns * TURN)) / (2 * math.log(theta))

    start, end = pair(rope.beta_fast or 32), pair(rope.beta_slow or 1)
    if rope.truncate:
        start, end = math.floor(start), math.ceil(end)
    start, end = max(start, 0), min(end, dims - 1)
    ramp = (np.arange(dims // 2, dtype=np.float32) - start) / (end - start or 0.001)
    slowed = np.clip(ramp, 0, 1)
    steps = frequencies(dims, theta)
    mixed: Steps = steps * (1 - slowed) + steps / np.float32(rope.factor) * slowed
    return mixed


def _sharpness(rope: Rope) -> float:
    """What yarn multiplies cosines and sines by, so that scores are sharper."""

    def of(weight: float) -> float:
        return 1 + 0.1 * weight * math.log(max(rope.factor, 1))

    if rope.attention_factor is not None:
        return rope.attention_factor
    return of(rope.mscale) / of(rope.mscale_all_dim) if rope.mscale and rope.mscale_all_dim else of(1)


SCALINGS: dict[str, Callable[[int, float, Rope], Steps]] = {
    "default": _plain,
    "linear": _linear,
    "ntk": _ntk,
    "llama3": _llama3,
    "yarn": _yarn,
}
