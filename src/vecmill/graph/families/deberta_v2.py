"""DeBERTa v2 and v3 (He et al., arXiv 2006.03654 and 2111.09543): BERT whose attention also weighs content by distance.

The score of a pair of tokens is that of their contents, plus that of the query's content with the distance (c2p), plus
that of the key's content with the distance (p2c). Reference: transformers, models/deberta_v2/modeling_deberta_v2.py.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.activations import activation, plain_activation
from vecmill.graph.attention import one_token
from vecmill.graph.disentangled import Distances, c2p, p2c, product
from vecmill.graph.embeddings import segments
from vecmill.graph.families import bert
from vecmill.graph.families.bert import WORDS, Layer, Names, Size, norm
from vecmill.graph.ops import INPUT, Graph, add_norm, embedding, linear
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "deberta.", "model.", "0.auto_model.")

NAMES = Names(query="attention.self.query_proj", key="attention.self.key_proj", value="attention.self.value_proj")

KINDS = ("c2p", "p2c")

Count = Annotated[int, msgspec.Meta(ge=0)]


class Config(bert.Config):
    """What this graph reads of config.json; defaults are those of transformers' DebertaV2Config."""

    type_vocab_size: Count = 0
    layer_norm_eps: float = 1e-7
    embedding_size: Size | None = None
    attention_head_size: Size | None = None
    position_biased_input: bool = True
    relative_attention: bool = False
    max_relative_positions: int = -1
    position_buckets: int = -1
    pos_att_type: str | list[str] | None = None
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    conv_kernel_size: Count = 0
    conv_groups: Size = 1
    conv_act: str = "tanh"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which of `KINDS` the scores have."""
        stated = self.pos_att_type or []
        named = [name.strip() for name in (stated.lower().split("|") if isinstance(stated, str) else stated)]
        return tuple(kind for kind in KINDS if kind in named)

    @property
    def reach(self) -> int:
        """The distance that positions are told apart to."""
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    @property
    def span(self) -> int:
        """Rows of the table of distances, on each side."""
        return self.position_buckets if self.position_buckets > 0 else self.reach


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    config = msgspec.convert(spec.config, Config)
    check(spec, config)
    weights = weights.strip(PREFIXES, WORDS)
    x = first = embeddings(graph, config, weights)
    known = positions(graph, config, weights, spec.max_tokens) if config.relative_attention else None
    for number in range(config.num_hidden_layers):
        last = number == config.num_hidden_layers - 1 and graph.pooled == 0 and not config.conv_kernel_size
        tensors = Layer(weights, f"encoder.layer.{number}.", config.hidden_size, NAMES)
        x = layer(graph, x, config, tensors, known, first_only=last)
        if not number and config.conv_kernel_size:
            x = convolve(graph, first, x, config, weights)
    return x


def check(spec: ModelSpec, config: Config) -> None:
    """Refuse sizes that make no network.

    Raises:
        UnsupportedModel: Heads do not fill the width, or a convolution or buckets of distances are undefined.
    """
    place = spec.transformer / "config.json"
    size = config.attention_head_size or config.hidden_size // config.num_attention_heads
    if size * config.num_attention_heads != config.hidden_size:
        raise UnsupportedModel(f"{place}: {config.num_attention_heads} heads of {size} numbers are not the hidden_size")
    kernel = config.conv_kernel_size
    if kernel and not kernel % 2:
        raise UnsupportedModel(f"{place}: conv_kernel_size = {kernel} would change the length; it has to be odd")
    buckets, reach = config.position_buckets, config.reach
    if config.relative_attention and buckets > 0 and not 1 <= buckets // 2 < reach - 1:
        wanted = f"a reach of {reach} tokens takes 2 to {max(2, 2 * reach - 3)}"
        raise UnsupportedModel(f"{place}: position_buckets = {buckets} is not supported: {wanted}")


def embeddings(graph: Graph, config: Config, weights: Weights) -> str:
    """LayerNorm(projection of word + position + type), of which all but the word may be absent."""
    width = config.embedding_size or config.hidden_size
    x = embedding(graph, weights.array(WORDS, config.vocab_size, width))
    if config.position_biased_input:
        table = weights.array("embeddings.position_embeddings.weight", config.max_position_embeddings, width)
        length = graph.op("Shape", INPUT, start=1, end=2)
        x = graph.op("Add", x, graph.op("Slice", graph.weight(table), graph.integers(0), length, graph.integers(0)))
    if config.type_vocab_size:
        kinds = weights.array("embeddings.token_type_embeddings.weight", config.type_vocab_size, width)
        paired = graph.mark == "second"
        x = graph.op(
            "Add", x, graph.op("Gather", graph.weight(kinds), segments(graph)) if paired else graph.weight(kinds[0])
        )
    if width != config.hidden_size:
        x = linear(graph, x, weights.array("embeddings.embed_proj.weight", config.hidden_size, width))
    scales = [graph.weight(array) for array in norm(weights, "embeddings.LayerNorm", config.hidden_size)]
    return graph.op("LayerNormalization", x, *scales, axis=-1, epsilon=config.layer_norm_eps)


@dataclass(frozen=True, slots=True)
class Positions:
    """What layers know of distances: embeddings, float32 [2 span, width], and which of them an input needs."""

    table: NDArray[np.float32]
    distances: Distances


def positions(graph: Graph, config: Config, weights: Weights, longest: int) -> Positions:
    """Of a checkpoint, for inputs of up to `longest` tokens."""
    table = weights.array("encoder.rel_embeddings.weight", 2 * config.span, config.hidden_size)
    if "layer_norm" in config.norm_rel_ebd.lower():
        scale, shift = norm(weights, "encoder.LayerNorm", config.hidden_size)
        centred = table - table.mean(axis=1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.float32(config.layer_norm_eps))
        table = centred / spread * scale + shift
    farthest = max(config.max_position_embeddings, longest)
    rows = table_rows(np.arange(-farthest, farthest + 1), config)
    return Positions(table, Distances.of(graph, rows, config.num_attention_heads))


def table_rows(distances: NDArray[np.int64], config: Config) -> NDArray[np.int64]:
    """The row of the table for each distance; with buckets, far distances share one, by their logarithm.

    In float32, as the checkpoints were trained.
    """
    buckets = distances
    if config.position_buckets > 0:
        middle = config.position_buckets // 2
        away = np.maximum(np.abs(distances), middle - 1).astype(np.float32)
        widest = np.log(np.float32((config.reach - 1) / middle), dtype=np.float32)
        growth = np.log(away / np.float32(middle), dtype=np.float32) / widest * np.float32(middle - 1)
        far = (np.ceil(growth) + middle) * np.sign(distances)
        buckets = np.where(np.abs(distances) <= middle, distances, far).astype(np.int64)
    result: NDArray[np.int64] = np.clip(buckets + config.span, 0, 2 * config.span - 1)
    return result


def layer(graph: Graph, x: str, config: Config, tensors: Layer, known: Positions | None, *, first_only: bool) -> str:
    """Attention, then a feed-forward network, each with its residual and norm; `first_only` is of the first token."""
    width, inner, names, epsilon = config.hidden_size, config.intermediate_size, tensors.names, config.layer_norm_eps
    context = attend(graph, x, config, tensors, known, first_only=first_only)
    x = one_token(graph, x, 0) if first_only else x
    weight, shift = tensors.linear(names.mix, width, width)
    x = add_norm(graph, linear(graph, context, weight), x, shift, tensors.norm(names.mix_norm), epsilon)
    weight, shift = tensors.linear(names.up, inner, width)
    hidden = activation(graph, linear(graph, x, weight), shift, config.hidden_act)
    weight, shift = tensors.linear(names.down, width, inner)
    return add_norm(graph, linear(graph, hidden, weight), x, shift, tensors.norm(names.down_norm), epsilon)


def attend(graph: Graph, x: str, config: Config, tensors: Layer, known: Positions | None, *, first_only: bool) -> str:
    """Attention before the output projection; of the first token to all where `first_only`."""
    width, names = config.hidden_size, tensors.names
    factor = (width // config.num_attention_heads * (1 + len(config.kinds))) ** -0.5
    own = one_token(graph, x, 0) if first_only else x
    query, key, value = (
        _by_head(graph, linear(graph, given, *tensors.linear(name, width, width)), config)
        for given, name in ((own, names.query), (x, names.key), (x, names.value))
    )
    total = product(graph, query, key, factor)
    if known is not None:
        at = known.distances.of_first(graph) if first_only else known.distances
        for kind, of, content in (("c2p", c2p, query), ("p2c", p2c, key)):
            if kind in config.kinds:
                table = _projected(kind, config, tensors, known.table)
                total = graph.op("Add", total, of(graph, content, table, at, factor))
    context = graph.op("MatMul", graph.op("Softmax", total, axis=-1), value)
    return graph.op("Reshape", graph.op("Transpose", context, perm=[0, 2, 1, 3]), graph.integers(0, 0, width))


def _projected(kind: str, config: Config, tensors: Layer, table: NDArray[np.float32]) -> NDArray[np.float32]:
    """The table of distances as keys (c2p) or queries (p2c), [2 span, heads, head dims]: it knows no input."""
    shared = {"c2p": tensors.names.key, "p2c": tensors.names.query}
    own = {"c2p": "attention.self.pos_key_proj", "p2c": "attention.self.pos_query_proj"}
    name = (shared if config.share_att_key else own)[kind]
    weight, bias = tensors.linear(name, config.hidden_size, config.hidden_size)
    projected: NDArray[np.float32] = table @ weight.T + bias
    return projected.reshape(len(table), config.num_attention_heads, -1)


def _by_head(graph: Graph, x: str, config: Config) -> str:
    """[rows, length, width] to [rows, heads, length, head dims]."""
    heads = config.num_attention_heads
    split = graph.op("Reshape", x, graph.integers(0, 0, heads, config.hidden_size // heads))
    return graph.op("Transpose", split, perm=[0, 2, 1, 3])


def convolve(graph: Graph, first: str, x: str, config: Config, weights: Weights) -> str:
    """LayerNorm(x + f(convolution of the embeddings over neighbouring tokens))."""
    width, size = config.hidden_size, config.conv_kernel_size
    kernel = weights.array("encoder.conv.conv.weight", width, width // config.conv_groups, size)
    bias = weights.array("encoder.conv.conv.bias", width)
    rows = graph.op("Transpose", first, perm=[0, 2, 1])
    inputs = [rows, graph.weight(kernel), graph.weight(bias)]
    pad = (size - 1) // 2
    mixed = graph.op("Conv", *inputs, kernel_shape=[size], pads=[pad, pad], group=config.conv_groups)
    out = plain_activation(graph, graph.op("Transpose", mixed, perm=[0, 2, 1]), config.conv_act)
    return add_norm(graph, out, x, None, norm(weights, "encoder.conv.LayerNorm", width), config.layer_norm_eps)
