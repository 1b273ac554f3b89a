"""OpenAI's `cl100k_base` vocabulary: ids to text and back, exactly as tiktoken does it, without tiktoken.

The table is read on first use, in 0.1 s and 20 MB; `scripts/make_cl100k.py` documents the file and its origin. Encoding
is plain Python, some 300,000 tokens a second: enough to check a sample of a request, not meant for more.
"""

import codecs
import lzma
from functools import cache, lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

SIZE = 100_256
"""Ids below this are tokens with bytes."""

SPECIAL = frozenset({100_257, 100_258, 100_259, 100_260, 100_276})
"""End of text, the three fill-in-the-middle marks, end of prompt: they mark places and decode to no bytes."""

# Where cl100k_base splits text before merging; part of the vocabulary's definition, as the ranks are.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def tokens() -> list[bytes]:
    """The bytes of each token, by id. Two threads that race for the first call read the file twice, no more."""
    table = np.frombuffer(lzma.decompress(Path(__file__).with_name("cl100k.bin").read_bytes()), np.uint8)
    columns = table[256:].astype(np.int32).reshape(2, 3, -1)
    lefts, rights = (columns[:, 0] | columns[:, 1] << 8 | columns[:, 2] << 16).tolist()
    joined = [bytes([byte]) for byte in table[:256]]
    for left, right in zip(lefts, rights, strict=True):
        joined.append(joined[left] + joined[right])
    return joined


@cache
def _ranks() -> dict[bytes, int]:
    return {token: rank for rank, token in enumerate(tokens())}


@cache
def _split() -> Split:
    return Split(Regex(_PATTERN), "isolated")


def unknown_position(ids: list[int]) -> int | None:
    """Where the first id stands that the vocabulary lacks; None where it has them all."""
    return next((at for at, token in enumerate(ids) if not 0 <= token < SIZE and token not in SPECIAL), None)


def decode(ids: list[int]) -> bytes:
    """The bytes of known `ids`; special tokens have none."""
    table = tokens()
    return b"".join(table[token] for token in ids if token < SIZE)


def whole_text(data: bytes) -> str | None:
    """The text of `data` less a part of a character at either end; None where it is not UTF-8 in between.

    LangChain cuts texts after 8,191 tokens, and a token can end in the middle of a character.
    """
    start = next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), min(3, len(data)))
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data[start:])
    except UnicodeDecodeError:
        return None


def encode(text: str) -> list[int]:
    """The ids of `text` as tiktoken's `encode_ordinary` gives them."""
    words = (word.encode() for word, _ in _split().pre_tokenize_str(text))
    return list(chain.from_iterable(_merge_short(word) if len(word) <= _SHORT else _merge(word) for word in words))


def _merge(word: bytes) -> tuple[int, ...]:
    """Byte-pair encoding of one word: always the join of lowest rank, the leftmost of equals."""
    ranks = _ranks()
    if word in ranks:
        return (ranks[word],)
    parts = [word[at : at + 1] for at in range(len(word))]
    after, before = list(range(1, len(word) + 1)), list(range(-1, len(word) - 1))
    joins = [(ranks[pair], at) for at in range(len(word) - 1) if (pair := word[at : at + 2]) in ranks]
    heapify(joins)
    while joins:
        rank, at = heappop(joins)
        other = after[at]
        # A part that was joined since is empty, or longer than it was when this join was noted.
        if not parts[at] or other == len(word) or ranks.get(parts[at] + parts[other]) != rank:
            continue
        parts[at], parts[other] = parts[at] + parts[other], b""
        after[at] = after[other]
        if after[at] < len(word):
            before[after[at]] = at
        for left, right in ((before[at], at), (at, after[at])):
            if left >= 0 and right < len(word) and (join := ranks.get(parts[left] + parts[right])) is not None:
                heappush(joins, (join, left))
    return tuple(ranks[part] for part in parts if part)


# Long words are no words and seldom come twice: keeping them would let a client fill the memory.
_SHORT = 64
_merge_short = lru_cache(maxsize=8192)(_merge)
