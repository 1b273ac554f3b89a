"""Jina embeddings v2 (Günther et al., arXiv 2310.19923): BERT with ALiBi positions and a gated network.

References: JinaBertModel of jinaai/jina-bert-implementation (model_type is `bert` there), and its variant
jinaai/jina-bert-v2-qk-post-norm, which norms queries, keys and the residual once more and whose gate comes last.
"""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.graph.attention import distances, score
from vecmill.graph.families.bert import WORDS, check
from vecmill.graph.gated import Config, Layer, Names, embeddings, feed_forward, layer, layer_norm
from vecmill.graph.ops import Graph, add_norm, linear
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "bert.", "model.", "0.auto_model.")

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "feed_forward_type": ("geglu", "reglu"),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}
"""Settings that change the numbers, with the values that this graph gives."""

ACTIVATIONS = {"geglu": "gelu", "reglu": "relu"}
"""What `feed_forward_type` applies to the gate, whatever `hidden_act` says."""

NAMES = Names(
    place="encoder.layer",
    projections=("attention.self.query", "attention.self.key", "attention.self.value"),
    mix="attention.output.dense",
    mix_norm="attention.output.LayerNorm",
    feed=("mlp.gated_layers",),
    down="mlp.wo",
    down_norm="mlp.layernorm",
)

NORMED = replace(NAMES, feed=("mlp.up_gated_layer",), gate_last=True, down="mlp.down_layer", down_norm="layer_norm_2")
"""The variant with norms of queries and keys."""


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check(spec, UNSUPPORTED)
    act = ACTIVATIONS[spec.config["feed_forward_type"]]
    config = msgspec.convert(spec.config | {"hidden_act": act}, Config)
    weights = weights.strip(PREFIXES, WORDS)
    normed = any("layer_norm_q" in name for name in weights)
    x = embeddings(graph, config, weights, NAMES)
    bias = alibi(graph, x, config.num_attention_heads)
    for number in range(config.num_hidden_layers):
        tensors = Layer(weights, f"{NAMES.place}.{number}.", config)
        if normed:
            x = normed_layer(graph, x, config, tensors, bias)
        else:
            x = layer(graph, x, config, tensors, NAMES, bias=bias)
    return x


def alibi(graph: Graph, x: str, heads: int) -> str:
    """A bias that falls with the distance of key and query, in both directions: [1, heads, length, length]."""
    away = graph.op("Cast", graph.op("Abs", distances(graph, x)), to=1)
    return graph.op("Mul", away, graph.weight(-slopes(heads)[None, :, None, None]))


def slopes(heads: int) -> NDArray[np.float32]:
    """Slope of each head (Press et al., arXiv 2108.12409): 2^(-8/n), 2^(-16/n) ... for n heads, a power of 2.

    Other numbers of heads take those of the next smaller power, then every other one of the next larger.
    """
    power = 1 << (heads.bit_length() - 1)
    first = 2.0 ** (-8 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4 / power * np.arange(1, 2 * (heads - power), 2))
    return np.concatenate([first, between]).astype(np.float32)


def normed_layer(graph: Graph, x: str, config: Config, tensors: Layer, bias: str) -> str:
    """A layer of the variant: LayerNorm of queries and keys over the whole width, and of the residual twice."""
    width, epsilon = config.hidden_size, config.layer_norm_eps

    query, key, value = (linear(graph, x, *tensors.linear(name, width, width)) for name in NORMED.projections)
    query = layer_norm(graph, query, tensors.norm("attention.self.layer_norm_q"), epsilon)
    key = layer_norm(graph, key, tensors.norm("attention.self.layer_norm_k"), epsilon)
    context = score(graph, query, key, value, config.heads, bias=bias)
    weight, shift = tensors.linear(NORMED.mix, width, width)
    mixed = add_norm(graph, linear(graph, context, weight), x, shift, tensors.norm(NORMED.mix_norm), epsilon)
    x = add_norm(graph, mixed, x, None, tensors.norm("layer_norm_1"), epsilon)
    return feed_forward(graph, x, config, tensors, NORMED)
