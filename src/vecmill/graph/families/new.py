"""Alibaba's GTE (Zhang et al., arXiv 2407.19669): post-norm encoder with rotary positions and a gated network.

`new` is the model_type of Alibaba-NLP/new-impl, `gte` that of the same network in transformers. References: NewModel of
the former, models/gte/modeling_gte.py of the latter.
"""

from dataclasses import replace

import msgspec

from vecmill.graph import gated
from vecmill.graph.families.bert import WORDS, check
from vecmill.graph.gated import TRANSFORMERS, Names, encoder, has_layers
from vecmill.graph.ops import Graph
from vecmill.graph.rope import Rope, rotary
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "new.", "gte.", "model.", "0.auto_model.")

UNSUPPORTED = {
    "position_embedding_type": ("rope", None),
    "layer_norm_type": ("layer_norm", None),
    "logn_attention_scale": (False, None),
}
"""Settings that change the numbers, with the values that this graph gives."""

THETAS = {"new": 10_000.0, "gte": 160_000.0}
"""Base of the rotation where config.json states none."""

PACKED = Names(
    place="encoder.layer",
    projections=("attention.qkv_proj",),
    mix="attention.o_proj",
    mix_norm="attn_ln",
    feed=("mlp.up_gate_proj",),
    gate_last=True,
    down="mlp.down_proj",
    down_norm="mlp_ln",
)
"""The names of NewModel, which transformers' class keeps when it saves."""

UNPACKED = replace(PACKED, projections=("attention.q_proj", "attention.k_proj", "attention.v_proj"))
"""Where `pack_qkv` is false."""


class Config(gated.Config, kw_only=True):
    """What this graph reads of config.json; defaults are those of NewConfig and of transformers' GteConfig."""

    type_vocab_size: gated.Count = 1
    pack_qkv: bool = True
    rope_theta: float | None = None
    rope_scaling: Rope | None = None
    rope_parameters: Rope | None = None


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check(spec, UNSUPPORTED)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    original = PACKED if config.pack_qkv else UNPACKED
    names = TRANSFORMERS if has_layers(weights, TRANSFORMERS) else original
    theta, rope = config.rope_theta or THETAS[spec.family], config.rope_parameters or config.rope_scaling
    return encoder(graph, config, weights, names, rotary=rotary(graph, spec, config.heads.dims, theta, rope))
