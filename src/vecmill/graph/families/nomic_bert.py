"""nomic-embed (Nussbaum et al., arXiv 2402.01613): post-norm encoder with rotary positions and a SwiGLU network.

References: transformers, models/nomic_bert/modeling_nomic_bert.py, and the code that the original checkpoints bring,
which names keys and tensors otherwise. Both namings are read.
"""

from dataclasses import replace
from typing import Any

import msgspec

from vecmill.errors import UnsupportedModel
from vecmill.graph import gated
from vecmill.graph.families.bert import WORDS, check
from vecmill.graph.gated import TRANSFORMERS, Names, encoder, has_layers
from vecmill.graph.ops import Graph
from vecmill.graph.rope import Rope, rotary
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "nomic_bert.", "bert.", "model.", "0.auto_model.")

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "prenorm": (False, None),
    "parallel_block": (False, None),
    "use_rms_norm": (False, None),
    "causal": (False, None),
    "rotary_emb_interleaved": (False, None),
    "rotary_emb_scale_base": (None,),
    "moe_every_n_layers": (0, -1, None),
    "rotary_emb_fraction": (1, None),
    "activation_function": ("swiglu", "geglu", "glu", None),
}
"""Settings of the original code that change the numbers, with the values that this graph gives."""

KEYS = {
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
"""Key of the original config to the key of transformers'."""

GATES = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}
"""`activation_function` of the original config to `hidden_act` of transformers'."""

ORIGINAL_DEFAULTS: dict[str, Any] = {
    "activation_function": "gelu_new",
    "rotary_emb_fraction": 0.0,
    "qkv_proj_bias": True,
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "layer_norm_epsilon": 1e-5,
    "rotary_scaling_factor": 1.0,
}
"""Of NomicBertConfig in the original code and of the GPT2Config below it, where they are not those of transformers'."""

ORIGINAL = Names(
    embedding_norm="emb_ln",
    place="encoder.layers",
    projections=("attn.Wqkv",),
    mix="attn.out_proj",
    mix_norm="norm1",
    feed=("mlp.fc12", "mlp.fc11"),
    down="mlp.fc2",
    down_norm="norm2",
)
"""The names of the original code, which transformers' class keeps when it saves."""


class Config(gated.Config, kw_only=True):
    """What this graph reads of config.json; defaults are those of transformers' NomicBertConfig."""

    hidden_act: str = "silu"
    qkv_proj_bias: bool = False
    mlp_fc1_bias: bool = False
    mlp_fc2_bias: bool = False
    rope_theta: float = 1000.0
    rope_parameters: Rope | None = None
    rotary_scaling_factor: float | None = None
    max_trained_positions: int = 2048


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    config = read_config(spec)
    weights = weights.strip(PREFIXES, WORDS)
    names = replace(
        TRANSFORMERS if has_layers(weights, TRANSFORMERS) else ORIGINAL,
        mix_bias=config.qkv_proj_bias,
        feed_bias=config.mlp_fc1_bias,
        down_bias=config.mlp_fc2_bias,
    )
    turn = rotary(graph, spec, config.heads.dims, config.rope_theta, config.rope_parameters)
    return encoder(graph, config, weights, names, rotary=turn)


def read_config(spec: ModelSpec) -> Config:
    """config.json by transformers' names; where it has both, these count.

    Raises:
        UnsupportedModel: A setting asks for another network.
    """
    stated: dict[str, Any] = spec.config if "hidden_size" in spec.config else ORIGINAL_DEFAULTS | spec.config
    check(replace(spec, config=stated), UNSUPPORTED)
    renamed = {name: stated[key] for key, name in KEYS.items() if key in stated}
    if stated.get("activation_function"):
        renamed["hidden_act"] = GATES[stated["activation_function"]]
    config = msgspec.convert(renamed | stated, Config)
    # This scaling does nothing up to the trained length, to which `read_spec` cuts inputs where config.json states it.
    # Beyond, each length has tables of its own.
    if config.rotary_scaling_factor and spec.max_tokens > config.max_trained_positions:
        place, factor = spec.transformer / "config.json", config.rotary_scaling_factor
        raise UnsupportedModel(
            f"{place}: rotary_scaling_factor = {factor} beyond max_trained_positions = {config.max_trained_positions} "
            f"is not supported; the limit is {spec.max_tokens} tokens"
        )
    return config
