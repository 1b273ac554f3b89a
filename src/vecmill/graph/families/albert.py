"""ALBERT (Lan et al., arXiv 1909.11942): BERT with narrow embeddings and layers that share their weights.

Reference: transformers, models/albert/modeling_albert.py.
"""

from collections import Counter
from functools import partial

import msgspec

from vecmill.graph.families import bert
from vecmill.graph.families.bert import WORDS, Layer, Names, Size, check, dense, embeddings, layer
from vecmill.graph.ops import Graph, linear
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "albert.", "model.", "0.auto_model.")

UNSUPPORTED = {"position_embedding_type": ("absolute", None)}

NAMES = Names(
    query="attention.query",
    key="attention.key",
    value="attention.value",
    mix="attention.dense",
    mix_norm="attention.LayerNorm",
    up="ffn",
    down="ffn_output",
    down_norm="full_layer_layer_norm",
)


class Config(bert.Config):
    """What this graph reads of config.json; defaults are those of transformers' AlbertConfig."""

    embedding_size: Size = 128
    hidden_act: str = "gelu_new"
    num_hidden_groups: Size = 1
    inner_group_num: Size = 1


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check(spec, UNSUPPORTED)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    narrow, wide = config.embedding_size, config.hidden_size
    x = embeddings(graph, config, weights, width=narrow)
    x = linear(graph, x, *dense(weights, "encoder.embedding_hidden_mapping_in", wide, narrow))
    for number, times in shares(config.num_hidden_layers, config.num_hidden_groups).items():
        prefix = f"encoder.albert_layer_groups.{number}.albert_layers."
        x = graph.repeat(x, times, partial(group, graph, config=config, weights=weights, prefix=prefix))
    return x


def shares(layers: int, groups: int) -> Counter[int]:
    """How many layers in a row use the weights of each group; rounded as transformers rounds."""
    return Counter(int(number / (layers / groups)) for number in range(layers))


def group(graph: Graph, x: str, *, config: Config, weights: Weights, prefix: str) -> str:
    """The layers of a group, in order."""
    for inner in range(config.inner_group_num):
        x = layer(graph, x, config, Layer(weights, f"{prefix}{inner}.", config.hidden_size, NAMES))
    return x
