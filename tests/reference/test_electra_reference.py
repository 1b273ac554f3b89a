"""ELECTRA: embeddings of a width of their own."""

from pathlib import Path
from typing import Any

import pytest
from states import assert_same_states

from encoders import write_encoder

pytestmark = pytest.mark.reference


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_size": 8},
        {"embedding_size": 16},
        {"embedding_size": 40},
        {"type_vocab_size": 1},
        {"summary_type": "mean", "summary_use_proj": False},
    ],
)
def test_config(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Embeddings narrower and wider than the layers are projected, those of the same width are not."""
    assert_same_states(write_encoder(tmp_path, "electra", **changes))
