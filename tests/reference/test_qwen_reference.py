"""The compiled Qwen2 and Qwen3 give the numbers of transformers' models, and Qwen3-Embedding's chain its rows."""

from pathlib import Path
from typing import Any

import pytest
from comparison import assert_same
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
from vecmill.graph.families.qwen import CONFIGS

pytestmark = pytest.mark.reference

BOTH = pytest.mark.parametrize("family", ["qwen2", "qwen3"])

INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "gelu"},
        {"rms_norm_eps": 0.1},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"head_dim": 6},
        {"head_dim": 24, "hidden_size": 20, "intermediate_size": 7},
        {"attention_bias": True},
        {"is_causal": False},
        {"rope_parameters": {"rope_theta": 1_000_000.0}},
    ],
)
@BOTH
def test_config(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    """Each setting of config.json that changes the network."""
    assert_same_tokens(save_decoder(tmp_path, family, **changes))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"use_sliding_window": False},
        {"use_sliding_window": True, "max_window_layers": 0},
        {"use_sliding_window": True, "max_window_layers": 2},
        {"use_sliding_window": True, "max_window_layers": 3},
        {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": None},
        {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        {"use_sliding_window": True, "layer_types": ["full_attention"] * 3},
    ],
)
@BOTH
def test_window(tmp_path: Path, family: str, changes: dict[str, Any], *, is_causal: bool) -> None:
    """Windows in the upper layers, or in those that layer_types names, where they are in use."""
    assert_same_tokens(save_decoder(tmp_path, family, **{"sliding_window": 6, "is_causal": is_causal, **changes}))


@pytest.mark.parametrize("scaling", [SCALINGS[0], SCALINGS[3]])
@BOTH
def test_scaling(tmp_path: Path, family: str, scaling: dict[str, Any]) -> None:
    """A scaling of rotary positions in the older spelling, as Qwen's model cards tell to add it."""
    folder = save_decoder(tmp_path, family, max_position_embeddings=300)
    old = {"type" if key == "rope_type" else key: value for key, value in scaling.items()}
    assert_same_tokens(change_config(folder, "rope_parameters", rope_scaling=old, rope_theta=1_000_000.0))


@BOTH
def test_long_inputs(tmp_path: Path, family: str) -> None:
    """Inputs of thousands of tokens, beyond a window."""
    window = {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 700}
    changes: dict[str, Any] = {"num_hidden_layers": 2, "max_position_embeddings": 3000, **window}
    assert_same_tokens(save_decoder(tmp_path, family, **changes), (699, 700, 701, 1500))


@BOTH
def test_defaults(family: str) -> None:
    """Defaults are transformers'."""
    assert_same_defaults(CONFIGS[family], family)


def test_a_setting_that_is_missing(tmp_path: Path) -> None:
    """A setting that config.json leaves out has transformers' default, so that heads have 128 numbers."""
    folder = save_decoder(tmp_path, "qwen3", head_dim=128)
    absent = ("head_dim", "hidden_act", "rms_norm_eps", "rope_parameters", "use_sliding_window", "layer_types")
    assert_same_tokens(change_config(folder, *absent))


@pytest.mark.parametrize("prompt", ["query", "long", None])
@pytest.mark.parametrize("pooling", POOLINGS)
@BOTH
def test_a_chain(tmp_path: Path, family: str, pooling: str, prompt: str | None) -> None:
    """Each pooling with a prompt and without, on texts that sentence-transformers pads on the left."""
    write_modules(save_decoder(tmp_path, family), pooling={"pooling_mode": pooling}, prompts=PROMPTS)
    assert_same(tmp_path, TEXTS, prompt_name=prompt)


@pytest.mark.parametrize("prompt", ["query", "document", None])
def test_qwen3_embedding(tmp_path: Path, prompt: str | None) -> None:
    """Qwen3-Embedding's chain: the state of the `<|endoftext|>` that its tokenizer adds, normalised, an instruction."""
    prompts = {"prompts": {"query": INSTRUCTION, "document": ""}, "similarity_fn_name": "cosine"}
    pooling = {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False, "include_prompt": True}
    folder = save_decoder(tmp_path, "qwen3", head=True, dtype="bfloat16", max_position_embeddings=256)
    write_modules(folder, pooling=pooling, prompts=prompts)
    assert_same(folder, TEXTS, prompt_name=prompt)
