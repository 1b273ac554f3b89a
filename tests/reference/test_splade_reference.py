"""Sparse encoders give the weights of sentence-transformers' SparseEncoder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import MOST_DIFFERENCE, TEXTS
from headed import MASKED, save
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import Sparse
from vecmill.embedder import Embedder

pytestmark = pytest.mark.reference

MASKED_LM = "MaskedLM"


def encoder(folder: Path, **settings: Any) -> Any:
    """The checkpoint in sentence-transformers."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    transformer = MLMTransformer(str(folder), max_seq_length=40)
    return SparseEncoder(modules=[transformer, SpladePooling(**settings)], device="cpu")


def dense(rows: list[Sparse], size: int) -> NDArray[np.float32]:
    """Rows with their zeros, float32 [texts, vocabulary]."""
    full = np.zeros((len(rows), size), dtype=np.float32)
    for row, one in zip(full, rows, strict=True):
        assert np.all(np.diff(one.indices) > 0)
        assert np.all(one.values > 0)
        row[one.indices] = one.values
    return full


def assert_same_weights(folder: Path, theirs: Any) -> None:
    """All texts together and each alone have the same entries with the same weights."""
    wanted = theirs.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    with Embedder(str(folder), settings=Settings(threads=1, task="sparse")) as embedder:
        together = dense(embedder.sparse(TEXTS), wanted.shape[1])
        alone = dense([embedder.sparse([text])[0] for text in TEXTS], wanted.shape[1])
    assert np.array_equal(together, alone)
    assert float(np.abs(together - wanted).max()) <= MOST_DIFFERENCE
    assert np.any(wanted, axis=1).all()


@pytest.mark.parametrize("family", MASKED)
def test_weights(tmp_path: Path, family: str) -> None:
    """The masked language model of each family, its decoder tied to the word table."""
    folder = save(tmp_path, family, MASKED_LM)
    assert_same_weights(folder, encoder(folder))


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "modernbert"])
def test_a_decoder_of_its_own(tmp_path: Path, family: str) -> None:
    """A decoder that is not the word table."""
    folder = save(tmp_path, family, MASKED_LM, tie_word_embeddings=False)
    assert_same_weights(folder, encoder(folder))


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_saved_by_sentence_transformers(tmp_path: Path, pooling: str, activation: str) -> None:
    """The chain that the library saves, with each pooling and activation."""
    made = encoder(save(tmp_path / "bert", "bert", MASKED_LM), pooling_strategy=pooling, activation_function=activation)
    made.save(str(tmp_path / "saved"))
    assert_same_weights(tmp_path / "saved", made)
