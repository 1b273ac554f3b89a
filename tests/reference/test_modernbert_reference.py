"""The compiled ModernBERT gives the numbers of transformers' ModernBertModel."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import TEXTS, assert_same
from rotary_encoders import (
    PROMPTS,
    SIZES,
    Config,
    Shapes,
    assert_bytes_do_not_depend_on_mates,
    assert_each_tensor_is_checked,
    assert_refused,
    change_config,
    random_ids,
    random_tensors,
    rows,
    write_encoder,
)
from states import assert_same_states

from checkpoints import Tensors, linear_shapes, norm_shapes, write_json, write_modules
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel

SPECIAL = {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
CONFIG: Config = {**SIZES, **SPECIAL, "model_type": "modernbert", "num_hidden_layers": 4, "local_attention": 8}
"""Layers 0 and 3 see everything, layers 1 and 2 four tokens to each side."""


def tensors_of(config: Config) -> Tensors:
    """Random weights by transformers' names."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {"embeddings.tok_embeddings.weight": (config["vocab_size"], width)}
    shapes |= norm_shapes("embeddings.norm", width) | norm_shapes("final_norm", width)
    for number in range(config["num_hidden_layers"]):
        at = f"layers.{number}"
        shapes |= linear_shapes(f"{at}.attn.Wqkv", 3 * width, width) | linear_shapes(f"{at}.attn.Wo", width, width)
        shapes |= linear_shapes(f"{at}.mlp.Wi", 2 * inner, width) | linear_shapes(f"{at}.mlp.Wo", width, inner)
        shapes |= norm_shapes(f"{at}.mlp_norm", width)
        if number:
            shapes |= norm_shapes(f"{at}.attn_norm", width)
    flags = {"norm": "norm_bias", ".attn.": "attention_bias", ".mlp.": "mlp_bias"}
    without = tuple(part for part, flag in flags.items() if not config.get(flag))
    return random_tensors(
        {
            name: shape
            for name, shape in shapes.items()
            if name.endswith("weight") or not any(part in name for part in without)
        }
    )


def write(folder: Path, **changes: Any) -> Path:
    """A tiny ModernBERT."""
    config = CONFIG | changes
    return write_encoder(folder, config, tensors_of(config))


@pytest.mark.reference
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_activation": "silu"},
        {"norm_eps": 0.1},
        {"norm_bias": True},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"num_hidden_layers": 1},
        {"num_attention_heads": 4},
        {"hidden_size": 20, "intermediate_size": 7},
        {"global_attn_every_n_layers": 1},
        {"global_attn_every_n_layers": 2},
        {"layer_types": ["sliding_attention", "full_attention"] * 2},
        {"layer_types": ["sliding_attention"] * 4},
        {"global_rope_theta": 50.0},
        {"local_rope_theta": 50.0},
        {"rope_parameters": {"full_attention": {"rope_theta": 30.0}, "sliding_attention": {"rope_theta": 7.0}}},
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 30.0, "factor": 3.0}}},
        {"max_position_embeddings": 300},
    ],
)
def test_config(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Each setting of config.json that changes the network, on texts of many lengths up to the limit and beyond."""
    assert_same(write(tmp_path, **changes))


@pytest.mark.reference
@pytest.mark.parametrize("window", [1, 2, 3, 7, 8, 30, 128])
def test_window(tmp_path: Path, window: int) -> None:
    """Windows of all widths, on inputs shorter, as long and longer."""
    assert_same_states(write(tmp_path, local_attention=window), tuple(range(1, 12)))


@pytest.mark.reference
def test_lengths(tmp_path: Path) -> None:
    """Inputs of 1 token, of a few, about the window, and of the longest."""
    folder = write(tmp_path, max_position_embeddings=2048, local_attention=128)
    assert_same_states(folder, (1, 2, 3, 63, 64, 65, 66, 127, 128, 129, 500))


@pytest.mark.reference
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("prompt", ["query", "long", None])
def test_a_chain(tmp_path: Path, pooling: str, prompt: str | None) -> None:
    """Prompts and both poolings."""
    write_modules(write(tmp_path), pooling={"pooling_mode": pooling}, prompts=PROMPTS)
    assert_same(tmp_path, prompt_name=prompt)


@pytest.mark.reference
def test_saved_by_transformers(tmp_path: Path) -> None:
    """What `ModernBertModel.save_pretrained` writes, with layer types and nested rope parameters."""
    import torch
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(0)
    model = ModernBertModel(ModernBertConfig(**CONFIG, initializer_range=0.4))
    model.save_pretrained(write(tmp_path))
    assert_same(tmp_path, TEXTS)


@pytest.mark.reference
def test_tokenizer(tmp_path: Path) -> None:
    """Normalising is that of tokenizer.json, whatever class the files name: transformers trusts none of them."""
    path = write(tmp_path) / "tokenizer.json"
    write_json(path, json.loads(path.read_text()) | {"normalizer": None})
    assert_same(tmp_path, ["CAT cat", "cat dog Dog"])


def test_local_layers_do_not_see_far(tmp_path: Path) -> None:
    """A token that no window reaches changes nothing; one token nearer, it does."""
    folder = write(tmp_path, num_hidden_layers=2, layer_types=["sliding_attention"] * 2)
    write_modules(folder, pooling={"pooling_mode": "cls"})
    ids = random_ids(20)[0]
    wanted = rows(folder, [ids])
    for place, seen in ((8, True), (9, False)):
        other = ids.copy()
        other[place] = (ids[place] + 1) % CONFIG["vocab_size"]
        assert np.array_equal(rows(folder, [other]), wanted) != seen


@pytest.mark.parametrize("prefix", ["model.", "0.auto_model."])
def test_prefix(tmp_path: Path, prefix: str) -> None:
    """Tensors of a model with a head have a prefix; the head's own are left alone."""
    wanted = rows(write(tmp_path / "plain"), random_ids(1, 9, 40))
    tensors = {prefix + name: tensor for name, tensor in tensors_of(CONFIG).items()}
    folder = write_encoder(tmp_path / "prefixed", CONFIG, tensors | {"head.norm.weight": np.ones(16, np.float32)})
    assert np.array_equal(rows(folder, random_ids(1, 9, 40)), wanted)


def test_bytes_do_not_depend_on_mates(tmp_path: Path) -> None:
    """A text's row has the same bytes alone and in a batch."""
    assert_bytes_do_not_depend_on_mates(write(tmp_path, hidden_size=20, max_position_embeddings=130))


def test_each_tensor_is_checked(tmp_path: Path) -> None:
    """A tensor that is missing or of another shape is named."""
    flags = {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
    assert_each_tensor_is_checked(write(tmp_path, num_hidden_layers=2, **flags))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hidden_activation": "laplace"}, UnsupportedModel, "activation 'laplace' is not supported"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}},
            UnsupportedModel,
            "rope_type = 'dynamic' is not supported",
        ),
        ({"layer_types": ["chunked_attention"] * 4}, CorruptFile, "Invalid enum value 'chunked_attention'"),
        ({"layer_types": ["full_attention"]}, CorruptFile, "layer_types names 1 layers of 4"),
        ({"num_attention_heads": 3}, CorruptFile, "3 heads do not divide a hidden_size of 16"),
        ({"num_hidden_layers": 5}, MissingFile, "no tensor 'layers.4.attn_norm.weight'"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, Any], error: type[LoadError], message: str) -> None:
    """What the graph cannot do, and what the files do not hold, is refused by its name."""
    assert_refused(change_config(write(tmp_path), **changes), error, message)
