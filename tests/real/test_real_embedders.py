"""Trained weights: the numbers of the reference library, and the quality that the models' authors published."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from comparison import LEAST_COSINE, MOST_DIFFERENCE
from headed import logits
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import Pair
from vecmill.embedder import Embedder
from vecmill.verify import spearman

pytestmark = pytest.mark.real

DATA = Path(__file__).parents[3] / "shared" / "data" / "stsbenchmark-test.tsv"
SENTENCES = Path(made.__file__).parents[2].joinpath("src/vecmill/sentences.txt").read_text().splitlines()
LONG = " ".join(SENTENCES)
TEXTS = [*SENTENCES, "a", LONG, "Ünïcödé 中文 😀", "Was ist das?", "你好 世界"]

Rows = NDArray[np.float32]
Make = Callable[[Path], None]

LARGE = pytest.mark.large
EMBEDDERS = [
    pytest.param("bge-small-en-v1.5", made.bge_small, None, 0.858, id="bge-small"),
    pytest.param("multilingual-e5-small", made.multilingual_e5, None, 0.840, id="e5", marks=LARGE),
    pytest.param("all-mpnet-base-v2", made.mpnet, None, 0.8342, id="mpnet", marks=LARGE),
    pytest.param("nomic-embed-text-v1.5", made.nomic, "classification", 0.8546, id="nomic", marks=LARGE),
]
"""Folder, what makes it, the prompt, and Spearman's correlation on the test pairs of STS-B."""

PASSAGES = {
    "how many people live in berlin": [
        "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "Berlin is well known for its museums.",
        "The parliament of New Zealand sits in Wellington.",
    ],
    "what causes the tides": [
        "Wine is made of grapes that are left to ferment.",
        "Tides are the rise and fall of sea levels caused by the gravity of the moon and the sun.",
        "A tide table lists when ships may enter a harbour.",
    ],
    "boiling point of water": [
        "Cooks add salt to water before it boils.",
        "The kettle was invented in the 19th century.",
        "Water boils at 100 degrees Celsius at sea level.",
    ],
}
TRUE = [0, 1, 2]
"""The passage that answers each question."""


@pytest.mark.parametrize(("name", "make", "prompt", "_wanted"), EMBEDDERS)
def test_vectors(name: str, make: Make, prompt: str | None, _wanted: float) -> None:
    """Sentences in several scripts, of one letter to beyond the limit, have the reference's vectors."""
    import torch
    from sentence_transformers import SentenceTransformer

    folder = made.made(name, make)
    torch.set_num_threads(2)
    theirs = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    wanted: Rows = theirs.encode(TEXTS, prompt_name=prompt, convert_to_numpy=True)
    with Embedder(str(folder)) as embedder:
        rows = embedder.embed(TEXTS, prompt_name=prompt)
    cosines = np.sum(rows * wanted, axis=1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(wanted, axis=1)
    assert float(np.abs(rows - wanted).max()) <= MOST_DIFFERENCE * max(1.0, float(np.abs(wanted).max()))
    assert float(cosines.min()) >= LEAST_COSINE


@pytest.mark.parametrize(("name", "make", "prompt", "wanted"), EMBEDDERS)
def test_quality(name: str, make: Make, prompt: str | None, wanted: float) -> None:
    """Cosines and human scores correlate as they do with the reference library."""
    if not DATA.is_file():
        pytest.skip(f"no {DATA.name} beside the repository")
    with DATA.open(encoding="utf-8", newline="") as file:
        pairs = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    with Embedder(str(made.made(name, make))) as embedder:
        first, second = (
            embedder.embed([pair[key] for pair in pairs], prompt_name=prompt) for key in ("sentence1", "sentence2")
        )
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = np.sum(first * second, axis=1).astype(np.float64) / lengths
    gold = np.array([float(pair["score"]) for pair in pairs])
    assert spearman(cosines, gold) == pytest.approx(wanted, abs=0.001)


def test_reranker() -> None:
    """ms-marco-MiniLM-L-12-v2 scores as transformers does and puts the passage that answers first."""
    folder = made.made("ms-marco-MiniLM-L-12-v2", made.reranker)
    with Embedder(str(folder)) as embedder:
        for (question, passages), true in zip(PASSAGES.items(), TRUE, strict=True):
            scores = embedder.rerank(question, [*passages, LONG], raw_scores=True)
            pairs = [(question, passage) for passage in (*passages, LONG)]
            wanted = np.concatenate(logits(folder, "SequenceClassification", pairs, 512))
            assert scores == pytest.approx(wanted, abs=1e-3)
            assert int(scores.argmax()) == true
        probabilities = embedder.rerank(question, passages)
        assert probabilities[true] > 0.9
        assert np.delete(probabilities, true).max() < 0.1


def test_reranker_in_int8() -> None:
    """Smaller weights keep the order."""
    folder = made.made("ms-marco-MiniLM-L-12-v2", made.reranker)
    with Embedder(str(folder), precision="int8") as embedder:
        ranked = [int(embedder.rerank(question, passages).argmax()) for question, passages in PASSAGES.items()]
    assert ranked == TRUE


def test_splade() -> None:
    """SPLADE-tiny's entries are those of the reference's SparseEncoder, and rank the passages."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    folder = made.made("splade-tiny", made.splade)
    theirs = SparseEncoder(modules=[MLMTransformer(str(folder)), SpladePooling()], device="cpu")
    texts = [*TEXTS[:20], LONG, *PASSAGES, *(passage for passages in PASSAGES.values() for passage in passages)]
    wanted = theirs.encode(texts, convert_to_sparse_tensor=False).numpy()
    with Embedder(str(folder)) as embedder:
        found = embedder.sparse(texts)
    full = np.zeros_like(wanted)
    for row, one in zip(full, found, strict=True):
        row[one.indices] = one.values
        assert 3 < len(one.indices) < 1000
    assert float(np.abs(full - wanted).max()) <= MOST_DIFFERENCE
    assert np.array_equal(full > MOST_DIFFERENCE, wanted > MOST_DIFFERENCE)
    questions, passages = full[21:24], full[24:].reshape(3, 3, -1)
    assert [int(np.argmax(some @ question)) for question, some in zip(questions, passages, strict=True)] == TRUE


@pytest.mark.large
def test_llama() -> None:
    """SmolLM2's states are those of transformers' LlamaModel, and so is their mean."""
    import torch
    from transformers import AutoModel

    from vecmill.model.spec import read_spec
    from vecmill.model.tokenizer import Tokenizer

    folder = made.made("SmolLM2-135M-Instruct", made.smollm2)
    texts = TEXTS[:6]
    tokens = Tokenizer(read_spec(folder)).encode(texts)
    model = AutoModel.from_pretrained(str(folder), dtype="float32").eval()
    with torch.no_grad():
        states = [model(torch.tensor(one.ids[None]).long()).last_hidden_state[0].numpy() for one in tokens]
    with Embedder(str(folder), settings=Settings(task="embed")) as embedder:
        vectors = embedder.token_vectors(texts)
        rows = embedder.embed(texts)
    for mine, row, wanted in zip(vectors, rows, states, strict=True):
        scale = float(np.abs(wanted).max())
        assert float(np.abs(mine - wanted).max()) <= MOST_DIFFERENCE * scale
        assert float(np.abs(row - wanted.mean(axis=0)).max()) <= MOST_DIFFERENCE * scale


UNKNOWN = 3
"""The id of the unknown token, which model2vec leaves out."""


def test_a_static_model() -> None:
    """A model2vec table with a quantised vocabulary: the weighted mean of the rows that its tokens map to."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = made.made("tokenlearn-static", made.tokenlearn)
    tensors: dict[str, Any] = load_file(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    with Embedder(str(folder)) as embedder:
        rows = embedder.embed(SENTENCES)
    table, places, weights = (tensors[name] for name in ("embeddings", "mapping", "weights"))
    for row, text in zip(rows, SENTENCES, strict=True):
        ids = [token for token in tokenizer.encode(text, add_special_tokens=False).ids if token != UNKNOWN]
        wanted = np.mean([table[places[token]].astype(np.float32) * weights[token] for token in ids], axis=0)
        assert row / np.linalg.norm(row) == pytest.approx(wanted / np.linalg.norm(wanted), abs=1e-4)


def test_pairs_in_company() -> None:
    """A reranker's score has the same bytes alone and among a hundred others."""
    folder = made.made("ms-marco-MiniLM-L-12-v2", made.reranker)
    pairs = [Pair(question, passage) for question, passages in PASSAGES.items() for passage in (*passages, *SENTENCES)]
    with Embedder(str(folder)) as embedder:
        together = embedder.classify(pairs, raw_scores=True)
        alone = np.concatenate([embedder.classify([pair], raw_scores=True) for pair in pairs[::10]])
    assert np.array_equal(together[::10], alone)
