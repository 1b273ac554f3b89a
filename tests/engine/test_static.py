"""What the engine of static models promises beyond the contract."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from static_checkpoints import TABLE, write_model2vec, write_static
from vecmill.config import Settings
from vecmill.embedder import Embedder
from vecmill.engine.base import Batch
from vecmill.engine.static import CHUNK, StaticEngine
from vecmill.errors import InvalidRequest, UnsupportedModel
from vecmill.model.spec import read_spec

RNG = np.random.default_rng(1)
MAPPING = RNG.integers(0, 9, len(TABLE))
WEIGHTS = RNG.random(len(TABLE)).astype(np.float32)
BYTES = RNG.integers(-127, 128, (9, 16)).astype(np.int8)
TENSORS: dict[str, dict[str, Any]] = {
    "float32": {"embeddings": TABLE},
    "float16": {"embeddings": TABLE.astype(np.float16)},
    "float64": {"embeddings": TABLE.astype(np.float64)},
    "int8": {"embeddings": BYTES[MAPPING]},
    "weights": {"embeddings": TABLE, "weights": WEIGHTS},
    "mapping": {"embeddings": TABLE[:9], "mapping": MAPPING},
    "both": {"embeddings": TABLE[:9], "mapping": MAPPING.astype(np.int32), "weights": WEIGHTS.astype(np.float64)},
    "bytes": {"embeddings": BYTES, "mapping": MAPPING, "weights": WEIGHTS},
}
"""Tables as model2vec writes them."""

LENGTHS = (1, 2, 7, 16, 33, 100, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5)


def expected(ids: NDArray[np.int32], tensors: dict[str, Any], *, normalize: bool = False) -> NDArray[np.float64]:
    """The row of a text as model2vec computes it, in float64: mean of weight times vector."""
    rows = ids if "mapping" not in tensors else tensors["mapping"][ids]
    vectors = tensors["embeddings"][rows].astype(np.float64)
    if "weights" in tensors:
        vectors *= tensors["weights"][ids][:, None]
    row: NDArray[np.float64] = vectors.mean(axis=0)
    return row / np.linalg.norm(row) if normalize else row


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", TENSORS)
def test_rows_are_means(tmp_path: Path, kind: str, *, normalize: bool) -> None:
    """A row is the mean of the tokens' vectors, each from its row of the table and times its weight."""
    spec = read_spec(write_model2vec(tmp_path, tensors=TENSORS[kind], model_type="model2vec", normalize=normalize))
    engine = StaticEngine(spec)
    texts = [RNG.integers(0, len(TABLE), length).astype(np.int32) for length in LENGTHS]
    for ids, row in zip(texts, engine.run(Batch.pack(texts)), strict=True):
        assert row == pytest.approx(expected(ids, TENSORS[kind], normalize=normalize), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("kind", TENSORS)
def test_bytes_do_not_depend_on_mates(tmp_path: Path, kind: str, precision: str) -> None:
    """A text's row has the same bytes alone and in a batch, at every length and in every kind of table."""
    spec = read_spec(write_model2vec(tmp_path, tensors=TENSORS[kind], model_type="model2vec", normalize=True))
    engine = StaticEngine(spec, precision=precision)
    for length in LENGTHS:
        texts = list(RNG.integers(0, len(TABLE), (5, length)).astype(np.int32))
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in texts])
        for size in (2, 5):
            assert np.array_equal(engine.run(Batch.pack(texts[:size])), alone[:size]), (length, size)


@pytest.mark.parametrize("kind", TENSORS)
def test_int8_is_near_and_small(tmp_path: Path, kind: str) -> None:
    """In int8 a table has a scale a row; rows stay within a hundredth, and integers stay what they are."""
    spec = read_spec(write_model2vec(tmp_path, tensors=TENSORS[kind], model_type="model2vec", normalize=True))
    whole, small = (StaticEngine(spec, precision=precision) for precision in ("float32", "int8"))
    batch = Batch.pack([RNG.integers(0, len(TABLE), 20).astype(np.int32)])
    cosine = float(np.sum(whole.run(batch) * small.run(batch)))
    assert cosine == pytest.approx(1, abs=1e-3)
    if TENSORS[kind]["embeddings"].dtype == np.int8:
        assert np.array_equal(whole.run(batch), small.run(batch))
    else:
        assert small.weight_bytes < whole.weight_bytes


@pytest.mark.parametrize("precision", ["int4", "float16"])
def test_other_precisions_are_refused(tmp_path: Path, precision: str) -> None:
    """A precision that a table is not kept in is refused with those that it has."""
    with pytest.raises(UnsupportedModel, match=f"no precision '{precision}'; it has: float32, int8"):
        StaticEngine(read_spec(write_static(tmp_path)), precision=precision)


def test_a_float32_table_stays_in_its_file(tmp_path: Path) -> None:
    """A table is mapped, not copied: its pages are read when a token is first seen."""
    array: Any = StaticEngine(read_spec(write_static(tmp_path)))._table.values
    while isinstance(array.base, np.ndarray):
        array = array.base
    assert isinstance(array, np.memmap)


def test_no_token_gives_zeros(tmp_path: Path) -> None:
    """A text without tokens gets zeros, not NaN, beside others and alone."""
    engine = StaticEngine(read_spec(write_static(tmp_path)))
    nothing, something = np.array([], dtype=np.int32), np.array([5, 6], dtype=np.int32)
    assert not np.any(engine.run(Batch.pack([nothing])))
    assert np.any(engine.run(Batch.pack([nothing, something])), axis=1).tolist() == [False, True]


def test_a_text_without_known_tokens_is_the_callers(tmp_path: Path) -> None:
    """A text of which no token is left is refused by its number before the engine sees it."""
    with Embedder(str(write_model2vec(tmp_path)), settings=Settings(threads=1)) as embedder:
        assert np.linalg.norm(embedder.embed("cat 中")) == pytest.approx(1)
        for nothing in ("中", " ", "\x07"):
            with pytest.raises(InvalidRequest, match=r"input\[1\] holds no token that .* knows"):
                embedder.embed(["cat", nothing])


def test_short_requests_of_many_threads_have_their_own_bytes(tmp_path: Path) -> None:
    """Short requests run in the threads in which they come, several at once: each has what it has alone."""
    with Embedder(str(write_model2vec(tmp_path)), settings=Settings(threads=1, result_cache_mb=0)) as embedder:
        texts = [" ".join(words) for words in product(("cat", "dog", "the"), repeat=4)]
        alone = [embedder.embed(text).tobytes() for text in texts]
        with ThreadPoolExecutor(8) as threads:
            for rows in threads.map(embedder.embed, [texts[n:] + texts[:n] for n in range(len(texts))]):
                turned = [row.tobytes() for row in rows]
                first = turned.index(alone[0])
                assert turned[first:] + turned[:first] == alone
            assert [row.tobytes() for row in threads.map(embedder.embed, texts * 10)] == alone * 10


def test_a_dense_is_refused(tmp_path: Path) -> None:
    """A Dense after the table is refused, not left out."""
    from checkpoints import write_dense

    write_dense(tmp_path / "1_Dense", {"in_features": 16, "out_features": 4, "bias": True})
    with pytest.raises(UnsupportedModel, match="only Normalize is supported"):
        StaticEngine(read_spec(write_static(tmp_path, modules=("Dense",))))
