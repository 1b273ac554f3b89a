"""Chunks of one document as tokens, and the windows in which it is read."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from checkpoints import VOCABULARY
from encoders import FAMILIES, write_encoder
from vecmill.core import Ranges
from vecmill.errors import InvalidRequest
from vecmill.model.document import join, of_ids, of_texts, read, window_starts
from vecmill.model.spec import ModelSpec, read_spec
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import OWN, Cut


@pytest.fixture
def tokenizer(tiny_spec: ModelSpec) -> Tokenizer:
    """A WordPiece of few words; 40 tokens, two of them special."""
    return Tokenizer(tiny_spec)


def test_a_space_goes_where_there_is_no_white_space() -> None:
    """Chunks do not grow together, and what has white space at the seam stays as it is."""
    text, ranges = join(["a b", "c ", "d", "\ne"])
    assert text == "a b c d\ne"
    assert [text[start:end] for start, end in ranges] == ["a b", "c ", "d", "\ne"]


def test_ranges_count_tokens_and_characters(tokenizer: Tokenizer) -> None:
    """Ranges are those of the document alone: neither its prompt nor special tokens count."""
    document = of_texts(tokenizer, ["the cat", "walks on", "."], "query : ")
    assert document.lead == [VOCABULARY["query"], VOCABULARY[":"]]
    words = ["the", "cat", "walk", "##s", "on", "."]
    assert document.ids == [VOCABULARY[word] for word in words]
    assert document.ranges == [Ranges((0, 2), (0, 7)), Ranges((2, 5), (8, 16)), Ranges((5, 6), (17, 18))]


def test_ids_are_read_as_their_texts(tokenizer: Tokenizer) -> None:
    """Arrays of ids, framed or not, are the tokens of their texts, without characters."""
    texts = ["the cat", "sat on"]
    arrays = [tokenizer.encode([texts[0]])[0].ids.tolist(), tokenizer.whole(texts[1])]
    document, wanted = of_ids(tokenizer, arrays, "query : "), of_texts(tokenizer, texts, "query : ")
    assert (document.lead, document.ids) == (wanted.lead, wanted.ids)
    assert document.ranges == [Ranges((0, 2), None), Ranges((2, 4), None)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tokenizer_keeps_chunks_apart(tmp_path: Path, family: str) -> None:
    """Whatever a tokenizer does with spaces, a chunk's tokens spell the chunk."""
    tokenizer = Tokenizer(read_spec(write_encoder(tmp_path, family)))
    chunks = ["the cat", "sat on", " the mat "]
    document = of_texts(tokenizer, chunks, "the ")
    spelled = [
        tokenizer.native.decode(document.ids[slice(*one.tokens)]).replace(" ", "").lower() for one in document.ranges
    ]
    assert spelled == [chunk.replace(" ", "") for chunk in chunks]


def test_windows_cover_and_overlap() -> None:
    """Windows have one size, begin and end with the document, and share a quarter or more of it with the next."""
    assert window_starts(40, 40) == [0]
    assert window_starts(41, 40) == [0, 1]
    assert window_starts(100, 40) == [0, 30, 60]
    assert window_starts(101, 40) == [0, 20, 40, 61]
    assert window_starts(3, 1) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(40))
def test_each_token_is_pooled_once(tokenizer: Tokenizer, seed: int) -> None:
    """Each token's state is taken once, where it has the most context; all that is read is counted."""
    rng = np.random.default_rng(seed)
    sizes, limit = rng.integers(1, 60, rng.integers(1, 12)).tolist(), int(rng.integers(5, 41))
    document = of_texts(tokenizer, [" ".join(["cat"] * size) for size in sizes], "query : ")
    reading = read(tokenizer, document, Cut(max_tokens=limit))
    room, count, ahead = limit - 4, len(document.ids), 3
    starts = window_starts(count, room)
    taken: dict[int, int] = {}
    for owner, parts in enumerate(reading.parts):
        for part in parts:
            last = len(reading.windows[part.window].ids) - 1
            for place in range(max(part.start, ahead), min(part.stop, last)):
                at = starts[part.window] + place - ahead
                assert at not in taken
                assert document.owners[at] == owner
                taken[at] = part.window
    assert sorted(taken) == list(range(count))
    assert all(context(at, starts, room, count)[window] for at, window in taken.items())
    assert sum(reading.counts) == sum(len(one.ids) for one in reading.windows)
    assert reading.parts[0][0].start == 0
    assert reading.parts[-1][-1].stop == len(reading.windows[-1].ids)


def context(at: int, starts: list[int], room: int, count: int) -> list[bool]:
    """Whether a token has as much of the document on its shorter side in a window as in any other, or one less."""
    sides = [
        min(at - start if start else count, start + room - 1 - at if start + room < count else count)
        for start in starts
    ]
    return [side >= max(sides) - 1 for side in sides]


def test_a_window_holds_what_a_text_would(tokenizer: Tokenizer) -> None:
    """A document that fits is one window, the same tokens as its text as an input."""
    document = of_texts(tokenizer, ["the cat", "sat"], "query : ")
    (window,) = read(tokenizer, document, OWN).windows
    assert np.array_equal(window.ids, tokenizer.encode(["the cat sat"], "query : ")[0].ids)


def test_every_window_has_the_frame_and_the_prompt(tokenizer: Tokenizer) -> None:
    """Each window is as long as the model takes and begins with the prompt."""
    document = of_texts(tokenizer, ["cat dog"] * 60, "query : ")
    windows = read(tokenizer, document, OWN).windows
    head = [VOCABULARY[token] for token in ("[CLS]", "query", ":")]
    assert {len(window.ids) for window in windows} == {40}
    assert all(window.ids[:3].tolist() == head and window.ids[-1] == VOCABULARY["[SEP]"] for window in windows)
    starts = window_starts(120, 36)
    assert all(one < other <= one + 27 for one, other in pairwise(starts))


def test_a_prompt_without_room(tokenizer: Tokenizer) -> None:
    """A prompt that fills the limit is refused."""
    document = of_texts(tokenizer, ["the"], "cat " * 38)
    with pytest.raises(InvalidRequest, match="leaves no room"):
        read(tokenizer, document, OWN)
