"""Inputs longer than the model takes, read in chunks."""

from typing import Any

import numpy as np
import pytest

from checkpoints import VOCABULARY
from conftest import Serve
from vecmill.core import Options, Request, Result
from vecmill.engine.fake import FakeEngine
from vecmill.errors import EngineFailed, InputTooLong, InvalidRequest
from vecmill.serving.served import ServedModel

WORDS = ["the", "cat", "sat", "on", "the", "mat", "a", "dog"] * 12
LONG = " ".join(WORDS)
ROOM = 38
"""Tokens of text in an input of 40."""


def ask(model: ServedModel, *inputs: Any, outputs: Any = ("dense",), **options: Any) -> Result:
    """Compute on this thread."""
    return model.compute(Request(model=None, inputs=list(inputs), outputs=outputs, options=Options(**options)))


def pieces(words: list[str], size: int = ROOM) -> list[list[str]]:
    """The words in chunks; each is a token."""
    return [words[start : start + size] for start in range(0, len(words), size)]


@pytest.mark.parametrize("normalize", [None, True, False])
@pytest.mark.parametrize("dimensions", [None, 5])
def test_the_mean_is_what_one_gets_by_hand(serve: Serve, normalize: bool | None, dimensions: int | None) -> None:
    """The vector is the mean of what the chunks get as inputs of their own, weighted by tokens."""
    model, wishes = serve(), {"normalize": normalize, "dimensions": dimensions}
    parts = pieces(WORDS)
    rows = ask(model, *(" ".join(part) for part in parts), **wishes).rows
    wanted = np.average(rows.astype(np.float64), axis=0, weights=[len(part) for part in parts])
    if normalize is not False:
        wanted /= np.linalg.norm(wanted)
    given = ask(model, LONG, chunked=True, **wishes)
    assert given.rows[0] == pytest.approx(wanted, abs=1e-6)
    assert given.rows.shape == (1, dimensions or 16)


def test_nothing_is_lost_and_all_is_counted(serve: Serve) -> None:
    """Tokens are those of all chunks with their frames; no input counts as cut; the end of a text matters."""
    model = serve()
    given = ask(model, "hello", LONG, LONG + " hello", chunked=True)
    assert given.tokens == [3, 96 + 3 * 2, 97 + 3 * 2]
    assert given.truncated == 0
    assert not np.allclose(given.rows[1], given.rows[2])


def test_what_fits_is_as_ever(serve: Serve) -> None:
    """Inputs that fit get the same bytes beside long ones, with the option and without."""
    model = serve()
    texts = ["the cat", " ".join(WORDS[:ROOM]), "hello"]
    mixed = ask(model, texts[0], LONG, *texts[1:], chunked=True).rows
    assert np.array_equal(mixed[[0, 2, 3]], ask(model, *texts).rows)


def test_each_chunk_has_the_prompt(serve: Serve) -> None:
    """The prompt stands before every chunk and takes its room, but weighs nothing."""
    model = serve()
    parts = pieces(WORDS, ROOM - 2)
    rows = ask(model, *(" ".join(part) for part in parts), prompt_name="query").rows
    wanted = np.average(rows, axis=0, weights=[len(part) for part in parts])
    given = ask(model, LONG, chunked=True, prompt_name="query")
    assert given.rows[0] == pytest.approx(wanted / np.linalg.norm(wanted), abs=1e-6)
    assert given.tokens == [96 + 3 * 4]


def test_token_ids_are_read_as_their_text(serve: Serve) -> None:
    """A long array of the model's ids gives the bytes of its text."""
    model = serve()
    ids = [VOCABULARY[word] for word in WORDS]
    given = ask(model, ids, chunked=True, token_vocabulary="native").rows
    assert np.array_equal(given, ask(model, LONG, chunked=True).rows)


def test_the_length_of_a_chunk_can_be_said(serve: Serve) -> None:
    """`max_tokens` makes chunks shorter."""
    model = serve()
    rows = ask(model, "the cat", "sat on", "the").rows
    wanted = np.average(rows, axis=0, weights=[2, 2, 1])
    given = ask(model, "the cat sat on the", chunked=True, max_tokens=4).rows[0]
    assert given == pytest.approx(wanted / np.linalg.norm(wanted), abs=1e-6)


def test_an_error_names_the_input(serve: Serve, fake: FakeEngine) -> None:
    """Where a chunk breaks the engine the error names the input, not the chunk."""
    fake.faults[VOCABULARY["hello"]] = "raise"
    with pytest.raises(EngineFailed, match="input 1: "):
        ask(serve(fake), LONG, LONG + " hello", chunked=True)


def test_what_has_no_mean(serve: Serve) -> None:
    """Vectors of tokens are refused, and more chunks than a request may hold inputs."""
    with pytest.raises(InvalidRequest, match="only vectors have a mean over chunks, and multi is asked") as refused:
        ask(serve(), LONG, outputs=("multi",), chunked=True)
    assert refused.value.param == "long_inputs"
    with pytest.raises(InputTooLong, match=r"input\[0\] makes 3 chunks; an input may make at most 2"):
        ask(serve(max_inputs=2), LONG, chunked=True)
