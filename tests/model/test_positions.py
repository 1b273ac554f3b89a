"""How many tokens an input may have, in families that count positions from the padding's id and in others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import write_json
from encoders import FAMILIES, write_encoder
from vecmill.engine.base import Batch, load_engine
from vecmill.errors import CorruptFile
from vecmill.model.limits import AFTER_PADDING, max_tokens
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_the_rows_that_positions_reach(tmp_path: Path, family: str) -> None:
    """The limit is the number of rows, less those before the first position; a text of the limit is not cut."""
    spec = read_spec(write_encoder(tmp_path, family, max_position_embeddings=20))
    first = 2 if family in AFTER_PADDING else 0
    assert (spec.first_position, spec.max_tokens) == (first, 20 - first)
    tokenizer, room = Tokenizer(spec), spec.max_tokens - 2
    whole, cut = tokenizer.encode_ids([[9] * room, [9] * (room + 1)])
    assert (len(whole.ids), whole.truncated) == (len(cut.ids), False) == (spec.max_tokens, False)
    assert cut.truncated
    assert np.isfinite(load_engine("onnx", spec, threads=1).run(Batch.pack([whole.ids]))).all()


@pytest.mark.parametrize(("stated", "wanted"), [(None, 28), (10, 10), (28, 28), (29, 28), (30, 28), (512, 28)])
def test_a_stated_limit(tmp_path: Path, stated: int | None, wanted: int) -> None:
    """A limit that the files state holds where the positions reach that far."""
    write_encoder(tmp_path, "roberta", max_position_embeddings=30)
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": stated})
    assert read_spec(tmp_path).max_tokens == wanted


ROTARY = (
    {"model_type": family} for family in ("gte", "modernbert", "llama", "mistral", "qwen2", "qwen3", "gemma3_text")
)
UNTABLED: list[dict[str, Any]] = [
    *ROTARY,
    {"model_type": "nomic_bert", "max_trained_positions": 20, "rotary_scaling_factor": None},
    {"model_type": "deberta-v2", "position_biased_input": False},
    {"model_type": "bert", "position_embedding_type": "alibi"},
    {"model_type": "another", "rope_theta": 10000},
]


@pytest.mark.parametrize("config", UNTABLED)
def test_a_stated_limit_without_a_table(tmp_path: Path, config: dict[str, Any]) -> None:
    """Where no row is looked up for a position, what is stated counts; what the tokenizer alone states does not."""
    config = {"max_position_embeddings": 30, **config}
    assert max_tokens(config, 90, tmp_path) == 90
    write_json(tmp_path / "tokenizer_config.json", {"model_max_length": 80})
    assert max_tokens(config, None, tmp_path) == 30


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "deberta-v2"},
        {"model_type": "another"},
        {"model_type": "nomic_bert", "rotary_scaling_factor": 2},
    ],
)
def test_a_stated_limit_with_a_table(tmp_path: Path, config: dict[str, Any]) -> None:
    """No limit goes beyond a position table, or the length from which on positions are scaled."""
    assert max_tokens({"max_trained_positions": 30, **config}, 90, tmp_path) == 30


def test_beyond_the_trained_positions(tmp_path: Path) -> None:
    """Distances are told apart beyond max_position_embeddings too, and tokens there change the vector."""
    write_encoder(tmp_path, "deberta-v2", max_position_embeddings=20)
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": 50})
    spec = read_spec(tmp_path)
    engine = load_engine("onnx", spec, threads=1)
    ids = np.full(50, 9, np.int32)
    other = np.where(np.arange(50) == 48, 10, ids).astype(np.int32)
    rows = engine.run(Batch.pack([ids, other]))
    assert spec.max_tokens == 50
    assert np.abs(rows[0] - rows[1]).max() > 1e-3


@pytest.mark.parametrize("padding", [0, 1, 7])
def test_the_padding_decides(tmp_path: Path, padding: int) -> None:
    """The first position is the one after the padding's id."""
    spec = read_spec(write_encoder(tmp_path, "xlm-roberta", max_position_embeddings=30, pad_token_id=padding))
    assert (spec.first_position, spec.max_tokens) == (padding + 1, 29 - padding)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_position_embeddings": 2}, "max_position_embeddings = 2 leaves no position, as the first is 2"),
        ({"pad_token_id": 60}, "max_position_embeddings = 42 leaves no position, as the first is 61"),
        ({"pad_token_id": None}, "pad_token_id is None, a number is needed"),
        ({"pad_token_id": -1}, "pad_token_id is -1, a number is needed"),
        ({"pad_token_id": "1"}, "pad_token_id is '1', a number is needed"),
    ],
)
def test_no_position(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """A config under which no token has a position is refused by its settings."""
    with pytest.raises(CorruptFile, match=f"config.json: {message}"):
        read_spec(write_encoder(tmp_path, "roberta", **changes))


def test_the_width_by_its_other_name(tmp_path: Path) -> None:
    """DistilBERT's config calls the width dim."""
    assert read_spec(write_encoder(tmp_path, "distilbert", dim=24)).dims == 24
