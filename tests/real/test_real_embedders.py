"""Trained embedders: the vectors of sentence-transformers, and the quality that the models' authors published."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from as_they_are import mpnet, wordllama
from comparison import LEAST_COSINE, MOST_DIFFERENCE, load
from made import Make, made
from numpy.typing import NDArray
from of_ggml import multilingual_e5
from of_gguf import nomic
from of_onnx import bge_small
from samples import PASSAGES, SENTENCES, TEXTS, TRANSLATED, TRUE

from vecmill.embedder import Embedder
from vecmill.verify import spearman

pytestmark = pytest.mark.real

DATA = Path(__file__).parents[3] / "shared" / "data" / "stsbenchmark-test.tsv"


@dataclass(frozen=True)
class Trained:
    """A model that was trained.

    Attributes:
        name: What its folder is called.
        make: What makes the folder.
        spearman: Its correlation on the test pairs of STS-B in sentence-transformers.
        prompt: The prompt with which it has that.
        asks: The prompts of a question and of what may answer it.
        multilingual: It was trained in other languages than English, too.
    """

    name: str
    make: Make
    spearman: float
    prompt: str | None = None
    asks: tuple[str | None, str | None] = (None, None)
    multilingual: bool = False


BGE = Trained("bge-small-en-v1.5", bge_small, 0.8579)
E5 = Trained("multilingual-e5-small", multilingual_e5, 0.8397, "query", ("query", "passage"), multilingual=True)
MPNET = Trained("all-mpnet-base-v2", mpnet, 0.8342)
NOMIC = Trained("nomic-embed-text-v1.5", nomic, 0.8546, "classification", ("query", "document"))
WORDLLAMA = Trained("wordllama", wordllama, 0.7586)

MODELS = [
    pytest.param(one, id=one.name, marks=[pytest.mark.large] if one in {E5, MPNET, NOMIC} else [])
    for one in (BGE, WORDLLAMA, E5, MPNET, NOMIC)
]


@dataclass(frozen=True)
class Loaded:
    """The model in vecmill."""

    row: Trained
    folder: Path
    embedder: Embedder


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """Each of the models, loaded once for all tests."""
    row: Trained = request.param
    folder = made(row.name, row.make)
    with Embedder(str(folder)) as embedder:
        yield Loaded(row, folder, embedder)


def test_vectors(model: Loaded) -> None:
    """Sentences in several scripts, of one letter to beyond the limit, have the reference's vectors."""
    wanted = load(model.folder).float().encode(TEXTS, prompt_name=model.row.prompt, convert_to_numpy=True)
    rows = model.embedder.embed(TEXTS, prompt_name=model.row.prompt)
    largest = max(1.0, float(np.abs(wanted).max()))  # of vectors that are not normalised
    assert float(np.abs(rows - wanted).max()) <= MOST_DIFFERENCE * largest
    assert float(cosines(rows, wanted).min()) >= LEAST_COSINE


def test_quality(model: Loaded) -> None:
    """Cosines and human scores correlate as they do with the reference library."""
    if not DATA.is_file():
        pytest.skip(f"no {DATA.name} beside the repository")
    with DATA.open(encoding="utf-8", newline="") as file:
        pairs = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    first, second = (
        model.embedder.embed([pair[key] for pair in pairs], prompt_name=model.row.prompt)
        for key in ("sentence1", "sentence2")
    )
    scores = np.array([float(pair["score"]) for pair in pairs])
    assert len(pairs) == 1379
    assert spearman(cosines(first, second), scores) == pytest.approx(model.row.spearman, abs=0.0005)


def test_ranking(model: Loaded) -> None:
    """Of passages on one matter that which answers the question is nearest, in every language that the model reads."""
    asked = {"English": list(PASSAGES)} | (TRANSLATED if model.row.multilingual else {})
    assert {language: ranked(model, questions) for language, questions in asked.items()} == dict.fromkeys(asked, TRUE)


def test_company(model: Loaded) -> None:
    """A text has the same bytes alone and among a hundred others."""
    together = model.embedder.embed([*TEXTS, *SENTENCES, *TEXTS])
    alone = np.concatenate([model.embedder.embed([text]) for text in TEXTS[::4]])
    assert np.array_equal(together[: len(TEXTS) : 4], alone)


def ranked(model: Loaded, questions: list[str]) -> list[int]:
    """The passage that is nearest to each of the questions."""
    ask, answer = model.row.asks
    rows = model.embedder.embed(questions, prompt_name=ask)
    passages = [model.embedder.embed(some, prompt_name=answer) for some in PASSAGES.values()]
    return [int(cosines(some, row).argmax()) for row, some in zip(rows, passages, strict=True)]


def cosines(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float64]:
    """The cosine of each row with the row of `y`, or with `y` where that is one."""
    lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    found: NDArray[np.float64] = np.sum(x.astype(np.float64) * y, axis=-1) / lengths
    return found
