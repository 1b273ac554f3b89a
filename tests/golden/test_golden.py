"""The demo model's vectors equal those of sentence-transformers, stored by scripts/make_golden.py."""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.embedder import Embedder
from vecmill.engine.base import Batch
from vecmill.engine.onnx import OnnxEngine
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

pytestmark = pytest.mark.model

HERE = Path(__file__).parent
TEXTS: dict[str, str] = json.loads((HERE / "texts.json").read_text())
GOLDEN = json.loads((HERE / "all-MiniLM-L6-v2.json").read_text())
ROWS = {name: np.frombuffer(base64.b64decode(row), "<f4") for name, row in GOLDEN["rows"].items()}

LEAST_COSINE = 0.99999
MOST_DIFFERENCE = 1e-5


@dataclass(frozen=True)
class Demo:
    """The demo model without a server around it."""

    tokenizer: Tokenizer
    engine: OnnxEngine

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Vectors of texts in one batch."""
        return self.engine.run(Batch.pack([tokens.ids for tokens in self.tokenizer.encode(texts)]))


@pytest.fixture(scope="module")
def demo(minilm_folder: Path) -> Iterator[Demo]:
    """The demo model, loaded once."""
    spec = read_spec(minilm_folder)
    engine = OnnxEngine(spec, threads=2)
    yield Demo(Tokenizer(spec), engine)
    engine.close()


def assert_golden(name: str, row: NDArray[np.float32]) -> None:
    """The row of the text `name` is that of sentence-transformers."""
    wanted = ROWS[name]
    cosine = float(row @ wanted / np.linalg.norm(row) / np.linalg.norm(wanted))
    assert (cosine >= LEAST_COSINE, float(np.abs(row - wanted).max()) <= MOST_DIFFERENCE) == (True, True), name


def test_weights_are_those_of_the_golden_vectors(minilm_folder: Path) -> None:
    """The demo model is the checkpoint from which the golden vectors were made."""
    found = hashlib.sha256((minilm_folder / "model.safetensors").read_bytes()).hexdigest()
    assert found == GOLDEN["weights_sha256"]


def test_limits_are_those_of_sentence_transformers(minilm_folder: Path) -> None:
    """The model's limit and the length of its vectors are what sentence-transformers reports."""
    spec = read_spec(minilm_folder)
    assert (spec.max_tokens, spec.dims) == (GOLDEN["max_tokens"], GOLDEN["dims"])


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_alone(demo: Demo, name: str) -> None:
    """A text alone gets the vector that sentence-transformers gives it."""
    assert_golden(name, demo.embed([TEXTS[name]])[0])


def test_all_texts_in_one_batch(demo: Demo) -> None:
    """All texts in one batch get the vectors that sentence-transformers gives them alone."""
    for name, row in zip(TEXTS, demo.embed(list(TEXTS.values())), strict=True):
        assert_golden(name, row)


def test_a_batch_has_the_bytes_of_its_texts_alone(demo: Demo) -> None:
    """A batch of all texts, twice each, gives byte for byte the vectors of the texts alone."""
    alone = np.concatenate([demo.embed([text]) for text in TEXTS.values()])
    assert np.array_equal(demo.embed([*TEXTS.values(), *TEXTS.values()]), np.concatenate([alone, alone]))


def test_the_embedder(minilm_folder: Path) -> None:
    """`vecmill.Embedder`, with its queue and its batches, gives the vectors of sentence-transformers."""
    with Embedder(str(minilm_folder)) as embedder:
        rows = embedder.embed(list(TEXTS.values()))
    for name, row in zip(TEXTS, rows, strict=True):
        assert_golden(name, row)
