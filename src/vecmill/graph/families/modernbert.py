"""ModernBERT (Warner et al., arXiv 2412.13663): pre-norm, rotary positions, GeGLU, attention local in most layers.

Reference: transformers, models/modernbert/modeling_modernbert.py.
"""

from typing import Literal, NamedTuple

import msgspec

from vecmill.graph.attention import Rotary, attention, window_bias
from vecmill.graph.families.bert import Size
from vecmill.graph.gated import Layer, Sizes, gated, layer_norm, norm
from vecmill.graph.ops import INT32, MARKS, Graph, embedding, from_mark, linear
from vecmill.graph.rope import Rope, rotary
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

WORDS = "embeddings.tok_embeddings.weight"
PREFIXES = ("", "model.", "0.auto_model.")

GLOBAL, LOCAL = "full_attention", "sliding_attention"


class Config(Sizes, kw_only=True):
    """What this graph reads of config.json; defaults are those of transformers' ModernBertConfig.

    Older files have `global_attn_every_n_layers` and two `..._rope_theta` where newer ones have `layer_types` and
    `rope_parameters`.
    """

    hidden_activation: str = "gelu"
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    local_attention: Size = 128
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None
    global_attn_every_n_layers: Size = 3
    rope_parameters: dict[str, Rope | None] | None = None
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer_types is not None and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(f"layer_types names {len(self.layer_types)} layers of {self.num_hidden_layers}")

    def kinds(self) -> list[str]:
        """Which attention each layer has."""
        if self.layer_types is not None:
            return [*self.layer_types]
        every = self.global_attn_every_n_layers
        return [LOCAL if number % every else GLOBAL for number in range(self.num_hidden_layers)]


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    width, epsilon = config.hidden_size, config.norm_eps

    x = embedding(graph, weights.array(WORDS, config.vocab_size, width))
    x = layer_norm(graph, x, norm(weights, "embeddings.norm", width, bias=config.norm_bias), epsilon)
    sights = {kind: sight(graph, x, spec, config, kind) for kind in dict.fromkeys(config.kinds())}
    for number, kind in enumerate(config.kinds()):
        tensors = Layer(weights, f"layers.{number}.", config)
        normed = layer_norm(graph, x, tensors.norm("attn_norm", bias=config.norm_bias), epsilon) if number else x
        x = graph.op("Add", x, attend(graph, normed, config, tensors, sights[kind]))
        normed = layer_norm(graph, x, tensors.norm("mlp_norm", bias=config.norm_bias), epsilon)
        x = graph.op("Add", x, feed_forward(graph, normed, config, tensors))
    return layer_norm(graph, x, norm(weights, "final_norm", width, bias=config.norm_bias), epsilon)


class Sight(NamedTuple):
    """How layers of a kind see: how positions turn, what hides tokens that are too far away, and who sees any at all.

    `sighted` is 1.0 for a token that sees another, float32 [rows, length, 1]; "" where all do.
    """

    rotary: Rotary
    bias: str
    sighted: str


def sight(graph: Graph, x: str, spec: ModelSpec, config: Config, kind: str) -> Sight:
    """What layers of a kind share."""
    theta = config.global_rope_theta if kind == GLOBAL else config.local_rope_theta
    turn = rotary(graph, spec, config.heads.dims, theta, (config.rope_parameters or {}).get(kind))
    if kind == GLOBAL:
        return Sight(turn, "", "")
    reach = config.local_attention // 2
    return Sight(turn, window_bias(graph, x, reach), sighted(graph, x, reach) if graph.mark == "seen" else "")


def sighted(graph: Graph, x: str, reach: int) -> str:
    """Whether a token sees any: not one that is more than `reach` after the last that is seen. Torch gives it zero."""
    nearest = graph.op("Add", MARKS.name, graph.op("Cast", graph.scalar(reach), to=INT32))
    blind = graph.op("Unsqueeze", from_mark(graph, x, nearest), graph.integers(-1))
    return graph.op("Where", blind, graph.number(0.0), graph.number(1.0))


def attend(graph: Graph, x: str, config: Config, tensors: Layer, sees: Sight) -> str:
    """Attention with its output projection."""
    width = config.hidden_size
    query, key, value = tensors.split(("attn.Wqkv",), 3, width, bias=config.attention_bias)
    context = attention(graph, x, (query, key, value), config.heads, rotary=sees.rotary, bias=sees.bias)
    if sees.sighted:
        context = graph.op("Mul", context, sees.sighted)
    return linear(graph, context, *tensors.linear("attn.Wo", width, width, bias=config.attention_bias))


def feed_forward(graph: Graph, x: str, config: Config, tensors: Layer) -> str:
    """down(f(gate x) * up x)."""
    width, inner = config.hidden_size, config.intermediate_size
    gate, up = tensors.split(("mlp.Wi",), 2, inner, bias=config.mlp_bias)
    hidden = gated(graph, x, gate, up, config.hidden_activation)
    return linear(graph, hidden, *tensors.linear("mlp.Wo", width, inner, bias=config.mlp_bias))
