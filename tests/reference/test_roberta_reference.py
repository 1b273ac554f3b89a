"""RoBERTa, XLM-RoBERTa and CamemBERT: positions that start after the padding's id."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import assert_close, assert_same, load, ours, theirs
from states import assert_same_states

from checkpoints import write_json, write_modules
from encoders import encoder_tensors, write_encoder
from vecmill.model.spec import read_spec

pytestmark = pytest.mark.reference

KIN = ("roberta", "xlm-roberta", "camembert")


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("family", KIN)
def test_the_first_position(tmp_path: Path, family: str, padding: int) -> None:
    """The first token has the position after the padding's id, and the last the table's last row."""
    write_encoder(tmp_path, family, pad_token_id=padding, max_position_embeddings=30)
    assert read_spec(tmp_path).max_tokens == 29 - padding
    assert_same_states(tmp_path)


@pytest.mark.parametrize("family", KIN)
def test_no_padding_in_the_config(tmp_path: Path, family: str) -> None:
    """A config that names no padding token has transformers' default, 1."""
    config = json.loads((write_encoder(tmp_path, family, max_position_embeddings=30) / "config.json").read_text())
    del config["pad_token_id"]
    write_json(tmp_path / "config.json", config)
    assert read_spec(tmp_path).max_tokens == 28
    assert_same_states(tmp_path)


@pytest.mark.parametrize("changes", [{"type_vocab_size": 1}, {"type_vocab_size": 3}, {"use_cache": True}])
def test_config(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Settings of config.json."""
    assert_same_states(write_encoder(tmp_path, "roberta", **changes))


@pytest.mark.parametrize("stated", [41, 42, 512])
def test_a_limit_beyond_the_positions(tmp_path: Path, stated: int) -> None:
    """A limit beyond the rows that positions reach, on which sentence-transformers fails, is that of these rows."""
    write_modules(write_encoder(tmp_path, "roberta"), transformer={"max_seq_length": stated})
    assert read_spec(tmp_path).max_tokens == 40
    texts = ["cat " * 50, "dog " * 19]
    with pytest.raises((IndexError, RuntimeError)):
        load(tmp_path).encode(texts)
    rows = ours(tmp_path, texts)
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": 40})
    assert_close(rows, theirs(tmp_path, texts))


def test_a_limit_below_the_positions(tmp_path: Path) -> None:
    """A limit that the positions hold is that of the files."""
    write_modules(write_encoder(tmp_path, "roberta"), transformer={"max_seq_length": 39})
    assert read_spec(tmp_path).max_tokens == 39
    assert_same(tmp_path)


@pytest.mark.parametrize("prefix", ["roberta.", "model.", "bert."])
def test_prefix(tmp_path: Path, prefix: str) -> None:
    """Tensors of a model with a head have a prefix; the head's own are left alone."""
    bare = ours(write_encoder(tmp_path / "bare", "roberta"))
    config = json.loads((tmp_path / "bare/config.json").read_text())
    tensors = {prefix + name: tensor for name, tensor in encoder_tensors(config).items()}
    tensors["lm_head.bias"] = np.zeros(3, dtype=np.float32)
    folder = write_encoder(tmp_path / "whole", "roberta", tensors)
    assert np.array_equal(ours(folder), bare)
    if prefix == "roberta.":
        assert_same(folder)


def test_a_padding_token_in_a_text(tmp_path: Path) -> None:
    """A padding token that a text spells takes a position here; transformers gives it none, and the rows differ."""
    folder = write_encoder(tmp_path, "roberta")
    assert_same(folder, ["cat dog"])
    assert float(np.abs(ours(folder, ["cat <pad> dog"]) - theirs(folder, ["cat <pad> dog"])).max()) > 1e-3
