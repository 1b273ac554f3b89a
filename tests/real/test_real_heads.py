"""Trained heads: the scores of transformers' cross-encoder, the entries of sentence-transformers' SPLADE."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from as_they_are import splade
from comparison import MOST_DIFFERENCE
from headed import logits
from made import made
from of_onnx import reranker
from samples import LONG, PASSAGES, SENTENCES, TEXTS, TRUE

from vecmill.core import Pair
from vecmill.embedder import Embedder

pytestmark = pytest.mark.real

QUESTIONS = list(zip(PASSAGES, TRUE, strict=True))


@pytest.fixture(scope="module")
def folder() -> Path:
    """ms-marco-MiniLM-L-12-v2."""
    return made("ms-marco-MiniLM-L-12-v2", reranker)


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Iterator[Embedder]:
    """The reranker, loaded."""
    with Embedder(str(folder)) as one:
        yield one


@pytest.mark.parametrize(("question", "true"), QUESTIONS)
def test_scores(folder: Path, embedder: Embedder, question: str, true: int) -> None:
    """Each passage has the score that transformers gives it, also one beyond the limit; that which answers is first."""
    passages = [*PASSAGES[question], LONG]
    wanted = np.concatenate(logits(folder, "SequenceClassification", [(question, one) for one in passages], 512))
    scores = embedder.rerank(question, passages, raw_scores=True)
    assert scores == pytest.approx(wanted, abs=MOST_DIFFERENCE * float(np.abs(wanted).max()))
    assert int(scores.argmax()) == true


@pytest.mark.parametrize(("question", "true"), QUESTIONS)
def test_probabilities(embedder: Embedder, question: str, true: int) -> None:
    """The passage that answers is likely, the others are not."""
    found = embedder.rerank(question, PASSAGES[question])
    assert found[true] > 0.9
    assert np.delete(found, true).max() < 0.1


def test_company(embedder: Embedder) -> None:
    """A pair's score has the same bytes alone and among a hundred others."""
    pairs = [Pair(question, passage) for question, passages in PASSAGES.items() for passage in (*passages, *SENTENCES)]
    together = embedder.classify(pairs, raw_scores=True)
    alone = np.concatenate([embedder.classify([pair], raw_scores=True) for pair in pairs[::10]])
    assert np.array_equal(together[::10], alone)


def test_int8(folder: Path) -> None:
    """Smaller weights keep the order."""
    with Embedder(str(folder), precision="int8") as embedder:
        assert [int(embedder.rerank(question, some).argmax()) for question, some in PASSAGES.items()] == TRUE


def test_splade() -> None:
    """SPLADE-tiny's entries and weights are those of the reference's SparseEncoder, and rank the passages."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    folder = made("splade-tiny", splade)
    theirs = SparseEncoder(modules=[MLMTransformer(str(folder)), SpladePooling()], device="cpu")
    texts = [*TEXTS, *PASSAGES, *(passage for passages in PASSAGES.values() for passage in passages)]
    wanted = theirs.encode(texts, convert_to_sparse_tensor=False).numpy()
    with Embedder(str(folder)) as embedder:
        found = embedder.sparse(texts)
    full = np.zeros_like(wanted)
    for row, one in zip(full, found, strict=True):
        row[one.indices] = one.values
        assert 0 < len(one.indices) < 1000
    assert float(np.abs(full - wanted).max()) <= MOST_DIFFERENCE
    assert np.array_equal(full > MOST_DIFFERENCE, wanted > MOST_DIFFERENCE)
    questions, passages = full[len(TEXTS) :][:3], full[len(TEXTS) + 3 :].reshape(3, 3, -1)
    assert [int(np.argmax(some @ question)) for question, some in zip(questions, passages, strict=True)] == TRUE
