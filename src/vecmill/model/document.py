"""One document that came as chunks: its tokens, in windows where the model takes fewer, and whose each of them is.

Late chunking (Günther et al., arXiv 2409.04701): the model reads the chunks together, and each chunk's vector is the
mean of the states of its own tokens. Special tokens and the prompt at the document's beginning are the first chunk's,
those at its end the last one's, as in the authors' own code, which its tests compare with Jina's service; so one chunk
alone gets its usual vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Ranges
from vecmill.model.chunks import room
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import Cut, Tokens

OVERLAP = 4
"""Windows have one part of so many in common with the next."""


@dataclass(frozen=True, slots=True)
class Part:
    """States of a chunk that come from one window: those of its tokens from `start` up to `stop`."""

    window: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Document:
    """Chunks as tokens.

    Attributes:
        prompt: What goes before the document.
        lead: The prompt's tokens.
        ids: The document's tokens, without the prompt's and special ones.
        owners: The chunk that each of `ids` is of, ascending, int [tokens].
        ranges: Where each chunk stands; it may hold no token.
    """

    prompt: str
    lead: list[int]
    ids: list[int]
    owners: NDArray[np.intp]
    ranges: list[Ranges]

    @property
    def sizes(self) -> list[int]:
        """Tokens of each chunk's own."""
        return [stop - start for start, stop in (one.tokens for one in self.ranges)]


@dataclass(frozen=True, slots=True)
class Reading:
    """How the model reads a document.

    Attributes:
        windows: What goes through the model: all of it, or as much as the model takes at a time.
        first: The first chunk of each window.
        parts: Where the states of each chunk are.
        counts: Tokens that go through the model, by chunks; what windows have in common goes through it twice.
        ranges: Where each chunk stands.
    """

    windows: list[Tokens]
    first: list[int]
    parts: list[list[Part]]
    counts: list[int]
    ranges: list[Ranges]


def join(chunks: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a document, and where each chunk stands in it.

    A space goes between two chunks where neither has white space there: splitters strip it, and words may not grow
    together.
    """
    written: list[str] = []
    ranges, at, before = [], 0, " "
    for chunk in chunks:
        if not (before[-1].isspace() or chunk[0].isspace()):
            written.append(" ")
            at += 1
        ranges.append((at, at + len(chunk)))
        written.append(chunk)
        at, before = at + len(chunk), chunk
    return "".join(written), ranges


def of_texts(tokenizer: Tokenizer, chunks: Sequence[str], prompt: str) -> Document:
    """A document of texts, none of them empty. A token is of the chunk that its last character is of."""
    text, characters = join(chunks)
    found = tokenizer.native.encode(prompt + text, add_special_tokens=False)
    spans = np.array(found.offsets, dtype=np.intp).reshape(-1, 2)
    last = np.maximum.accumulate(np.maximum(spans[:, 1] - 1, spans[:, 0])) - len(prompt)
    lead = int(np.count_nonzero(last < 0))
    owners = np.searchsorted([end for _, end in characters], last[lead:], side="right")
    owners = np.minimum(owners, len(chunks) - 1).astype(np.intp)
    return Document(prompt, found.ids[:lead], found.ids[lead:], owners, _ranges(owners, len(chunks), characters))


def of_ids(tokenizer: Tokenizer, chunks: Sequence[list[int]], prompt: str) -> Document:
    """A document of arrays of the model's token ids; special tokens around each are left out."""
    bare = [tokenizer.whole(ids) for ids in chunks]
    owners = np.repeat(np.arange(len(bare)), [len(ids) for ids in bare]).astype(np.intp)
    ids = [number for one in bare for number in one]
    return Document(prompt, tokenizer.whole([], prompt), ids, owners, _ranges(owners, len(bare), None))


def window_starts(count: int, size: int) -> list[int]:
    """Where windows of a size begin in so many tokens: as few as overlap by a part of `OVERLAP`, evenly spread.

    All have the same size, so they run together, and none is there for a few tokens at the end.
    """
    more = -(-max(0, count - size) // max(1, size - size // OVERLAP))
    return [0, *(number * (count - size) // more for number in range(1, more + 1))]


def read(tokenizer: Tokenizer, document: Document, cut: Cut, *, counts_prompt: bool = True) -> Reading:
    """How the model reads a document, each chunk of which has a token.

    What two windows have in common is split in its middle: each token's state is from the window in which it has more
    around it ("long late chunking", algorithm 2 of the paper, whose code takes the earlier window's).

    Args:
        tokenizer: The model's.
        document: What is read.
        cut: The most tokens of a window count, where they are less than the model's.
        counts_prompt: Whether the model's pooling takes in the prompt.

    Raises:
        InvalidRequest: The prompt leaves no room for text, or a token has no vector.
    """
    tokenizer.check(document.ids, "input")
    count, size = len(document.ids), room(tokenizer, len(document.lead), cut)
    starts = window_starts(count, size)
    slices = [document.ids[start : start + size] for start in starts]
    windows = tokenizer.between([document.lead + ids for ids in slices], document.prompt, cut, None)
    ahead = len(tokenizer.head) + len(document.lead)
    parts: list[list[Part]] = [[] for _ in document.ranges]
    counts = np.zeros(len(document.ranges), dtype=np.int64)
    seams = [0, *((one + size + other) // 2 for one, other in pairwise(starts)), count]
    for number, (start, ids) in enumerate(zip(starts, slices, strict=True)):
        for owner, begin, end in _runs(document.owners, seams[number], seams[number + 1]):
            parts[owner].append(Part(number, ahead + begin - start, ahead + end - start))
        held = document.owners[start : start + len(ids)]
        counts += np.bincount(held, minlength=len(counts))
        counts[held[0]] += ahead
        counts[held[-1]] += tokenizer.framed - len(tokenizer.head)
    first, last = parts[document.owners[0]], parts[document.owners[-1]]
    first[0] = Part(0, 0 if counts_prompt else windows[0].mark, first[0].stop)
    last[-1] = Part(last[-1].window, last[-1].start, len(windows[-1].ids))
    begins = [int(document.owners[start]) for start in starts]
    return Reading(windows, begins, parts, counts.tolist(), document.ranges)


def _runs(owners: NDArray[np.intp], start: int, stop: int) -> list[tuple[int, int, int]]:
    """Chunks of the tokens from `start` up to `stop`, and which of these tokens are theirs."""
    bounds = [start, *(start + 1 + np.flatnonzero(np.diff(owners[start:stop]))).tolist(), stop]
    return [(int(owners[one]), one, other) for one, other in pairwise(bounds) if one < other]


def _ranges(owners: NDArray[np.intp], count: int, characters: list[tuple[int, int]] | None) -> list[Ranges]:
    bounds = np.searchsorted(owners, np.arange(count + 1)).tolist()
    places: Sequence[tuple[int, int] | None] = characters or [None] * count
    return [Ranges(*pair) for pair in zip(pairwise(bounds), places, strict=True)]
