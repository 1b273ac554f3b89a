"""Feed-forward networks with a gate (Shazeer, arXiv 2002.05202), and the post-norm encoder that has them.

nomic_bert, new and jina_bert are this encoder under different names; they differ in how attention knows positions.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from vecmill.graph.activations import plain_activation
from vecmill.graph.attention import Heads, Linear, Rotary, attention, equal_heads
from vecmill.graph.embeddings import segments
from vecmill.graph.families.bert import WORDS, Size
from vecmill.graph.ops import Graph, Norm, add_norm, embedding, linear
from vecmill.model.weights import Weights

Count = Annotated[int, msgspec.Meta(ge=0)]


class Sizes(msgspec.Struct, kw_only=True):
    """The sizes of an encoder, which have no defaults."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_hidden_layers: Size

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"{self.num_attention_heads} heads do not divide a hidden_size of {self.hidden_size}")

    @property
    def heads(self) -> Heads:
        """How the width is divided."""
        return equal_heads(self.num_attention_heads, self.hidden_size)


class Config(Sizes, kw_only=True):
    """What the post-norm encoder takes from config.json."""

    type_vocab_size: Count = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a checkpoint calls its parts, in the order of their use, and which of them have a bias.

    Attributes:
        embedding_norm: The norm of the embeddings.
        place: What comes before the number of a layer.
        projections: Query, key and value; or one layer that holds the three.
        mix: After attention, as `mix_norm`.
        mix_bias: Whether it and the projections have a bias.
        feed: The gate and what it multiplies; or one layer that holds both.
        feed_bias: Whether these have a bias.
        gate_last: Whether that one layer holds the gate last.
        down: After the gate, as `down_norm`.
        down_bias: Whether it has a bias.
    """

    embedding_norm: str = "embeddings.LayerNorm"
    place: str
    projections: tuple[str, ...]
    mix: str
    mix_norm: str
    mix_bias: bool = True
    feed: tuple[str, ...]
    feed_bias: bool = False
    gate_last: bool = False
    down: str
    down_norm: str
    down_bias: bool = True


TRANSFORMERS = Names(
    place="layers",
    projections=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    mix="self_attn.o_proj",
    mix_norm="post_attention_layernorm",
    feed=("mlp.gate_proj", "mlp.up_proj"),
    down="mlp.down_proj",
    down_norm="post_mlp_layernorm",
)
"""The names that transformers' own classes give to every such encoder."""


class Layer:
    """The tensors of one layer by their short names."""

    def __init__(self, weights: Weights, prefix: str, sizes: Sizes) -> None:
        self._weights = weights
        self._prefix = prefix
        self._sizes = sizes

    def linear(self, name: str, out: int, into: int, *, bias: bool = True) -> Linear:
        """Weight [out, into] and bias [out]."""
        at = self._prefix + name
        weight = self._weights.array(f"{at}.weight", out, into)
        return weight, self._weights.array(f"{at}.bias", out) if bias else None

    def split(self, names: tuple[str, ...], parts: int, out: int, *, bias: bool = True) -> list[Linear]:
        """Linear layers of `out` rows on the states: as many layers, or one that holds them one after the other."""
        width = self._sizes.hidden_size
        if len(names) == parts:
            return [self.linear(name, out, width, bias=bias) for name in names]
        weight, shift = self.linear(names[0], parts * out, width, bias=bias)
        shifts = [None] * parts if shift is None else np.split(shift, parts)
        return list(zip(np.split(weight, parts), shifts, strict=True))

    def norm(self, name: str, *, bias: bool = True) -> Norm:
        """Scale and shift of a LayerNorm."""
        return norm(self._weights, self._prefix + name, self._sizes.hidden_size, bias=bias)


def norm(weights: Weights, name: str, width: int, *, bias: bool = True) -> Norm:
    """Scale and shift of a LayerNorm."""
    return weights.array(f"{name}.weight", width), weights.array(f"{name}.bias", width) if bias else None


def has_layers(weights: Weights, names: Names) -> bool:
    """Whether the checkpoint has layers where these names have them."""
    return any(name.startswith(f"{names.place}.") for name in weights)


def embeddings(graph: Graph, config: Config, weights: Weights, names: Names) -> str:
    """LayerNorm(word + type), the type being 0 throughout where texts do not come in pairs."""
    x = embedding(graph, weights.array(WORDS, config.vocab_size, config.hidden_size))
    if config.type_vocab_size:
        types = weights.array("embeddings.token_type_embeddings.weight", config.type_vocab_size, config.hidden_size)
        paired = graph.mark == "second"
        kinds = graph.op("Gather", graph.weight(types), segments(graph)) if paired else graph.weight(types[0])
        x = graph.op("Add", x, kinds)
    return layer_norm(graph, x, norm(weights, names.embedding_norm, config.hidden_size), config.layer_norm_eps)


def encoder(graph: Graph, config: Config, weights: Weights, names: Names, *, rotary: Rotary) -> str:
    """Embeddings and all layers, with rotary positions."""
    x = embeddings(graph, config, weights, names)
    for number in range(config.num_hidden_layers):
        x = layer(graph, x, config, Layer(weights, f"{names.place}.{number}.", config), names, rotary=rotary)
    return x


def layer(
    graph: Graph, x: str, config: Config, tensors: Layer, names: Names, *, rotary: Rotary | None = None, bias: str = ""
) -> str:
    """Attention, then a gated feed-forward network, each with its residual and norm.

    Args:
        graph: Where to emit.
        x: [rows, length, width].
        config: The sizes.
        tensors: Of this layer.
        names: What they are called.
        rotary: Position tables; None for families that have positions elsewhere.
        bias: Added to the scores; "" for none.
    """
    width, epsilon = config.hidden_size, config.layer_norm_eps

    query, key, value = tensors.split(names.projections, 3, width, bias=names.mix_bias)
    context = attention(graph, x, (query, key, value), config.heads, rotary=rotary, bias=bias)
    weight, shift = tensors.linear(names.mix, width, width, bias=names.mix_bias)
    x = add_norm(graph, linear(graph, context, weight), x, shift, tensors.norm(names.mix_norm), epsilon)
    return feed_forward(graph, x, config, tensors, names)


def feed_forward(graph: Graph, x: str, config: Config, tensors: Layer, names: Names) -> str:
    """LayerNorm(x + down(f(gate x) * up x))."""
    inner, epsilon = config.intermediate_size, config.layer_norm_eps
    gate, up = tensors.split(names.feed, 2, inner, bias=names.feed_bias)
    if names.gate_last:
        gate, up = up, gate
    hidden = gated(graph, x, gate, up, config.hidden_act)
    weight, shift = tensors.linear(names.down, config.hidden_size, inner, bias=names.down_bias)
    return add_norm(graph, linear(graph, hidden, weight), x, shift, tensors.norm(names.down_norm), epsilon)


def gated(graph: Graph, x: str, gate: Linear, up: Linear, kind: str) -> str:
    """f(gate x) * up x, with both layers in one product; f is an activation as `plain_activation` names it."""
    shift = None if gate[1] is None or up[1] is None else np.concatenate([gate[1], up[1]])
    product = linear(graph, x, np.concatenate([gate[0], up[0]]), shift)
    first = graph.op("Split", product, outputs=2, axis=-1, num_outputs=2)
    return graph.op("Mul", plain_activation(graph, first, kind), f"{first}_1")


def layer_norm(graph: Graph, x: str, norm: Norm, epsilon: float) -> str:
    """LayerNorm(x), with or without a shift."""
    weights = [graph.weight(array) for array in norm if array is not None]
    return graph.op("LayerNormalization", x, *weights, axis=-1, epsilon=epsilon)
