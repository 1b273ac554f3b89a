"""The compiled GTE gives the numbers of transformers' GteModel, and of Alibaba's NewModel as far as they are the same.

The reference is transformers' class, which reads the tensors of Alibaba-NLP/new-impl by their names. What only the
original has (NTK scaling, unpacked projections, its keys) follows that repository's modeling.py, read but not run here:
its scaling is transformers' linear one with another base and factor, which is how it is compared.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import assert_same
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

GTE: Config = {**SIZES, "model_type": "gte", "type_vocab_size": 1}
"""As transformers has it."""

NEW: Config = {
    **SIZES,
    "model_type": "new",
    "type_vocab_size": 1,
    "rope_theta": 160_000,
    "rope_scaling": None,
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "logn_attention_clip1": False,
    "pack_qkv": True,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}
"""The same network as the original checkpoints have it."""

DIMS = SIZES["hidden_size"] // SIZES["num_attention_heads"]

NEWER = {
    "encoder.layer": "layers",
    "attention.o_proj": "self_attn.o_proj",
    "attn_ln": "post_attention_layernorm",
    "mlp_ln": "post_mlp_layernorm",
}
"""The original names, and what transformers' class calls them inside."""


def tensors_of(config: Config) -> Tensors:
    """Random weights by the original names."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
        **norm_shapes("embeddings.LayerNorm", width),
    }
    for number in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{number}"
        shapes |= linear_shapes(f"{at}.attention.qkv_proj", 3 * width, width)
        shapes |= linear_shapes(f"{at}.attention.o_proj", width, width)
        shapes[f"{at}.mlp.up_gate_proj.weight"] = (2 * inner, width)
        shapes |= linear_shapes(f"{at}.mlp.down_proj", width, inner)
        shapes |= norm_shapes(f"{at}.attn_ln", width) | norm_shapes(f"{at}.mlp_ln", width)
    return random_tensors({name: shape for name, shape in shapes.items() if 0 not in shape})


def unpacked(tensors: Tensors) -> Tensors:
    """The same tensors with query, key and value apart."""
    result: Tensors = {}
    for name, tensor in tensors.items():
        if "qkv_proj" in name:
            parts = zip("qkv", np.split(tensor, 3), strict=True)
            result |= {name.replace("qkv", part): rows.copy() for part, rows in parts}
        else:
            result[name] = tensor
    return result


def newer(tensors: Tensors) -> Tensors:
    """The same tensors by transformers' names."""
    result: Tensors = {}
    for name, tensor in unpacked(tensors).items():
        renamed = name
        for old, new in NEWER.items():
            renamed = renamed.replace(old, new)
        renamed = renamed.replace(".attention.", ".self_attn.")
        if "up_gate_proj" in name:
            up, gate = np.split(tensor, 2)
            result |= {renamed.replace("up_gate", "up"): up.copy(), renamed.replace("up_gate", "gate"): gate.copy()}
        else:
            result[renamed] = tensor
    return result


def write(folder: Path, base: Config = GTE, **changes: Any) -> Path:
    """A tiny GTE with the original tensor names, as transformers saves it."""
    config = base | changes
    return write_encoder(folder, config, tensors_of(config))


@pytest.mark.reference
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "silu"},
        {"layer_norm_eps": 0.1},
        {"num_attention_heads": 4},
        {"type_vocab_size": 0},
        {"type_vocab_size": 2},
        {"hidden_size": 20, "intermediate_size": 7},
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
    """Inputs of 1 token, of a few, and of the longest; far positions turn as transformers rounds them."""
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
    """What `GteModel.save_pretrained` writes, in either naming."""
    import torch
    from transformers import GteConfig, GteModel

    torch.manual_seed(0)
    model = GteModel(GteConfig(**SIZES, initializer_range=0.4))
    model.save_pretrained(write(tmp_path), save_original_format=original)
    assert ("qkv_proj" in (tmp_path / "model.safetensors").read_bytes().decode("latin-1")) == original
    assert_same(tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_ntk(tmp_path: Path, factor: float) -> None:
    """NTK scaling multiplies the base by the factor, and divides the angles by its 2 / dims power."""
    linear = {"rope_type": "linear", "rope_theta": 500.0 * factor, "factor": factor ** (2 / DIMS)}
    theirs = write(tmp_path / "gte", rope_parameters=linear)
    assert_same_states(theirs)
    ours = write(tmp_path / "new", NEW, rope_theta=500, rope_scaling={"type": "ntk", "factor": factor})
    assert np.array_equal(rows(ours, random_ids(1, 9, 40)), rows(theirs, random_ids(1, 9, 40)))


def test_a_factor_that_scales_nothing(tmp_path: Path) -> None:
    """NTK scaling by 1 or less is none, as in the original."""
    for factor in (1, 0.5):
        folder = write(tmp_path / str(factor), NEW, rope_scaling={"type": "ntk", "factor": factor})
        wanted = rows(write(tmp_path / "plain", NEW), random_ids(1, 9, 40))
        assert np.array_equal(rows(folder, random_ids(1, 9, 40)), wanted)


def test_original_keys(tmp_path: Path) -> None:
    """The original config.json and transformers' say the same network; their defaults of the base differ."""
    wanted = rows(write(tmp_path / "gte"), random_ids(1, 9, 40))
    assert np.array_equal(rows(write(tmp_path / "new", NEW), random_ids(1, 9, 40)), wanted)
    explicit, implied = (rows(write(tmp_path / "new", NEW, rope_theta=base), random_ids(9)) for base in (10_000, None))
    assert np.array_equal(explicit, implied)


@pytest.mark.parametrize("prefix", ["", "new.", "gte."])
def test_tensor_names(tmp_path: Path, prefix: str) -> None:
    """Packed, unpacked and by transformers' names, with and without a prefix, it is the same model."""
    original = tensors_of(NEW)
    wanted = rows(write(tmp_path / "plain", NEW), random_ids(1, 9, 9, 40))
    for number, (tensors, pack) in enumerate([(original, True), (unpacked(original), False), (newer(original), True)]):
        named = {prefix + name: tensor for name, tensor in tensors.items()}
        folder = write_encoder(tmp_path / str(number), NEW | {"pack_qkv": pack}, named)
        assert np.array_equal(rows(folder, random_ids(1, 9, 9, 40)), wanted)


def test_bytes_do_not_depend_on_mates(tmp_path: Path) -> None:
    """A text's row has the same bytes alone and in a batch."""
    assert_bytes_do_not_depend_on_mates(write(tmp_path, hidden_size=20, max_position_embeddings=130))


@pytest.mark.parametrize("renamed", [unpacked, newer, dict])
def test_each_tensor_is_checked(tmp_path: Path, renamed: Any) -> None:
    """A tensor that is missing or of another shape is named, in each naming."""
    config = NEW | {"num_hidden_layers": 1, "pack_qkv": renamed is not unpacked}
    assert_each_tensor_is_checked(write_encoder(tmp_path, config, renamed(tensors_of(config))))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"position_embedding_type": "absolute"}, UnsupportedModel, "position_embedding_type = 'absolute'"),
        ({"layer_norm_type": "rms_norm"}, UnsupportedModel, "layer_norm_type = 'rms_norm' is not supported for new"),
        ({"logn_attention_scale": True}, UnsupportedModel, "logn_attention_scale = True"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2}},
            UnsupportedModel,
            "rope_type = 'dynamic' is not supported",
        ),
        ({"rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0.625}}, UnsupportedModel, "mixed_b = 0.625"),
        ({"hidden_act": "laplace"}, UnsupportedModel, "activation 'laplace' is not supported"),
        ({"num_attention_heads": 3}, CorruptFile, "3 heads do not divide a hidden_size of 16"),
        ({"rope_scaling": {"type": "ntk", "factor": "2"}}, CorruptFile, "Expected `float`, got `str`"),
        ({"num_hidden_layers": 4}, MissingFile, "no tensor 'encoder.layer.3.attention.qkv_proj.weight'"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, Any], error: type[LoadError], message: str) -> None:
    """What the graph cannot do, and what the files do not hold, is refused by its name."""
    assert_refused(change_config(write(tmp_path, NEW), **changes), error, message)
