"""Tiny checkpoints of families that are BERT with other names or a twist: random weights and their own tokenizers."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from checkpoints import Tensors, linear_shapes, norm_shapes, random_tensor, write_json
from tiny_tokenizers import WRITERS

Shapes = dict[str, tuple[int, ...]]

TOKENIZERS = {
    "albert": "AlbertTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
"""Every family to the class of its tokenizer."""

FAMILIES = tuple(TOKENIZERS)

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
AFTER_PADDING: dict[str, Any] = {**SIZES, "pad_token_id": 1, "max_position_embeddings": 42}
DEBERTA_V3: dict[str, Any] = {
    **SIZES,
    "position_biased_input": False,
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 8,
    "max_relative_positions": -1,
}
"""As v3 has it: no positions in the input, one projection for contents and distances, buckets."""

CONFIGS: dict[str, dict[str, Any]] = {
    "albert": {**SIZES, "embedding_size": 12, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "camembert": AFTER_PADDING,
    "deberta-v2": DEBERTA_V3,
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32, "max_position_embeddings": 40},
    "electra": {**SIZES, "embedding_size": 12},
    "mpnet": AFTER_PADDING,
    "roberta": AFTER_PADDING,
    "xlm-roberta": AFTER_PADDING,
}
"""Each has room for 40 tokens."""

BERT_LAYER = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
LAYERS = {
    "albert": (
        *(f"attention.{name}" for name in ("query", "key", "value", "dense", "LayerNorm")),
        *("ffn", "ffn_output", "full_layer_layer_norm"),
    ),
    "deberta-v2": (*(f"attention.self.{name}_proj" for name in ("query", "key", "value")), *BERT_LAYER[3:]),
    "distilbert": (
        *(f"attention.{name}" for name in ("q_lin", "k_lin", "v_lin", "out_lin")),
        *("sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
    ),
    "mpnet": (*(f"attention.attn.{name}" for name in "qkvo"), "attention.LayerNorm", *BERT_LAYER[5:]),
}
"""Names of query, key, value, output, norm, up, down, norm."""


def write_encoder(folder: Path, family: str, tensors: Tensors | None = None, /, **changes: Any) -> Path:
    """A bare encoder: config, weights, tokenizer; `changes` go into the config."""
    folder.mkdir(parents=True, exist_ok=True)
    size = WRITERS[TOKENIZERS[family]](folder, TOKENIZERS[family])
    config = {"model_type": family, "vocab_size": size, **CONFIGS[family], **changes}
    write_json(folder / "config.json", config)
    save_file(tensors or encoder_tensors(config), folder / "model.safetensors")
    return folder


def encoder_tensors(config: dict[str, Any], seed: int = 0) -> Tensors:
    """Random weights by transformers' names."""
    rng = np.random.default_rng(seed)
    tensors = {name: random_tensor(rng, shape) for name, shape in encoder_shapes(config).items()}
    for name in tensors:
        if "norm" in name.lower() and name.endswith("weight"):
            tensors[name] += np.float32(1)
    return tensors


def encoder_shapes(config: dict[str, Any]) -> Shapes:
    """Every tensor's shape."""
    family = config["model_type"]
    width = config.get("dim") or config["hidden_size"]
    inner = config.get("hidden_dim") or config["intermediate_size"]
    shapes = embedding_shapes(config, config.get("embedding_size", width))
    if family == "albert":
        shapes |= linear_shapes("encoder.embedding_hidden_mapping_in", width, config["embedding_size"])
    if family == "electra" and config["embedding_size"] != width:
        shapes |= linear_shapes("embeddings_project", width, config["embedding_size"])
    if family == "mpnet":
        shapes["encoder.relative_attention_bias.weight"] = (32, config["num_attention_heads"])
    if family == "deberta-v2":
        shapes |= distance_shapes(config)
    for prefix in layer_prefixes(config):
        shapes |= layer_shapes(prefix, LAYERS.get(family, BERT_LAYER), width, inner)
    return shapes


def embedding_shapes(config: dict[str, Any], width: int) -> Shapes:
    """Shapes of the tables and their norm."""
    shapes: Shapes = {"embeddings.word_embeddings.weight": (config["vocab_size"], width)}
    if config.get("position_biased_input", True):
        shapes["embeddings.position_embeddings.weight"] = (config["max_position_embeddings"], width)
    if config["model_type"] not in {"deberta-v2", "distilbert", "mpnet"}:
        shapes["embeddings.token_type_embeddings.weight"] = (config.get("type_vocab_size", 2), width)
    return shapes | norm_shapes("embeddings.LayerNorm", width)


def distance_shapes(config: dict[str, Any]) -> Shapes:
    """Shapes of DeBERTa's table of distances with its norm, and of the convolution where there is one."""
    width = config["hidden_size"]
    if not config["relative_attention"]:
        return {}
    shapes: Shapes = {"encoder.rel_embeddings.weight": (2 * config["position_buckets"], width)}
    shapes |= norm_shapes("encoder.LayerNorm", width)
    if size := config.get("conv_kernel_size"):
        shapes |= {"encoder.conv.conv.weight": (width, width, size), "encoder.conv.conv.bias": (width,)}
        shapes |= norm_shapes("encoder.conv.LayerNorm", width)
    return shapes


def layer_prefixes(config: dict[str, Any]) -> list[str]:
    """What the names of each layer's tensors start with."""
    if config["model_type"] == "albert":
        groups, inner = config.get("num_hidden_groups", 1), config.get("inner_group_num", 1)
        places = [(group, place) for group in range(groups) for place in range(inner)]
        return [f"encoder.albert_layer_groups.{group}.albert_layers.{place}." for group, place in places]
    if config["model_type"] == "distilbert":
        return [f"transformer.layer.{number}." for number in range(config["n_layers"])]
    return [f"encoder.layer.{number}." for number in range(config["num_hidden_layers"])]


def layer_shapes(prefix: str, names: tuple[str, ...], width: int, inner: int) -> Shapes:
    """Shapes of one layer's tensors."""
    query, key, value, output, norm, up, down, last_norm = (prefix + name for name in names)
    shapes: Shapes = {}
    for name in (query, key, value, output):
        shapes |= linear_shapes(name, width, width)
    shapes |= linear_shapes(up, inner, width) | linear_shapes(down, width, inner)
    return shapes | norm_shapes(norm, width) | norm_shapes(last_norm, width)
