"""Gemma 3 (arXiv 2503.19786) and EmbeddingGemma (arXiv 2509.20354): norms before and after each part, local layers.

Embeddings times the root of the width, norms that scale by 1 + weight, a norm on each query and key head, and layers
that see a window between layers that see everything, each kind with a rotation of its own.
Reference: transformers, models/gemma3/modeling_gemma3.py.
"""

import math
from dataclasses import replace
from typing import ClassVar

import msgspec

from vecmill.graph.attention import Heads
from vecmill.graph.families.bert import Size
from vecmill.graph.families.llama import (
    GLOBAL,
    LOCAL,
    PREFIXES,
    WORDS,
    Decoder,
    Layer,
    View,
    attend,
    check_decoder,
    feed_forward,
    view,
)
from vecmill.graph.ops import Graph, embedding
from vecmill.graph.rope import Rope, rotary
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

__all__ = ["PREFIXES", "WORDS", "states"]


class Config(Decoder, kw_only=True):
    """What this graph reads of config.json; defaults are those of transformers' Gemma3TextConfig.

    Newer files have a rotation by kind of layer in `rope_parameters`, older ones `rope_theta` and `rope_scaling` for
    global layers and `rope_local_base_freq` for local ones.
    """

    num_key_value_heads: Size | None = 4
    head_dim: Size | None = 256
    hidden_act: str = msgspec.field(default="gelu_pytorch_tanh", name="hidden_activation")
    query_pre_attn_scalar: float = 256
    attention_bias: bool = False
    use_bidirectional_attention: bool | None = False
    sliding_window: Size = 4096
    sliding_window_pattern: Size = 6
    rope_parameters: dict[str, Rope | None] | None = None
    rope_scaling: Rope | None = None
    rope_theta: float = 1_000_000.0
    rope_local_base_freq: float = 10_000.0

    head_norms: ClassVar[bool] = True
    offset: ClassVar[float] = 1.0

    @property
    def heads(self) -> Heads:
        """How the width is divided; scores have a scale of their own."""
        causal = self.is_causal and not self.use_bidirectional_attention
        return replace(super().heads, scale=self.query_pre_attn_scalar**-0.5, causal=causal)

    @property
    def biases(self) -> frozenset[str]:
        """All of attention or nothing."""
        return frozenset({"projections", "mix"} if self.attention_bias else ())

    @property
    def kinds(self) -> list[str]:
        """Which attention each layer has: the last of `sliding_window_pattern` layers is global."""
        turns = range(1, self.num_hidden_layers + 1)
        pattern = [LOCAL if turn % self.sliding_window_pattern else GLOBAL for turn in turns]
        return pattern if self.layer_types is None else [*self.layer_types]

    def window(self, layer: int) -> int | None:
        """None in global layers; where tokens see both sides, half of the window is on each."""
        if self.kinds[layer] == GLOBAL:
            return None
        # `is_causal: false` beside it makes transformers count the last token of the window in.
        half = self.sliding_window // 2 + (not self.is_causal)
        return half if self.use_bidirectional_attention else self.sliding_window


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check_decoder(spec)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    width = config.hidden_size

    x = embedding(graph, weights.array(WORDS, config.vocab_size, width))
    x = graph.op("Mul", x, graph.number(math.sqrt(width)))
    views = sight(graph, spec, config)
    for number, kind in enumerate(config.kinds):
        tensors = Layer(weights, f"layers.{number}.", config)
        x = layer(graph, x, config, tensors, views[kind], graph.pooled if number == len(config.kinds) - 1 else None)
    return Layer(weights, "", config).normed(graph, x, "norm")


def sight(graph: Graph, spec: ModelSpec, config: Config) -> dict[str, View]:
    """What layers of each kind see."""
    ropes = config.rope_parameters or {}
    described = {
        GLOBAL: (config.rope_theta, config.rope_scaling or ropes.get(GLOBAL)),
        LOCAL: (config.rope_local_base_freq, ropes.get(LOCAL)),
    }
    views = {}
    for number, kind in enumerate(config.kinds):
        if kind not in views:
            turn = rotary(graph, spec, config.heads.dims, *described[kind])
            views[kind] = view(graph, config.heads, turn, config.window(number))
    return views


def layer(graph: Graph, x: str, config: Config, tensors: Layer, seen: View, only: int | None) -> str:
    """Attention, then a gated network, each on the norm of the states, normalised again and added to them."""
    mixed, x = attend(graph, x, config, tensors, seen, only)
    x = graph.op("Add", x, tensors.normed(graph, mixed, "post_attention_layernorm"))
    fed = feed_forward(graph, tensors.normed(graph, x, "pre_feedforward_layernorm"), config, tensors)
    return graph.op("Add", x, tensors.normed(graph, fed, "post_feedforward_layernorm"))
