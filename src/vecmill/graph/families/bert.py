"""BERT (Devlin et al., arXiv 1810.04805), post-norm encoder with absolute positions.

Reference: transformers, models/bert/modeling_bert.py.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.activations import activation
from vecmill.graph.attention import attention, attention_of_one, equal_heads, one_token
from vecmill.graph.embeddings import embed_norm
from vecmill.graph.ops import Graph, add_norm, linear
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

WORDS = "embeddings.word_embeddings.weight"
PREFIXES = ("", "bert.", "model.", "0.auto_model.")

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
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
    check(spec, UNSUPPORTED)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    return encoder(graph, embeddings(graph, config, weights), config, weights)


def check(spec: ModelSpec, settings: dict[str, tuple[Any, ...]]) -> None:
    """Refuse a config.json that asks for another network than the graph is.

    Args:
        spec: The model.
        settings: Setting to the values that the graph gives; None where it may be absent.

    Raises:
        UnsupportedModel: A setting has another value.
    """
    for key, allowed in settings.items():
        value = spec.config.get(key)
        if value not in allowed:
            path = spec.transformer / "config.json"
            raise UnsupportedModel(f"{path}: {key} = {value!r} is not supported for {spec.family}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a checkpoint calls the parts of a layer, in the order of their use; the defaults are BERT's."""

    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    mix: str = "attention.output.dense"
    mix_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    down_norm: str = "output.LayerNorm"


BERT = Names()


class Layer:
    """The tensors of one encoder layer by their short names."""

    def __init__(self, weights: Weights, prefix: str, width: int, names: Names = BERT) -> None:
        self._weights = weights
        self._prefix = prefix
        self._width = width
        self.names = names

    def linear(self, name: str, out: int, into: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weight [out, into] and bias [out]."""
        return dense(self._weights, self._prefix + name, out, into)

    def norm(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Scale and shift of a LayerNorm."""
        return norm(self._weights, self._prefix + name, self._width)


def embeddings(
    graph: Graph, config: Config, weights: Weights, *, width: int | None = None, first: int = 0, types: bool = True
) -> str:
    """LayerNorm(word + position + type); where the type is 0 throughout it is folded into the positions.

    Args:
        graph: Where to emit.
        config: The sizes.
        weights: The tensors without prefix.
        width: Of the tables, where it is not the hidden size.
        first: Position of the first token.
        types: Whether the family has token types.
    """
    width = width or config.hidden_size
    words = weights.array(WORDS, config.vocab_size, width)
    positions = weights.array("embeddings.position_embeddings.weight", config.max_position_embeddings, width)[first:]
    kinds = weights.array("embeddings.token_type_embeddings.weight", config.type_vocab_size, width) if types else None
    if kinds is not None and graph.mark != "second":
        positions, kinds = positions + kinds[0], None
    scales = norm(weights, "embeddings.LayerNorm", width)
    return embed_norm(graph, words, positions, scales, config.layer_norm_eps, kinds)


def encoder(
    graph: Graph,
    x: str,
    config: Config,
    weights: Weights,
    *,
    place: str = "encoder.layer",
    names: Names = BERT,
    bias: str = "",
) -> str:
    """All layers; `bias` is added to the scores of each."""
    for number in range(config.num_hidden_layers):
        last = number == config.num_hidden_layers - 1
        tensors = Layer(weights, f"{place}.{number}.", config.hidden_size, names)
        x = layer(graph, x, config, tensors, bias=bias, only=graph.pooled if last else None)
    if not config.num_hidden_layers and graph.pooled is not None:
        return one_token(graph, x, graph.pooled)
    return x


def layer(graph: Graph, x: str, config: Config, tensors: Layer, *, bias: str = "", only: int | None = None) -> str:
    """Attention, then a feed-forward network, each with its residual and norm; of one token where `only` names it."""
    width, inner, names = config.hidden_size, config.intermediate_size, tensors.names
    epsilon = config.layer_norm_eps

    query, key, value = (tensors.linear(name, width, width) for name in (names.query, names.key, names.value))
    heads = equal_heads(config.num_attention_heads, width)
    if only is None:
        context = attention(graph, x, (query, key, value), heads, bias=bias)
    else:
        context = attention_of_one(graph, x, only, (query, key, value), heads, bias=bias)
        x = one_token(graph, x, only)
    weight, shift = tensors.linear(names.mix, width, width)
    x = add_norm(graph, linear(graph, context, weight), x, shift, tensors.norm(names.mix_norm), epsilon)

    weight, shift = tensors.linear(names.up, inner, width)
    hidden = activation(graph, linear(graph, x, weight), shift, config.hidden_act)
    weight, shift = tensors.linear(names.down, width, inner)
    return add_norm(graph, linear(graph, hidden, weight), x, shift, tensors.norm(names.down_norm), epsilon)


def dense(weights: Weights, name: str, out: int, into: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weight [out, into] and bias [out] of a linear layer."""
    return weights.array(f"{name}.weight", out, into), weights.array(f"{name}.bias", out)


def norm(weights: Weights, name: str, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and shift of a LayerNorm; checkpoints converted from TensorFlow call them gamma and beta."""
    scale, shift = ("gamma", "beta") if f"{name}.gamma" in weights else ("weight", "bias")
    return weights.array(f"{name}.{scale}", width), weights.array(f"{name}.{shift}", width)
