"""Llama (Touvron et al., arXiv 2302.13971) and Mistral (Jiang et al., arXiv 2310.06825): pre-norm decoders.

RMSNorm, rotary positions, grouped queries, a gated feed-forward network. Qwen2 and Qwen3 are the same decoder with
other settings; Gemma 3 shares its parts. Where config.json says `is_causal: false`, every token sees every other.
References: transformers, models/llama/modeling_llama.py and models/mistral/modeling_mistral.py.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.attention import Heads, Linear, Rotary, attention, one_token, window_bias
from vecmill.graph.families.bert import Size, check
from vecmill.graph.gated import Sizes, gated
from vecmill.graph.ops import INPUT, Graph, embedding, linear, rms_norm
from vecmill.graph.rope import Rope, rotary
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

WORDS = "embed_tokens.weight"
PREFIXES = ("", "model.", "0.auto_model.")

GLOBAL, LOCAL = "full_attention", "sliding_attention"

UNSUPPORTED: dict[str, tuple[Any, ...]] = {"partial_rotary_factor": (1, None), "attn_logit_softcapping": (None,)}
"""Settings that change the numbers, with the values that this graph gives."""


class Decoder(Sizes, kw_only=True):
    """What every decoder reads of config.json."""

    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    is_causal: bool = True
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None

    head_norms: ClassVar[bool] = False
    """Whether query and key heads are normalised."""

    offset: ClassVar[float] = 0.0
    """What is added to the stored scales of norms."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads.query % self.heads.key:
            raise ValueError(f"{self.heads.query} query heads cannot share {self.heads.key} key heads")
        if self.heads.dims % 2:
            raise ValueError(f"a head of {self.heads.dims} numbers cannot be rotated in pairs")
        if self.layer_types is not None and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(f"layer_types names {len(self.layer_types)} layers of {self.num_hidden_layers}")

    @property
    def heads(self) -> Heads:
        """How the width is divided."""
        return Heads(
            query=self.num_attention_heads,
            key=self.num_key_value_heads or self.num_attention_heads,
            dims=self.head_dim or self.hidden_size // self.num_attention_heads,
            causal=self.is_causal,
        )

    @property
    def biases(self) -> frozenset[str]:
        """The parts that have a bias, of "projections", "mix" and "feed"."""
        return frozenset()

    def window(self, layer: int) -> int | None:  # noqa: ARG002 (families with windows look at it)
        """How far a layer's tokens see: so many with their own where causal, else so far to both sides; None is all."""
        return None


class Rotated(Decoder, kw_only=True):
    """A decoder with one rotation for all layers, in the spelling of transformers 5 and in the older one."""

    rope_theta: float = 10_000.0
    rope_scaling: Rope | None = None
    rope_parameters: Rope | None = None


class Llama(Rotated, kw_only=True):
    """Defaults are those of transformers' LlamaConfig."""

    attention_bias: bool = False
    mlp_bias: bool = False

    @property
    def biases(self) -> frozenset[str]:
        """Attention and network each have theirs."""
        parts = {"projections": self.attention_bias, "mix": self.attention_bias, "feed": self.mlp_bias}
        return frozenset(part for part, biased in parts.items() if biased)


class Mistral(Rotated, kw_only=True):
    """Defaults are those of transformers' MistralConfig."""

    num_key_value_heads: Size | None = 8
    sliding_window: Size | None = 4096

    def window(self, layer: int) -> int | None:  # noqa: ARG002 (all layers have one window)
        """The same in all layers."""
        return self.sliding_window


CONFIGS: dict[str, type[Rotated]] = {"llama": Llama, "mistral": Mistral}


@dataclass(frozen=True, slots=True)
class View:
    """What the tokens of a layer see of each other, and how they know their places."""

    heads: Heads
    rotary: Rotary
    bias: str = ""


def view(graph: Graph, heads: Heads, turn: Rotary, window: int | None) -> View:
    """A view as far as `Decoder.window` says."""
    if heads.causal or window is None:
        return View(replace(heads, window=window), turn)
    return View(heads, turn, window_bias(graph, INPUT, window))


class Layer:
    """The tensors of one layer by their short names."""

    def __init__(self, weights: Weights, prefix: str, config: Decoder) -> None:
        self._weights = weights
        self._prefix = prefix
        self._config = config

    def linear(self, name: str, out: int, into: int, *, bias: bool) -> Linear:
        """Weight [out, into] and bias [out]."""
        at = self._prefix + name
        weight = self._weights.array(f"{at}.weight", out, into)
        return weight, self._weights.array(f"{at}.bias", out) if bias else None

    def norm(self, name: str, size: int) -> NDArray[np.float32]:
        """Scale of an RMSNorm, [size]."""
        return self._weights.array(f"{self._prefix}{name}.weight", size) + np.float32(self._config.offset)

    def normed(self, graph: Graph, x: str, name: str) -> str:
        """RMSNorm(x)."""
        return rms_norm(graph, x, self.norm(name, self._config.hidden_size), self._config.rms_norm_eps)


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check_decoder(spec)
    return decoder(graph, spec, msgspec.convert(spec.config, CONFIGS[spec.family]), weights)


def check_decoder(spec: ModelSpec) -> None:
    """Refuse what the graph of a decoder cannot give.

    Raises:
        UnsupportedModel: A setting asks for another network, or only the repository's own code knows what sees what.
    """
    check(spec, UNSUPPORTED)
    code = [name for name in spec.config.get("auto_map") or {} if name.startswith("AutoModel")]
    if code and "is_causal" not in spec.config:
        raise UnsupportedModel(
            f"{spec.transformer / 'config.json'}: auto_map names the repository's own code for {', '.join(code)}, and "
            "no is_causal says whether it lets tokens see what comes after them"
        )


def decoder(graph: Graph, spec: ModelSpec, config: Rotated, weights: Weights) -> str:
    """Embeddings, the layers, a last norm."""
    nested = [key for key, value in (spec.config.get("rope_parameters") or {}).items() if isinstance(value, dict)]
    if nested:
        place = spec.transformer / "config.json"
        raise UnsupportedModel(f"{place}: rope_parameters of {', '.join(nested)} are not supported for {spec.family}")
    weights = weights.strip(PREFIXES, WORDS)
    turn = rotary(graph, spec, config.heads.dims, config.rope_theta, config.rope_scaling or config.rope_parameters)
    windows = [config.window(number) for number in range(config.num_hidden_layers)]
    views = {window: view(graph, config.heads, turn, window) for window in dict.fromkeys(windows)}

    x = embedding(graph, weights.array(WORDS, config.vocab_size, config.hidden_size))
    for number, window in enumerate(windows):
        tensors = Layer(weights, f"layers.{number}.", config)
        x = layer(graph, x, config, tensors, views[window], graph.pooled if number == len(windows) - 1 else None)
    return Layer(weights, "", config).normed(graph, x, "norm")


def layer(graph: Graph, x: str, config: Decoder, tensors: Layer, seen: View, only: int | None) -> str:
    """Attention, then a gated network, each on the norm of the states and added to them; see `attend` for `only`."""
    mixed, x = attend(graph, x, config, tensors, seen, only)
    x = graph.op("Add", x, mixed)
    normed = tensors.normed(graph, x, "post_attention_layernorm")
    return graph.op("Add", x, feed_forward(graph, normed, config, tensors))


def attend(graph: Graph, x: str, config: Decoder, tensors: Layer, seen: View, only: int | None) -> tuple[str, str]:
    """Attention with its norm and output projection, and the states it is for: of one token where `only` names it."""
    width, heads = config.hidden_size, seen.heads
    biased = "projections" in config.biases
    counts = {"q": heads.query, "k": heads.key, "v": heads.key}
    query, key, value = (
        tensors.linear(f"self_attn.{name}_proj", count * heads.dims, width, bias=biased)
        for name, count in counts.items()
    )
    scales = [tensors.norm(f"self_attn.{name}_norm", heads.dims) for name in "qk" if config.head_norms]
    context = attention(
        graph,
        tensors.normed(graph, x, "input_layernorm"),
        (query, key, value),
        heads,
        bias=seen.bias,
        rotary=seen.rotary,
        norms=(scales[0], scales[1]) if scales else None,
        epsilon=config.rms_norm_eps,
    )
    if only is not None:
        context, x = one_token(graph, context, only), one_token(graph, x, only)
    mix = tensors.linear("self_attn.o_proj", width, heads.query * heads.dims, bias="mix" in config.biases)
    return linear(graph, context, *mix), x


def feed_forward(graph: Graph, x: str, config: Decoder, tensors: Layer) -> str:
    """down(f(gate x) * up x)."""
    width, inner, biased = config.hidden_size, config.intermediate_size, "feed" in config.biases
    gate, up = (tensors.linear(f"mlp.{name}_proj", inner, width, bias=biased) for name in ("gate", "up"))
    return linear(
        graph, gated(graph, x, gate, up, config.hidden_act), *tensors.linear("mlp.down_proj", width, inner, bias=biased)
    )
