"""The demo model ranks the STS-B test pairs as its authors published."""

import csv
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.engine.base import Batch
from vecmill.engine.onnx import OnnxEngine
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

pytestmark = pytest.mark.model

DATA = Path(__file__).parents[3] / "shared" / "data" / "stsbenchmark-test.tsv"
BATCH = 128


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, str]]:
    """The 1379 pairs of the test split with the scores that people gave them."""
    if not DATA.is_file():
        pytest.skip(f"no {DATA.name} beside the repository")
    with DATA.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_spearman(minilm_folder: Path, pairs: list[dict[str, str]]) -> None:
    """Cosines and human scores correlate by 0.8203 (Spearman), the published value."""
    rows = embed(minilm_folder, [pair[key] for key in ("sentence1", "sentence2") for pair in pairs])
    first, second = np.split(rows, 2)
    scores = np.array([float(pair["score"]) for pair in pairs])
    cosines = np.sum(first * second, axis=1)
    assert len(pairs) == 1379
    assert spearman(cosines, scores) == pytest.approx(0.8203, abs=0.0005)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([3.0, 1.0, 2.0], [3.0, 1.0, 2.0]), ([5.0, 5.0, 1.0, 9.0], [2.5, 2.5, 1.0, 4.0])],
)
def test_ranks(values: list[float], wanted: list[float]) -> None:
    """Equal values share the mean of their ranks."""
    assert ranks(np.array(values)).tolist() == wanted


def embed(folder: Path, texts: list[str]) -> NDArray[np.float32]:
    """Vectors in the order of the texts, batched by length."""
    spec = read_spec(folder)
    engine = OnnxEngine(spec, threads=2)
    ids = [tokens.ids for tokens in Tokenizer(spec).encode(texts)]
    order = np.argsort([len(row) for row in ids], kind="stable")
    rows = np.empty((len(ids), spec.dims), dtype=np.float32)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        rows[chosen] = engine.run(Batch.pack([ids[number] for number in chosen]))
    engine.close()
    return rows


def spearman(x: NDArray[np.floating], y: NDArray[np.floating]) -> float:
    """Spearman's rank correlation: Pearson's of the ranks."""
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = (2 * last - counts + 1) / 2
    return means[group]
