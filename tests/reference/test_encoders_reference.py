"""What holds of every family that is BERT with other names or a twist: the numbers of transformers."""

from pathlib import Path

import numpy as np
import pytest
from comparison import TEXTS, assert_same
from states import assert_same_states

from checkpoints import write_modules
from encoders import CONFIGS, FAMILIES, write_encoder
from vecmill.model.spec import read_spec

pytestmark = pytest.mark.reference

ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")
PROMPTS = {"query": "query : ", "long": "the cat sat " * 30}


@pytest.mark.parametrize("family", FAMILIES)
def test_states(tmp_path: Path, family: str) -> None:
    """Inputs of 1 to 40 tokens."""
    assert_same_states(write_encoder(tmp_path, family), (1, 2, 3, 8, 9, 16, 17, 32, 33, 39))


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_activation(tmp_path: Path, family: str, kind: str) -> None:
    """Each activation of the feed-forward network."""
    key = "activation" if family == "distilbert" else "hidden_act"
    assert_same_states(write_encoder(tmp_path, family, **{key: kind}), (7,))


@pytest.mark.parametrize("mode", ["cls", "mean", "max"])
@pytest.mark.parametrize("family", FAMILIES)
def test_pooling(tmp_path: Path, family: str, mode: str) -> None:
    """Texts of different lengths in one batch and alone, with each pooling."""
    assert_same(write_modules(write_encoder(tmp_path, family), pooling={"pooling_mode": mode}))


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_prompt(tmp_path: Path, family: str, name: str) -> None:
    """A prompt goes before each text, also one that leaves no room for it."""
    assert_same(write_modules(write_encoder(tmp_path, family), prompts={"prompts": PROMPTS}), prompt_name=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_lengths(tmp_path: Path, family: str) -> None:
    """Texts of no token, of one, about the limit of 40, and far beyond."""
    folder = write_modules(write_encoder(tmp_path, family))
    assert read_spec(folder).max_tokens == 40
    texts = [" ".join(["cat", "dog", "the"][number % 3] for number in range(words)) for words in (1, 37, 38, 39, 100)]
    assert_same(folder, ["\x07", *texts])


@pytest.mark.parametrize(("dtype", "max_shard_size"), [("float32", "1GB"), ("float16", "4KB"), ("bfloat16", "1GB")])
@pytest.mark.parametrize("family", FAMILIES)
def test_saved_by_transformers(tmp_path: Path, family: str, dtype: str, max_shard_size: str) -> None:
    """What `save_pretrained` writes, in several types and in shards."""
    import torch
    from transformers import AutoConfig, AutoModel

    write_encoder(tmp_path, family)
    (tmp_path / "model.safetensors").unlink()
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(str(tmp_path), initializer_range=0.4)
    AutoModel.from_config(config).to(getattr(torch, dtype)).save_pretrained(tmp_path, max_shard_size=max_shard_size)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (max_shard_size == "4KB")
    assert_same(tmp_path, TEXTS[:5])


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes(tmp_path: Path, family: str) -> None:
    """Sizes that are not round, one head, and no layers, with which transformers' DeBERTa fails."""
    names = dict(zip(("width", "heads", "inner", "layers"), RENAMED.get(family, NAMED), strict=True))
    none = [] if family == "deberta-v2" else [(16, 4, 32, 0)]
    for number, sizes in enumerate([(20, 5, 7, 3), (24, 1, 24, 1), *none]):
        changes = dict(zip(names.values(), sizes, strict=True))
        if family == "albert":
            changes["num_hidden_groups"] = 1
        assert_same_states(write_encoder(tmp_path / str(number), family, **changes))


NAMED = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers")
RENAMED = {"distilbert": ("dim", "n_heads", "hidden_dim", "n_layers")}


@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "distilbert"])
def test_layer_norm_eps(tmp_path: Path, family: str, epsilon: float) -> None:
    """The epsilon of the norms."""
    assert_same_states(write_encoder(tmp_path, family, layer_norm_eps=epsilon))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_table(tmp_path: Path, family: str) -> None:
    """Inputs of some hundred tokens, beyond what a block of a kernel holds."""
    rows = CONFIGS[family]["max_position_embeddings"] + 500
    assert_same_states(write_encoder(tmp_path, family, max_position_embeddings=rows), (64, 127, 128, 129, 255, 300))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_mixed_lengths(tmp_path: Path, family: str) -> None:
    """Forty texts in one batch, where sentence-transformers pads and masks."""
    rng = np.random.default_rng(5)
    words = ["cat", "dog", "hello", "world", "time", "xyz"]
    texts = [" ".join(rng.choice(words, size)) for size in rng.integers(1, 45, 40)]
    assert_same(write_modules(write_encoder(tmp_path, family)), texts)
