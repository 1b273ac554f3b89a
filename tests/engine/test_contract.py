"""What every engine promises, whatever it computes with. A new engine is a row of `ENGINES` and runs all of this."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from checkpoints import write_bert, write_modules
from exported_checkpoints import write_exported, write_onnx
from static_checkpoints import write_static
from vecmill.engine.base import ENGINES, Batch, Engine, load_engine
from vecmill.graph.quantize import PRECISIONS
from vecmill.model.spec import ModelSpec, read_spec

LENGTHS = [1, 2, 3, 7, 8, 16, 33, 40]

Ids = NDArray[np.int32]


def write_both(folder: Path) -> Path:
    """A checkpoint with an ONNX file and a quantised one."""
    write_onnx(write_exported(folder) / "onnx/model_quantized.onnx", quantized=True)
    return write_modules(folder)


CHECKPOINTS: dict[str, Callable[[Path], Path]] = {
    "fake": lambda folder: write_modules(write_bert(folder)),
    "onnx": lambda folder: write_modules(write_bert(folder)),
    "exported": write_both,
    "static": write_static,
    "torch": lambda folder: write_modules(write_bert(folder)),
}
"""Engine to what writes a tiny checkpoint for it; all are of 40 tokens and 16 numbers."""

KINDS = [
    ("fake", "float32"),
    *(("onnx", precision) for precision in PRECISIONS),
    ("exported", "float32"),
    ("exported", "int8"),
    ("static", "float32"),
    ("static", "int8"),
]
"""Every engine, in every precision that it has."""

ORDERLESS = {"static"}
"""Engines for which a text is a bag of tokens."""


WITH_TORCH = [
    pytest.param(("torch", precision), id=f"torch-{precision}", marks=pytest.mark.reference)
    for precision in ("float32", "bfloat16", "float16")
]
"""The same of the engine that only the environment of `make test-reference` has."""


@pytest.fixture(scope="module", params=[*(pytest.param(kind, id="-".join(kind)) for kind in KINDS), *WITH_TORCH])
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each engine with each of its precisions."""
    name, precision = request.param
    return name, precision


@pytest.fixture(scope="module")
def tiny(kind: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """The tiny checkpoint of the engine."""
    return read_spec(CHECKPOINTS[kind[0]](tmp_path_factory.mktemp("checkpoints") / kind[0]))


@pytest.fixture
def engine(kind: tuple[str, str], tiny: ModelSpec) -> Iterator[Engine]:
    """Each engine on its tiny checkpoint, with two threads."""
    name, precision = kind
    one = load_engine(name, tiny, threads=2, precision=precision)
    yield one
    one.close()


def texts(spec: ModelSpec, lengths: list[int], seed: int = 0) -> list[Ids]:
    """Random ids of these lengths."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, spec.vocab_size, length).astype(np.int32) for length in lengths]


def test_shape_and_type(engine: Engine, tiny: ModelSpec) -> None:
    """A batch gives one row for each text, float32 and of the model's width."""
    rows = engine.run(Batch.pack(texts(tiny, [5, 9, 5])))
    assert rows.shape == (3, tiny.dims)
    assert rows.dtype == np.float32


@pytest.mark.parametrize("length", LENGTHS)
def test_one_text(engine: Engine, tiny: ModelSpec, length: int) -> None:
    """A text alone, of 1 token up to the model's limit, gives a row of finite numbers that are not all zero."""
    assert max(LENGTHS) == tiny.max_tokens
    row = engine.run(Batch.pack(texts(tiny, [length])))[0]
    assert np.isfinite(row).all()
    assert np.any(row)


def test_rows_are_in_the_order_of_the_texts(engine: Engine, tiny: ModelSpec) -> None:
    """Row i belongs to text i, whatever order of lengths the engine prefers."""
    batch = texts(tiny, [9, 3, 40, 3, 1, 9, 8])
    rows = engine.run(Batch.pack(batch))
    for number, ids in enumerate(batch):
        assert rows[number] == pytest.approx(engine.run(Batch.pack([ids]))[0], abs=1e-6)


def test_equal_texts_have_equal_rows(engine: Engine, tiny: ModelSpec) -> None:
    """The same text gives the same bytes everywhere in a batch and in every run."""
    first, second = texts(tiny, [7, 12])
    rows = engine.run(Batch.pack([first, second, first, second, first]))
    assert np.array_equal(rows[[0, 1, 0]], rows[[2, 3, 4]])
    assert np.array_equal(rows, engine.run(Batch.pack([first, second, first, second, first])))


def test_other_texts_have_other_rows(engine: Engine, kind: tuple[str, str]) -> None:
    """Texts that differ in a token, in length or in the order of their tokens, where it counts, have other rows."""
    written = [[2, 9, 11, 3], [2, 9, 12, 3], [2, 9, 11, 11, 3], [2, 11, 9, 3]]
    batch = [np.array(ids, dtype=np.int32) for ids in written[: 3 if kind[0] in ORDERLESS else None]]
    rows = engine.run(Batch.pack(batch))
    distances = np.abs(rows[:, None] - rows[None]).max(-1)
    assert np.all(distances[~np.eye(len(batch), dtype=bool)] > 0.01)


@pytest.mark.parametrize("mates", [1, 2, 8, 31])
@pytest.mark.parametrize("length", LENGTHS)
def test_mates_do_not_matter(engine: Engine, tiny: ModelSpec, length: int, mates: int) -> None:
    """A text's row is the same alone and among others, of its own length and of all."""
    ids = texts(tiny, [length])[0]
    alone = engine.run(Batch.pack([ids]))[0]
    equal = engine.run(Batch.pack([*texts(tiny, [length] * mates, 1), ids]))[-1]
    mixed = engine.run(Batch.pack([ids, *texts(tiny, (LENGTHS * 4)[:mates], 2)]))[0]
    assert equal == pytest.approx(alone, abs=1e-6)
    assert mixed == pytest.approx(alone, abs=1e-6)


def test_the_batch_is_left_alone(engine: Engine, tiny: ModelSpec) -> None:
    """Running a batch changes neither its ids nor the rows of the run before."""
    batch = Batch.pack(texts(tiny, [4, 4, 6]))
    ids = batch.ids.copy()
    before = engine.run(batch)
    kept = before.copy()
    engine.run(Batch.pack(texts(tiny, [4, 4, 6], 1)))
    assert np.array_equal(batch.ids, ids)
    assert np.array_equal(before, kept)


def test_close(kind: tuple[str, str], tiny: ModelSpec) -> None:
    """An engine that has run closes without a word."""
    engine = load_engine(kind[0], tiny, threads=1, precision=kind[1])
    engine.run(Batch.pack(texts(tiny, [3])))
    engine.close()


def test_every_engine_is_here() -> None:
    """No engine escapes this suite."""
    assert {name for name, _ in KINDS} | {"torch"} == set(ENGINES) == set(CHECKPOINTS)


def test_pack() -> None:
    """A batch lays rows end to end and knows where each begins."""
    batch = Batch.pack([np.array([5, 6], dtype=np.int32), np.array([7], dtype=np.int32)])
    assert (batch.ids.tolist(), batch.offsets.tolist(), batch.lengths.tolist()) == ([5, 6, 7], [0, 2, 3], [2, 1])
    assert {batch.ids.dtype, batch.offsets.dtype} == {np.dtype(np.int32)}
