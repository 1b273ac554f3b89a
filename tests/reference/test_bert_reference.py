"""The compiled BERT gives the numbers of transformers' BertModel, whatever its settings and however it is stored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import TEXTS, assert_close, assert_same, theirs
from safetensors.numpy import save_file

from checkpoints import CONFIG, bert_tensors, write_bert, write_json, write_modules
from vecmill.engine.base import Batch, load_engine
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

pytestmark = pytest.mark.reference


@pytest.mark.parametrize(
    "kind", ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"]
)
def test_hidden_act(tmp_path: Path, kind: str) -> None:
    """Each activation of the feed-forward network."""
    assert_same(write_bert(tmp_path, hidden_act=kind))


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_norm_eps": 1e-5},
        {"layer_norm_eps": 0.1},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 5},
        {"num_attention_heads": 1},
        {"num_attention_heads": 16},
        {"type_vocab_size": 1},
        {"hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 7},
        {"max_position_embeddings": 300},
        {"position_embedding_type": "absolute", "is_decoder": False, "chunk_size_feed_forward": 0},
    ],
)
def test_config(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Each setting of config.json that changes the network."""
    assert_same(write_bert(tmp_path, **changes))


@pytest.mark.parametrize("key", ["type_vocab_size", "hidden_act", "layer_norm_eps"])
def test_a_setting_that_is_missing(tmp_path: Path, key: str) -> None:
    """A setting that config.json leaves out has transformers' default."""
    write_json(write_bert(tmp_path) / "config.json", {name: value for name, value in CONFIG.items() if name != key})
    assert_same(tmp_path)


@pytest.mark.parametrize("words", [0, 1, 2, 37, 38, 39, 100])
def test_lengths(tmp_path: Path, words: int) -> None:
    """Texts of no token, of 1, about the 38 that fit between the special tokens, and far more."""
    texts = ["\x07" if words == 0 else " ".join(["cat", "dog", "mat"][number % 3] for number in range(words))]
    assert_same(write_modules(write_bert(tmp_path)), texts)


def test_a_batch_of_mixed_lengths(tmp_path: Path) -> None:
    """Sixty texts of 3 to 40 tokens in one batch, where sentence-transformers pads and masks."""
    rng = np.random.default_rng(5)
    words = ["cat", "dog", "hello", "world", "time", "xyz"]
    texts = [" ".join(rng.choice(words, size)) for size in rng.integers(1, 45, 60)]
    assert_same(write_modules(write_bert(tmp_path)), texts)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("max_shard_size", ["1GB", "4KB"])
def test_saved_by_transformers(tmp_path: Path, dtype: str, max_shard_size: str) -> None:
    """What `BertModel.save_pretrained` writes in each type of number, in one file and in shards."""
    import torch
    from transformers import BertConfig, BertModel

    write_bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.manual_seed(0)
    config = BertConfig(**CONFIG | {"initializer_range": 0.4})
    BertModel(config).to(getattr(torch, dtype)).save_pretrained(tmp_path, max_shard_size=max_shard_size)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (max_shard_size == "4KB")
    assert_same(tmp_path)


def test_old_norm_names(tmp_path: Path) -> None:
    """Checkpoints converted from TensorFlow call a norm's scale and shift gamma and beta."""
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in bert_tensors(CONFIG).items()
    }
    assert_same(write_bert(tmp_path, tensors=tensors))


def test_a_prefix(tmp_path: Path) -> None:
    """Tensors of a model with a head have `bert.` before their names; the head's own are left alone."""
    tensors = {f"bert.{name}": tensor for name, tensor in bert_tensors(CONFIG).items()}
    tensors["cls.predictions.bias"] = np.zeros(3, dtype=np.float32)
    assert_same(write_bert(tmp_path, tensors=tensors, architectures=["BertForMaskedLM"]))


def test_tensors_that_are_no_weights(tmp_path: Path) -> None:
    """A pooler and a buffer of position ids, which older checkpoints hold, change nothing."""
    write_bert(tmp_path)
    tensors: dict[str, Any] = {
        **bert_tensors(CONFIG),
        "embeddings.position_ids": np.arange(40)[None],
        "pooler.dense.weight": np.ones((16, 16), dtype=np.float32),
        "pooler.dense.bias": np.ones(16, dtype=np.float32),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    assert_same(tmp_path)


def test_a_transformer_in_a_folder(tmp_path: Path) -> None:
    """Very old checkpoints keep the transformer in `0_BERT`, and modules.json says so."""
    inner = tmp_path / "0_BERT"
    write_json(write_bert(inner) / "sentence_bert_config.json", {"max_seq_length": 11})
    write_json(tmp_path / "1_Pooling/config.json", {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True})
    kinds = {"0_BERT": "Transformer", "1_Pooling": "Pooling"}
    rows = [
        {"name": path, "path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()
    ]
    write_json(tmp_path / "modules.json", rows)
    spec = read_spec(tmp_path)
    batch = Batch.pack([tokens.ids for tokens in Tokenizer(spec).encode(TEXTS)])
    assert_close(load_engine("onnx", spec, threads=1).run(batch), theirs(tmp_path))
