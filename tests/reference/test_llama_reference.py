"""The compiled Llama and Mistral give the numbers of transformers' models, whatever their settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import assert_same, ours
from decoders import (
    POOLINGS,
    PROMPTS,
    SCALINGS,
    TEXTS,
    assert_same_defaults,
    assert_same_tokens,
    change_config,
    save_decoder,
)

from checkpoints import write_modules
from vecmill.graph.families.llama import CONFIGS

pytestmark = pytest.mark.reference

BOTH = pytest.mark.parametrize("family", ["llama", "mistral"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "gelu"},
        {"hidden_act": "relu"},
        {"rms_norm_eps": 0.1},
        {"num_hidden_layers": 1},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"head_dim": None},
        {"head_dim": 6},
        {"head_dim": 24, "hidden_size": 20, "intermediate_size": 7},
        {"is_causal": False},
        {"is_causal": True},
        {"tie_word_embeddings": True},
        {"rope_parameters": {"rope_theta": 50.0}},
    ],
)
@BOTH
def test_config(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    """Each setting of config.json that changes the network."""
    assert_same_tokens(save_decoder(tmp_path, family, **changes))


@pytest.mark.parametrize("mlp_bias", [False, True])
@pytest.mark.parametrize("attention_bias", [False, True])
def test_biases(tmp_path: Path, *, attention_bias: bool, mlp_bias: bool) -> None:
    """A Llama's biases of attention and network."""
    assert_same_tokens(save_decoder(tmp_path, "llama", attention_bias=attention_bias, mlp_bias=mlp_bias))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("head_dim", [6, 16])
@pytest.mark.parametrize("window", [1, 2, 5, 39, 40, 4096, None])
def test_window(tmp_path: Path, window: int | None, head_dim: int, *, is_causal: bool) -> None:
    """A Mistral's windows of all widths, on inputs shorter, as long and longer."""
    changes: dict[str, Any] = {"sliding_window": window, "is_causal": is_causal, "head_dim": head_dim}
    assert_same_tokens(save_decoder(tmp_path, "mistral", **changes))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaling(tmp_path: Path, scaling: dict[str, Any]) -> None:
    """Each scaling of rotary positions, in the newer and in the older spelling, where it changes something."""
    plain = save_decoder(tmp_path / "plain", "llama", max_position_embeddings=300)
    folder = save_decoder(tmp_path / "scaled", "llama", max_position_embeddings=300, rope_parameters=dict(scaling))
    assert np.abs(ours(folder, TEXTS) - ours(plain, TEXTS)).max() > 1e-3
    assert_same_tokens(folder)
    old = {"type" if key == "rope_type" else key: value for key, value in scaling.items()}
    assert_same_tokens(change_config(folder, "rope_parameters", rope_scaling=old, rope_theta=300.0))


@pytest.mark.parametrize("positions", [None, 17])
def test_scaling_without_a_length(tmp_path: Path, positions: int | None) -> None:
    """The trained length that a scaling does not name is that of config.json, the original one before the longest."""
    folder = save_decoder(tmp_path, "llama", rope_parameters={"rope_type": "yarn", "factor": 4.0})
    change_config(folder, "rope_parameters", rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4})
    if positions:
        change_config(folder, original_max_position_embeddings=positions)
    assert_same_tokens(folder)


@BOTH
def test_long_inputs(tmp_path: Path, family: str) -> None:
    """Inputs of thousands of tokens, beyond a window."""
    changes: dict[str, Any] = {"num_hidden_layers": 2, "max_position_embeddings": 3000, "sliding_window": 700}
    assert_same_tokens(save_decoder(tmp_path, family, **changes), (699, 700, 701, 1500))


@pytest.mark.parametrize(
    "absent",
    [
        ["num_key_value_heads"],
        ["head_dim"],
        ["hidden_act", "rms_norm_eps", "rope_parameters", "attention_bias", "mlp_bias"],
    ],
)
def test_a_setting_that_is_missing(tmp_path: Path, absent: list[str]) -> None:
    """A setting that config.json leaves out has transformers' default."""
    sizes: dict[str, Any] = {"head_dim": 8, "num_key_value_heads": 4}
    assert_same_tokens(change_config(save_decoder(tmp_path, "llama", **sizes), *absent))


@BOTH
def test_defaults(family: str) -> None:
    """Defaults are transformers'."""
    assert_same_defaults(CONFIGS[family], family)


@pytest.mark.parametrize("prompt", ["query", "long", None])
@pytest.mark.parametrize("pooling", POOLINGS)
@BOTH
def test_a_chain(tmp_path: Path, family: str, pooling: str, prompt: str | None) -> None:
    """Each pooling with a prompt and without, on texts that sentence-transformers pads on the left."""
    write_modules(save_decoder(tmp_path, family, sliding_window=9), pooling={"pooling_mode": pooling}, prompts=PROMPTS)
    assert_same(tmp_path, TEXTS, prompt_name=prompt)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@BOTH
def test_a_language_model(tmp_path: Path, family: str, dtype: str) -> None:
    """What a model with a head saves, in each type of number and in shards: names have a prefix."""
    folder = save_decoder(tmp_path, family, head=True, dtype=dtype)
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert_same(folder, TEXTS)
