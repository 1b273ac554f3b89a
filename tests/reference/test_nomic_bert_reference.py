"""The compiled nomic-embed gives the numbers of transformers' NomicBertModel, in both namings of keys and tensors."""

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

from checkpoints import Tensors, linear_shapes, norm_shapes, write_modules
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.model.spec import read_spec

CONFIG: Config = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "hidden_act": "silu", **SIZES}

ORIGINAL: Config = {
    "model_type": "nomic_bert",
    "vocab_size": SIZES["vocab_size"],
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 2,
    "n_inner": 20,
    "n_positions": 160,
    "max_trained_positions": 40,
    "layer_norm_epsilon": 1e-12,
    "activation_function": "swiglu",
    "rotary_emb_fraction": 1.0,
    "rotary_emb_base": 1000,
    "rotary_scaling_factor": None,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "prenorm": False,
}
"""As the original checkpoints have it."""

NEWER = {
    "emb_ln": "embeddings.LayerNorm",
    "encoder.layers": "layers",
    "attn.out_proj": "self_attn.o_proj",
    "fc11": "up_proj",
    "fc12": "gate_proj",
    "fc2": "down_proj",
    "norm1": "post_attention_layernorm",
    "norm2": "post_mlp_layernorm",
}
"""The names of the original code, and what transformers' class calls them inside."""


def tensors_of(config: Config, *, bias: bool = False) -> Tensors:
    """Random weights by the original names."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.token_type_embeddings.weight": (config.get("type_vocab_size", 2), width),
        **norm_shapes("emb_ln", width),
    }
    for number in range(config["num_hidden_layers"]):
        at = f"encoder.layers.{number}"
        parts = linear_shapes(f"{at}.attn.Wqkv", 3 * width, width) | linear_shapes(f"{at}.attn.out_proj", width, width)
        parts |= linear_shapes(f"{at}.mlp.fc11", inner, width) | linear_shapes(f"{at}.mlp.fc12", inner, width)
        parts |= linear_shapes(f"{at}.mlp.fc2", width, inner)
        shapes |= {name: shape for name, shape in parts.items() if bias or name.endswith("weight")}
        shapes |= norm_shapes(f"{at}.norm1", width) | norm_shapes(f"{at}.norm2", width)
    return random_tensors(shapes)


def newer(tensors: Tensors) -> Tensors:
    """The same tensors by transformers' names."""
    result: Tensors = {}
    for name, tensor in tensors.items():
        renamed = name
        for old, new in NEWER.items():
            renamed = renamed.replace(old, new)
        if "attn.Wqkv" in name:
            parts = zip("qkv", np.split(tensor, 3), strict=True)
            result |= {renamed.replace("attn.Wqkv", f"self_attn.{part}_proj"): rows.copy() for part, rows in parts}
        else:
            result[renamed] = tensor
    return result


def write(folder: Path, **changes: Any) -> Path:
    """A tiny nomic-embed by transformers' keys and the original tensor names, as transformers saves it."""
    config = CONFIG | changes
    return write_encoder(folder, config, tensors_of(config))


@pytest.mark.reference
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "gelu"},
        {"layer_norm_eps": 0.1},
        {"num_hidden_layers": 1},
        {"num_attention_heads": 4},
        {"type_vocab_size": 1},
        {"hidden_size": 20, "intermediate_size": 7},
        {"rope_theta": 10.0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 50.0, "factor": 3.0}},
        {"max_position_embeddings": 300},
    ],
)
def test_config(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Each setting of config.json that changes the network, on texts of many lengths up to the limit and beyond."""
    assert_same(write(tmp_path, **changes))


@pytest.mark.reference
def test_lengths(tmp_path: Path) -> None:
    """Inputs of 1 token, of a few, and of the longest that the model was trained with."""
    assert_same_states(write(tmp_path, max_position_embeddings=2048), (1, 2, 3, 17, 500))


@pytest.mark.reference
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("prompt", ["query", "long", None])
def test_a_chain(tmp_path: Path, pooling: str, prompt: str | None) -> None:
    """Prompts and both poolings."""
    write_modules(write(tmp_path), pooling={"pooling_mode": pooling}, prompts=PROMPTS)
    assert_same(tmp_path, prompt_name=prompt)


@pytest.mark.reference
@pytest.mark.parametrize("original", [True, False])
def test_saved_by_transformers(tmp_path: Path, *, original: bool) -> None:
    """What `NomicBertModel.save_pretrained` writes, in either naming."""
    import torch
    from transformers import NomicBertConfig, NomicBertModel

    torch.manual_seed(0)
    model = NomicBertModel(NomicBertConfig(**SIZES, initializer_range=0.4))
    model.save_pretrained(write(tmp_path), save_original_format=original)
    assert ("emb_ln.weight" in (tmp_path / "model.safetensors").read_bytes().decode("latin-1")) == original
    assert_same(tmp_path)


@pytest.mark.parametrize("prefix", ["", "nomic_bert.", "bert."])
def test_tensor_names(tmp_path: Path, prefix: str) -> None:
    """Tensors by the original names and by transformers' own, with and without a prefix, are the same model."""
    original = tensors_of(CONFIG)
    wanted = rows(write_encoder(tmp_path / "original", CONFIG, original), random_ids(1, 9, 9, 40))
    for number, tensors in enumerate((original, newer(original))):
        folder = write_encoder(tmp_path / str(number), CONFIG, {prefix + name: t for name, t in tensors.items()})
        assert np.array_equal(rows(folder, random_ids(1, 9, 9, 40)), wanted)


def test_original_keys(tmp_path: Path) -> None:
    """The keys of the original config.json are those of transformers, by other names."""
    folder = write_encoder(tmp_path / "original", ORIGINAL, tensors_of(CONFIG))
    assert np.array_equal(rows(folder, random_ids(1, 9, 40)), rows(write(tmp_path / "new"), random_ids(1, 9, 40)))


def test_both_kinds_of_keys(tmp_path: Path) -> None:
    """Where config.json has both, those of transformers count."""
    wanted = rows(write(tmp_path), random_ids(1, 9, 40))
    change_config(tmp_path, **(ORIGINAL | {"n_head": 4, "rotary_emb_base": 5, "layer_norm_epsilon": 0.1}))
    change_config(tmp_path, num_attention_heads=2, rope_theta=1000.0, layer_norm_eps=1e-12)
    assert np.array_equal(rows(tmp_path, random_ids(1, 9, 40)), wanted)


@pytest.mark.parametrize(("gate", "kind"), [("swiglu", "silu"), ("geglu", "gelu"), ("glu", "sigmoid")])
def test_original_gates(tmp_path: Path, gate: str, kind: str) -> None:
    """The original code names the whole network, transformers its activation."""
    folder = write_encoder(tmp_path / "original", ORIGINAL | {"activation_function": gate}, tensors_of(CONFIG))
    wanted = rows(write(tmp_path / "new", hidden_act=kind), random_ids(1, 9, 40))
    assert np.array_equal(rows(folder, random_ids(1, 9, 40)), wanted)


@pytest.mark.parametrize("flag", ["qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"])
def test_original_biases(tmp_path: Path, flag: str) -> None:
    """The original code's biases are there unless the config says no, and zeros are none."""
    tensors = tensors_of(CONFIG, bias=True)
    zeros = {name: t if "norm" in name or "ln" in name or t.ndim > 1 else 0 * t for name, t in tensors.items()}
    config = {key: value for key, value in ORIGINAL.items() if key != flag}
    plain = rows(write(tmp_path / "plain"), random_ids(9))
    biased, none = (
        rows(write_encoder(tmp_path / name, config, kept), random_ids(9))
        for name, kept in (("biased", tensors), ("none", zeros))
    )
    assert none == pytest.approx(rows(write_encoder(tmp_path / "plain", ORIGINAL, zeros), random_ids(9)), abs=1e-6)
    assert np.abs(biased - none).max() > 0.01
    assert plain.shape == none.shape


def test_the_limit_is_the_trained_length(tmp_path: Path) -> None:
    """Inputs are cut to the positions that the model was trained with, whatever its tokenizer allows."""
    assert read_spec(write_encoder(tmp_path, ORIGINAL, tensors_of(CONFIG))).max_tokens == 40


def test_scaling_below_the_trained_length(tmp_path: Path) -> None:
    """Dynamic scaling does nothing to inputs of up to the trained length."""
    wanted = rows(write_encoder(tmp_path, ORIGINAL, tensors_of(CONFIG)), random_ids(1, 9, 40))
    assert np.array_equal(rows(change_config(tmp_path, rotary_scaling_factor=2), random_ids(1, 9, 40)), wanted)


def test_bytes_do_not_depend_on_mates(tmp_path: Path) -> None:
    """A text's row has the same bytes alone and in a batch."""
    assert_bytes_do_not_depend_on_mates(write(tmp_path, hidden_size=20, max_position_embeddings=130))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"prenorm": True}, UnsupportedModel, "prenorm = True is not supported for nomic_bert"),
        ({"causal": True}, UnsupportedModel, "causal = True"),
        ({"rotary_emb_interleaved": True}, UnsupportedModel, "rotary_emb_interleaved = True"),
        ({"rotary_emb_scale_base": 512}, UnsupportedModel, "rotary_emb_scale_base = 512"),
        ({"rotary_emb_fraction": 0.5}, UnsupportedModel, "rotary_emb_fraction = 0.5"),
        ({"moe_every_n_layers": 2}, UnsupportedModel, "moe_every_n_layers = 2"),
        ({"activation_function": "gelu"}, UnsupportedModel, "activation_function = 'gelu'"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, UnsupportedModel, "rope_type = 'dynamic' is not supported"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, UnsupportedModel, "partial_rotary_factor = 0.5"),
        ({"hidden_act": "laplace"}, UnsupportedModel, "activation 'laplace' is not supported"),
        ({"num_attention_heads": 3}, CorruptFile, "3 heads do not divide a hidden_size of 16"),
        ({"num_hidden_layers": 0}, CorruptFile, "Expected `int` >= 1 - at `$.num_hidden_layers`"),
        ({"num_hidden_layers": 4}, MissingFile, "no tensor 'encoder.layers.3.attn.Wqkv.weight'"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, Any], error: type[LoadError], message: str) -> None:
    """What the graph cannot do, and what the files do not hold, is refused by its name."""
    assert_refused(change_config(write(tmp_path), **changes), error, message)


@pytest.mark.parametrize("original", [True, False])
def test_each_tensor_is_checked(tmp_path: Path, *, original: bool) -> None:
    """A tensor that is missing or of another shape is named, in either naming."""
    config = CONFIG | {"num_hidden_layers": 1}
    tensors = tensors_of(config)
    assert_each_tensor_is_checked(write_encoder(tmp_path, config, tensors if original else newer(tensors)))


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        (["rotary_emb_fraction"], "rotary_emb_fraction = 0.0"),
        (["activation_function"], "activation_function = 'gelu_new'"),
    ],
)
def test_defaults_of_the_original(tmp_path: Path, absent: list[str], message: str) -> None:
    """What an original config.json leaves out has the original code's default, which is another network."""
    write_encoder(tmp_path, ORIGINAL, tensors_of(CONFIG))
    assert_refused(change_config(tmp_path, *absent), UnsupportedModel, message)


def test_scaling_beyond_the_trained_length(tmp_path: Path) -> None:
    """Dynamic scaling is refused where inputs can be longer than the trained length."""
    write_encoder(tmp_path, ORIGINAL, tensors_of(CONFIG))
    change_config(tmp_path, max_position_embeddings=160, rotary_scaling_factor=2)
    assert_refused(tmp_path, UnsupportedModel, "rotary_scaling_factor = 2.0 beyond max_trained_positions = 40")


def test_texts_cover_the_limit() -> None:
    """The texts that are compared hold one that is longer than the limit."""
    assert max(len(text.split()) for text in TEXTS) > SIZES["max_position_embeddings"]
