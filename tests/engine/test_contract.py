"""What every engine promises, whatever it computes with. A new engine is a row of `ENGINES` and runs all of this."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.engine.base import ENGINES, Batch, Engine, load_engine
from vecmill.model.spec import ModelSpec

LENGTHS = [1, 2, 3, 7, 8, 16, 33, 40]

Ids = NDArray[np.int32]


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest, tiny_spec: ModelSpec) -> Iterator[Engine]:
    """Each engine on the tiny checkpoint, with two threads."""
    one = load_engine(request.param, tiny_spec, threads=2)
    yield one
    one.close()


def texts(spec: ModelSpec, lengths: list[int], seed: int = 0) -> list[Ids]:
    """Random ids of these lengths."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, spec.vocab_size, length).astype(np.int32) for length in lengths]


def test_shape_and_type(engine: Engine, tiny_spec: ModelSpec) -> None:
    """A batch gives one row for each text, float32 and of the model's width."""
    rows = engine.run(Batch.pack(texts(tiny_spec, [5, 9, 5])))
    assert rows.shape == (3, tiny_spec.dims)
    assert rows.dtype == np.float32


@pytest.mark.parametrize("length", LENGTHS)
def test_one_text(engine: Engine, tiny_spec: ModelSpec, length: int) -> None:
    """A text alone, of 1 token up to the model's limit, gives a row of finite numbers that are not all zero."""
    assert max(LENGTHS) == tiny_spec.max_tokens
    row = engine.run(Batch.pack(texts(tiny_spec, [length])))[0]
    assert np.isfinite(row).all()
    assert np.any(row)


def test_rows_are_in_the_order_of_the_texts(engine: Engine, tiny_spec: ModelSpec) -> None:
    """Row i belongs to text i, whatever order of lengths the engine prefers."""
    batch = texts(tiny_spec, [9, 3, 40, 3, 1, 9, 8])
    rows = engine.run(Batch.pack(batch))
    for number, ids in enumerate(batch):
        assert rows[number] == pytest.approx(engine.run(Batch.pack([ids]))[0], abs=1e-6)


def test_equal_texts_have_equal_rows(engine: Engine, tiny_spec: ModelSpec) -> None:
    """The same text gives the same bytes everywhere in a batch and in every run."""
    first, second = texts(tiny_spec, [7, 12])
    rows = engine.run(Batch.pack([first, second, first, second, first]))
    assert np.array_equal(rows[[0, 1, 0]], rows[[2, 3, 4]])
    assert np.array_equal(rows, engine.run(Batch.pack([first, second, first, second, first])))


def test_other_texts_have_other_rows(engine: Engine) -> None:
    """Texts that differ in a token, in the order of their tokens or in length have other rows."""
    batch = [np.array(ids, dtype=np.int32) for ids in ([2, 9, 11, 3], [2, 9, 12, 3], [2, 11, 9, 3], [2, 9, 11, 11, 3])]
    rows = engine.run(Batch.pack(batch))
    distances = np.abs(rows[:, None] - rows[None]).max(-1)
    assert np.all(distances[~np.eye(len(batch), dtype=bool)] > 0.01)


@pytest.mark.parametrize("mates", [1, 2, 8, 31])
@pytest.mark.parametrize("length", LENGTHS)
def test_mates_do_not_matter(engine: Engine, tiny_spec: ModelSpec, length: int, mates: int) -> None:
    """A text's row is the same alone and among others, of its own length and of all."""
    ids = texts(tiny_spec, [length])[0]
    alone = engine.run(Batch.pack([ids]))[0]
    equal = engine.run(Batch.pack([*texts(tiny_spec, [length] * mates, 1), ids]))[-1]
    mixed = engine.run(Batch.pack([ids, *texts(tiny_spec, (LENGTHS * 4)[:mates], 2)]))[0]
    assert equal == pytest.approx(alone, abs=1e-6)
    assert mixed == pytest.approx(alone, abs=1e-6)


def test_the_batch_is_left_alone(engine: Engine, tiny_spec: ModelSpec) -> None:
    """Running a batch changes neither its ids nor the rows of the run before."""
    batch = Batch.pack(texts(tiny_spec, [4, 4, 6]))
    ids = batch.ids.copy()
    before = engine.run(batch)
    kept = before.copy()
    engine.run(Batch.pack(texts(tiny_spec, [4, 4, 6], 1)))
    assert np.array_equal(batch.ids, ids)
    assert np.array_equal(before, kept)


def test_close(tiny_spec: ModelSpec) -> None:
    """An engine that has run closes without a word."""
    for name in ENGINES:
        engine = load_engine(name, tiny_spec, threads=1)
        engine.run(Batch.pack(texts(tiny_spec, [3])))
        engine.close()


def test_pack() -> None:
    """A batch lays rows end to end and knows where each begins."""
    batch = Batch.pack([np.array([5, 6], dtype=np.int32), np.array([7], dtype=np.int32)])
    assert (batch.ids.tolist(), batch.offsets.tolist(), batch.lengths.tolist()) == ([5, 6, 7], [0, 2, 3], [2, 1])
    assert {batch.ids.dtype, batch.offsets.dtype} == {np.dtype(np.int32)}
