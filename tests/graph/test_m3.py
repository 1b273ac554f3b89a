"""BGE-M3: a vector, weights of the text's own tokens, and vectors of tokens, from one pass."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from checkpoints import write_modules
from encoders import write_encoder
from torch_files import write_torch
from vecmill.config import Settings
from vecmill.core import Output, Sparse
from vecmill.embedder import Embedder
from vecmill.engine.base import Batch, Column, load_engine
from vecmill.engine.onnx import OnnxEngine
from vecmill.errors import CorruptFile, WrongTask
from vecmill.model.spec import read_spec

Rows = NDArray[np.float32]

TEXTS = ["the cat sat the cat", "dog", "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2]
ALL: tuple[Output, ...] = ("dense", "sparse", "multi")


def write_m3(folder: Path) -> tuple[Rows, Rows]:
    """A tiny XLM-RoBERTa with M3's two linear layers beside it; their weights."""
    write_modules(write_encoder(folder, "xlm-roberta"), pooling={"pooling_mode": "cls"})
    rng = np.random.default_rng(3)
    sparse, colbert = (rng.normal(size=(rows, 16)).astype(np.float32) for rows in (1, 12))
    zeros = [np.zeros(len(weight), dtype=np.float32) for weight in (sparse, colbert)]
    write_torch(folder / "sparse_linear.pt", {"weight": sparse, "bias": zeros[0] + np.float32(0.1)})
    write_torch(folder / "colbert_linear.pt", {"weight": colbert, "bias": zeros[1] - np.float32(0.2)})
    return sparse, colbert


def states_of(folder: Path, ids: NDArray[np.int32]) -> Rows:
    """The encoder's states, from a graph that knows nothing of M3, [tokens, width]."""
    kept = [path.rename(path.with_suffix(".away")) for path in folder.glob("*.pt")]
    (column,) = load_engine("onnx", read_spec(folder), threads=1).compute(Batch.pack([ids]), ["multi"])
    for path in kept:
        path.rename(path.with_suffix(".pt"))
    return np.asarray(column[0])


def test_the_three_are_what_the_paper_says(tmp_path: Path) -> None:
    """The first state normalised; the largest weight of each token, special ones left out; all states but the first."""
    sparse, colbert = write_m3(tmp_path)
    spec = read_spec(tmp_path)
    assert spec.outputs == ("dense", "sparse", "multi")
    with Embedder(str(tmp_path), settings=Settings(threads=1)) as embedder:
        (result,) = embedder.encode(TEXTS, ALL)
        tokens = [embedder._model.tokenizer.encode([text])[0].ids for text in TEXTS]
    for ids, row, weights, vectors in zip(tokens, result.rows, result.sparse, result.multi, strict=True):
        states = states_of(tmp_path, ids)
        assert row == pytest.approx(states[0] / np.linalg.norm(states[0]), abs=1e-5)
        wanted: dict[int, float] = {}
        for token, weight in zip(ids.tolist(), np.maximum(states @ sparse[0] + 0.1, 0).tolist(), strict=True):
            if token > 3 and weight > 0:  # 0 to 3 are <s>, <pad>, </s> and <unk>
                wanted[token] = max(wanted.get(token, 0.0), weight)
        assert dict(zip(weights.indices.tolist(), weights.values.tolist(), strict=True)) == pytest.approx(
            wanted, abs=1e-5
        )
        assert list(weights.indices) == sorted(wanted)
        projected = states[1:] @ colbert.T - 0.2
        assert vectors == pytest.approx(projected / np.linalg.norm(projected, axis=1, keepdims=True), abs=1e-5)


def test_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three come from one run of the engine, and no second graph is built for any of them."""
    write_m3(tmp_path)
    calls: list[tuple[Output, ...]] = []
    true_compute = OnnxEngine.compute

    def compute(engine: OnnxEngine, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        calls.append(tuple(outputs))
        return true_compute(engine, batch, outputs)

    with Embedder(str(tmp_path), settings=Settings(threads=1)) as embedder:
        monkeypatch.setattr(OnnxEngine, "compute", compute)
        list(embedder.encode(["the cat"], ALL))
        assert calls == [ALL]
        for outputs in (("dense",), ("sparse",), ("sparse", "dense"), ("multi",)):
            list(embedder.encode(["the cat"], outputs))
        engine = embedder._model.runner._engines.wide
        assert isinstance(engine, OnnxEngine)
        assert list(engine._sessions) == [ALL]


def test_bytes(tmp_path: Path) -> None:
    """Each output has the same bytes alone, with the others, and beside other texts."""
    write_m3(tmp_path)
    with Embedder(str(tmp_path), settings=Settings(threads=2)) as embedder:
        (together,) = embedder.encode(TEXTS, ALL)
        for number, text in enumerate(TEXTS):
            assert np.array_equal(embedder.embed([text])[0], together.rows[number])
            assert np.array_equal(embedder.sparse([text])[0].values, together.sparse[number].values)
            assert np.array_equal(embedder.token_vectors([text])[0], together.multi[number])


def test_reranking_by_tokens(tmp_path: Path) -> None:
    """Documents are scored by MaxSim where there is no classifier; a text answers itself best."""
    write_m3(tmp_path)
    with Embedder(str(tmp_path), settings=Settings(threads=1)) as embedder:
        scores = embedder.rerank("the cat sat", ["dog", "the cat sat", "hello"])
        assert scores.argmax() == 1
        assert scores[1] == pytest.approx(1, abs=1e-5)
        raw = embedder.rerank("the cat sat", ["the cat sat"], raw_scores=True)
        assert raw == pytest.approx(len(embedder.token_vectors(["the cat sat"])[0]), abs=1e-4)


def test_others_have_no_weights(tmp_path: Path) -> None:
    """An encoder without M3's layers is asked in vain."""
    write_modules(write_encoder(tmp_path, "xlm-roberta"))
    with (
        Embedder(str(tmp_path), settings=Settings(threads=1)) as embedder,
        pytest.raises(WrongTask, match="not sparse"),
    ):
        embedder.sparse(["the cat"])


def test_a_layer_of_another_width(tmp_path: Path) -> None:
    """A layer that does not fit the encoder is an error before ready."""
    write_m3(tmp_path)
    write_torch(
        tmp_path / "sparse_linear.pt", {"weight": np.ones((1, 8), dtype=np.float32), "bias": np.ones(1, np.float32)}
    )
    with pytest.raises(CorruptFile):
        Embedder(str(tmp_path), settings=Settings(threads=1))


def test_the_largest_weight_of_each_token() -> None:
    """Repeated tokens count once, ignored ones and those without weight not at all."""
    weights = np.array([5, 1, 3, 2, 0], dtype=np.float32)
    found = Sparse.of_tokens(weights, np.array([0, 7, 9, 7, 8], dtype=np.int32), frozenset({0}))
    assert found.indices.tolist() == [7, 9]
    assert found.values.tolist() == [2, 3]
