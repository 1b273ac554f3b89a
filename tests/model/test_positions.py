"""How many tokens an input may have, in families that count positions from the padding's id and in others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import write_json
from encoders import FAMILIES, write_encoder
from vecmill.engine.base import Batch, load_engine
from vecmill.errors import CorruptFile
from vecmill.model.limits import AFTER_PADDING
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
