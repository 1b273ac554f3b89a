"""The compiled Gemma 3 gives the numbers of transformers' Gemma3TextModel, and EmbeddingGemma's chain its rows."""

from pathlib import Path
from typing import Any

import pytest
from comparison import assert_same, ours
from decoders import POOLINGS, PROMPTS, TEXTS, assert_same_defaults, assert_same_tokens, change_config, save_decoder

from checkpoints import write_modules
from vecmill.graph.families.gemma3 import Config

pytestmark = pytest.mark.reference

MIXED = ["sliding_attention", "full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_activation": "silu"},
        {"rms_norm_eps": 0.1},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"head_dim": 6},
        {"head_dim": 24, "hidden_size": 20, "intermediate_size": 7},
        {"attention_bias": True},
        {"query_pre_attn_scalar": 7},
        {"num_hidden_layers": 7},
        {"layer_types": MIXED},
        {"layer_types": ["full_attention"] * 3},
        {"rope_parameters": {"full_attention": {"rope_theta": 30.0}}, "layer_types": MIXED},
        {
            "rope_parameters": {
                "full_attention": {"rope_theta": 30.0, "rope_type": "linear", "factor": 8.0},
                "sliding_attention": {"rope_theta": 7.0},
            },
            "layer_types": MIXED,
        },
    ],
)
@pytest.mark.parametrize("both_sides", [False, True])
def test_config(tmp_path: Path, changes: dict[str, Any], *, both_sides: bool) -> None:
    """Each setting of config.json that changes the network, seeing one side and both."""
    assert_same_tokens(save_decoder(tmp_path, "gemma3_text", use_bidirectional_attention=both_sides, **changes))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize("head_dim", [6, 16])
@pytest.mark.parametrize("window", [2, 5, 6, 38, 80])
def test_window(tmp_path: Path, window: int, head_dim: int, *, both_sides: bool, is_causal: bool) -> None:
    """Windows of all widths, on inputs shorter, as long and longer, seeing one side or both by either setting."""
    changes = {"sliding_window": window, "use_bidirectional_attention": both_sides, "is_causal": is_causal}
    assert_same_tokens(save_decoder(tmp_path, "gemma3_text", layer_types=MIXED, head_dim=head_dim, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 8.0}])
def test_older_spelling(tmp_path: Path, scaling: dict[str, Any] | None) -> None:
    """Two bases beside each other, a scaling of the global one, and a pattern instead of the kinds of layers."""
    folder = save_decoder(tmp_path, "gemma3_text", num_hidden_layers=5, sliding_window=6)
    older = {"rope_theta": 30.0, "rope_local_base_freq": 7.0, "rope_scaling": scaling, "sliding_window_pattern": 2}
    assert_same_tokens(change_config(folder, "rope_parameters", "layer_types", **older))


def test_a_setting_that_is_missing(tmp_path: Path) -> None:
    """A setting that config.json leaves out has transformers' default, so that heads have 256 numbers."""
    folder = save_decoder(tmp_path, "gemma3_text", num_hidden_layers=6, head_dim=256)
    absent = (
        "head_dim",
        "hidden_activation",
        "rms_norm_eps",
        "rope_parameters",
        "layer_types",
        "query_pre_attn_scalar",
    )
    assert_same_tokens(change_config(folder, *absent, "sliding_window", "use_bidirectional_attention"))


def test_defaults() -> None:
    """Defaults are transformers'."""
    assert_same_defaults(Config, "gemma3_text")


@pytest.mark.parametrize("both_sides", [False, True])
def test_long_inputs(tmp_path: Path, *, both_sides: bool) -> None:
    """Inputs of thousands of tokens, beyond a window."""
    changes: dict[str, Any] = {"max_position_embeddings": 3000, "sliding_window": 700, "layer_types": MIXED}
    folder = save_decoder(tmp_path, "gemma3_text", use_bidirectional_attention=both_sides, **changes)
    assert_same_tokens(folder, (350, 351, 700, 701, 1500))


@pytest.mark.parametrize("prompt", ["query", "long", None])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_chain(tmp_path: Path, pooling: str, prompt: str | None) -> None:
    """Each pooling with a prompt and without, on texts that sentence-transformers pads on the left."""
    folder = save_decoder(tmp_path, "gemma3_text", sliding_window=9, layer_types=MIXED)
    write_modules(folder, pooling={"pooling_mode": pooling}, prompts=PROMPTS)
    assert_same(folder, TEXTS, prompt_name=prompt)


def test_embedding_gemma(tmp_path: Path) -> None:
    """EmbeddingGemma's chain as sentence-transformers saves it: mean, two Dense without bias or activation, prompts."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
    from torch.nn import Identity

    changes: dict[str, Any] = {"use_bidirectional_attention": True, "sliding_window": 8, "layer_types": MIXED}
    bare = save_decoder(tmp_path / "bare", "gemma3_text", dtype="bfloat16", **changes)
    wide = Dense(32, 96, bias=False, activation_function=Identity())
    narrow = Dense(96, 32, bias=False, activation_function=Identity())
    prompts = {"query": "task: search result | query: ", "document": "title: none | text: "}
    transformer = Transformer(str(bare), max_seq_length=36, model_args={"dtype": "float32"})
    chain = [transformer, Pooling(32, "mean"), wide, narrow, Normalize()]
    SentenceTransformer(modules=chain, prompts=prompts, device="cpu").save(str(tmp_path / "saved"))
    for name in (*prompts, None):
        assert_same(tmp_path / "saved", TEXTS, prompt_name=name)
    assert ours(tmp_path / "saved").shape[1] == 32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_language_model(tmp_path: Path, dtype: str) -> None:
    """What a model with a head saves, in shards: names have a prefix."""
    folder = save_decoder(tmp_path, "gemma3_text", head=True, dtype=dtype)
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert_same(folder, TEXTS)
