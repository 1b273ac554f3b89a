"""Rows of several lengths in one pass: the same bytes as alone, in one call of the session."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from checkpoints import write_bert, write_headed, write_modules
from encoders import CONFIGS, write_encoder
from vecmill.engine.base import Batch
from vecmill.engine.onnx import OnnxEngine
from vecmill.graph.build import PACKED
from vecmill.graph.packed import NEAR, layout, near
from vecmill.model.spec import POOLINGS, ModelSpec, read_spec

SHORT = [5, 2, 4, 5, 1, 3, 6, 8, 12, 9, 7, 11, 31, 17, 40, 39, 33, 38]

Ids = NDArray[np.int32]


def texts(spec: ModelSpec, lengths: list[int]) -> list[Ids]:
    """Random ids of these lengths."""
    rng = np.random.default_rng(3)
    return [rng.integers(0, spec.vocab_size, length).astype(np.int32) for length in lengths]


def alone(engine: OnnxEngine, rows: list[Ids], marks: list[int] | None = None) -> NDArray[np.float32]:
    """Each row in a run of its own."""
    numbers: list[list[int] | None] = [None] * len(rows) if marks is None else [[mark] for mark in marks]
    columns = [
        engine.compute(Batch.pack([row], mark), engine._spec.native)[0] for row, mark in zip(rows, numbers, strict=True)
    ]
    return np.concatenate([np.asarray(column) for column in columns])


def all_near(_: int) -> int:
    """Every short length goes with every other."""
    return 0


@pytest.mark.parametrize("mode", ["mean", "cls"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("family", sorted(PACKED & set(CONFIGS) | {"bert"}))
def test_families(tmp_path: Path, family: str, precision: str, mode: str) -> None:
    """A row has the same bytes alone, beside near lengths, and padded to whatever length."""
    folder = write_bert(tmp_path) if family == "bert" else write_encoder(tmp_path, family)
    spec = read_spec(write_modules(folder, pooling={"pooling_mode": mode}))
    engine = OnnxEngine(spec, threads=2, precision=precision)
    rows = texts(engine._spec, SHORT)
    wanted = alone(engine, rows)
    assert np.array_equal(engine.run(Batch.pack(rows)), wanted)
    with patch("vecmill.engine.onnx.near", all_near):
        assert np.array_equal(engine.run(Batch.pack(rows)), wanted)


@pytest.mark.parametrize("mode", POOLINGS)
def test_poolings(tmp_path: Path, mode: str) -> None:
    """With every pooling and what comes after it, for widths that are not round."""
    sizes: dict[str, Any] = {"hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 36}
    folder = write_bert(tmp_path, max_position_embeddings=128, **sizes)
    spec = read_spec(write_modules(folder, pooling={"pooling_mode": mode}, dense={"out_features": 7}))
    engine = OnnxEngine(spec, threads=1)
    rows = texts(spec, [*SHORT, 15, 16, 47, 48, 63, 64])
    wanted = alone(engine, rows)
    with patch("vecmill.engine.onnx.near", all_near):
        assert np.array_equal(engine.run(Batch.pack(rows)), wanted)


@pytest.mark.parametrize("layers", [0, 1])
def test_few_layers(tmp_path: Path, layers: int) -> None:
    """The first token is found where there is no layer to take it."""
    spec = read_spec(write_modules(write_bert(tmp_path, num_hidden_layers=layers), pooling={"pooling_mode": "cls"}))
    engine = OnnxEngine(spec, threads=1)
    rows = texts(spec, [5, 7, 6])
    assert np.array_equal(engine.run(Batch.pack(rows)), alone(engine, rows))


def test_pairs(tmp_path: Path) -> None:
    """A token's type follows its own row's mark."""
    spec = read_spec(write_headed(tmp_path / "rerank", "rerank"))
    engine = OnnxEngine(spec, threads=1)
    rows, marks = texts(spec, [5, 8, 7, 6, 5]), [2, 3, 6, 6, 4]
    given = np.asarray(engine.compute(Batch.pack(rows, marks), ("scores",))[0])
    assert np.array_equal(given, alone(engine, rows, marks))
    assert not np.array_equal(given, np.asarray(engine.compute(Batch.pack(rows, [1, 1, 1, 1, 1]), ("scores",))[0]))


def test_near_lengths_are_one_call(tiny_spec: ModelSpec) -> None:
    """Short rows of near lengths are one run of the session; long ones one for each length."""
    engine = OnnxEngine(tiny_spec, threads=1)
    with patch.object(engine, "_run", wraps=engine._run) as run:
        engine.run(Batch.pack(texts(tiny_spec, [5, 6, 7, 8, 8])))
        assert run.call_count == 1
        engine.run(Batch.pack(texts(tiny_spec, [5, 16, 17])))
        assert run.call_count == 3
    assert engine.alike(5) == engine.alike(16) != engine.alike(17)


def test_near() -> None:
    """Every length up to the longest of `NEAR` goes with the next of them; beyond it stands for itself."""
    assert [near(length) for length in (1, 4, 5, 33, 64, 65, 66)] == [16, 16, 16, 64, 64, 65, 66]
    assert list(NEAR) == sorted(NEAR)


def test_layout() -> None:
    """Rows of 2 and 3 tokens: where each token is, and which places are none."""
    made = {name: array.tolist() for name, array in layout([2, 3]).items()}
    assert made == {"places": [[0, 1, 0], [2, 3, 4]], "kept": [0, 1, 3, 4, 5], "lengths": [2, 3]}
