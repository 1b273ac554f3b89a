"""BERT (Devlin et al., arXiv 1810.04805), post-norm encoder with absolute positions.

Reference: transformers, models/bert/modeling_bert.py.
"""

from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.attention import attention, equal_heads
from vecmill.graph.ops import FUSED, INPUT, Graph, activation, add_norm, linear
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "bert.", "model.", "0.auto_model.")

UNSUPPORTED = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}
"""Settings that change the numbers, with the values that this graph gives."""

Size = Annotated[int, msgspec.Meta(ge=1)]


class Config(msgspec.Struct):
    """What this graph reads of config.json; defaults are those of transformers' BertConfig."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    max_position_embeddings: Size
    num_attention_heads: Size
    num_hidden_layers: Annotated[int, msgspec.Meta(ge=0)]
    type_vocab_size: Size = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size].

    Raises:
        UnsupportedModel: A setting asks for another network.
        MissingFile: A tensor is absent.
        CorruptFile: A tensor has another shape than the config says.
        msgspec.ValidationError: A key of the config is absent or of another type.
    """
    _check(spec)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, "embeddings.word_embeddings.weight")
    x = embeddings(graph, config, weights)
    for number in range(config.num_hidden_layers):
        x = layer(graph, x, config, Layer(weights, f"encoder.layer.{number}.", config.hidden_size))
    return x


class Layer:
    """The tensors of one encoder layer by their short names."""

    def __init__(self, weights: Weights, prefix: str, width: int) -> None:
        self._weights = weights
        self._prefix = prefix
        self._width = width

    def linear(self, name: str, out: int, into: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weight [out, into] and bias [out]."""
        at = self._prefix + name
        return self._weights.array(f"{at}.weight", out, into), self._weights.array(f"{at}.bias", out)

    def norm(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Scale and shift of a LayerNorm."""
        return norm(self._weights, self._prefix + name, self._width)


def embeddings(graph: Graph, config: Config, weights: Weights) -> str:
    """LayerNorm(word + position + type), the type being 0 throughout and so folded into the positions."""
    width = config.hidden_size
    words = weights.array("embeddings.word_embeddings.weight", config.vocab_size, width)
    positions = weights.array("embeddings.position_embeddings.weight", config.max_position_embeddings, width)
    types = weights.array("embeddings.token_type_embeddings.weight", config.type_vocab_size, width)
    scale, shift = norm(weights, "embeddings.LayerNorm", width)
    tables = [graph.weight(words), graph.weight(positions + types[0]), "", graph.weight(scale), graph.weight(shift)]
    epsilon = config.layer_norm_eps
    return graph.op("EmbedLayerNormalization", INPUT, "", *tables, domain=FUSED, outputs=2, epsilon=epsilon)


def layer(graph: Graph, x: str, config: Config, tensors: Layer) -> str:
    """Attention, then a feed-forward network, each with its residual and norm."""
    width, inner = config.hidden_size, config.intermediate_size
    epsilon = config.layer_norm_eps

    query, key, value = (tensors.linear(f"attention.self.{name}", width, width) for name in ("query", "key", "value"))
    context = attention(graph, x, (query, key, value), equal_heads(config.num_attention_heads, width))
    weight, bias = tensors.linear("attention.output.dense", width, width)
    x = add_norm(graph, linear(graph, context, weight), x, bias, tensors.norm("attention.output.LayerNorm"), epsilon)

    weight, bias = tensors.linear("intermediate.dense", inner, width)
    hidden = activation(graph, linear(graph, x, weight), bias, config.hidden_act)
    weight, bias = tensors.linear("output.dense", width, inner)
    return add_norm(graph, linear(graph, hidden, weight), x, bias, tensors.norm("output.LayerNorm"), epsilon)


def norm(weights: Weights, name: str, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and shift of a LayerNorm; checkpoints converted from TensorFlow call them gamma and beta."""
    scale, shift = ("gamma", "beta") if f"{name}.gamma" in weights else ("weight", "bias")
    return weights.array(f"{name}.{scale}", width), weights.array(f"{name}.{shift}", width)


def _check(spec: ModelSpec) -> None:
    for key, allowed in UNSUPPORTED.items():
        value = spec.config.get(key)
        if value not in allowed:
            raise UnsupportedModel(f"{spec.transformer / 'config.json'}: {key} = {value!r} is not supported for BERT")
