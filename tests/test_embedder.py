"""The engine in-process."""

from pathlib import Path

import numpy as np
import pytest

from vecmill import Embedder
from vecmill.errors import InputTooLong, InvalidRequest, ModelNotFound


@pytest.fixture(scope="module")
def embedder(tiny_folder: Path) -> Embedder:
    """The tiny model."""
    return Embedder(str(tiny_folder))


def test_texts_become_rows(embedder: Embedder) -> None:
    """A list gives a matrix of float32 rows of length 1, in order."""
    rows = embedder.embed(["the cat", "hello world", "the cat"])
    assert rows.shape == (3, embedder.dims)
    assert rows.dtype == np.dtype("float32")
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.array_equal(rows[0], rows[2])


def test_one_text_becomes_one_row(embedder: Embedder) -> None:
    """A string gives a vector."""
    assert np.array_equal(embedder.embed("the cat"), embedder.embed(["the cat"])[0])


def test_there_is_no_limit_on_the_number(embedder: Embedder) -> None:
    """More texts than a request may hold are just as fine."""
    texts = [f"the cat {number % 7}" for number in range(5000)]
    rows = embedder.embed(texts)
    assert rows.shape == (5000, embedder.dims)
    assert np.abs(rows[:7] - rows[4900:4907]).max() < 1e-6


def test_options_are_those_of_a_request(embedder: Embedder) -> None:
    """Prompts, fewer dimensions and refused truncation work as over HTTP."""
    assert np.array_equal(embedder.embed("dog", prompt_name="query"), embedder.embed("query : dog"))
    assert np.linalg.norm(embedder.embed("dog", dimensions=4)) == pytest.approx(1)
    with pytest.raises(InputTooLong, match="more than 40 tokens"):
        embedder.embed("dog " * 50, truncate=False)


def test_precision_is_chosen(tiny_folder: Path, embedder: Embedder) -> None:
    """int8, under any of its names, gives nearly the same vectors and not the same."""
    full = embedder.embed("the cat sat on the mat")
    for name in ("int8", "bitsandbytes"):
        with Embedder(str(tiny_folder), precision=name) as small:
            assert 0.98 < float(small.embed("the cat sat on the mat") @ full) < 0.99999


def test_nothing_to_embed_is_an_error(embedder: Embedder) -> None:
    """An empty list and an empty string are refused, not answered with nothing."""
    with pytest.raises(InvalidRequest, match="empty list"):
        embedder.embed([])
    with pytest.raises(InvalidRequest, match="empty string"):
        embedder.embed("")


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    """A folder that is not there is an error of ours, with its name."""
    with pytest.raises(ModelNotFound, match="nowhere"):
        Embedder(str(tmp_path / "nowhere"))


def test_it_closes(tiny_folder: Path) -> None:
    """As a context manager it stops its threads."""
    with Embedder(str(tiny_folder)) as embedder:
        assert embedder.max_tokens == 40
    with pytest.raises(Exception, match="shutting down"):
        embedder.embed("the cat")
