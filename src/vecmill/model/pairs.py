"""The special tokens around and between two texts that a model reads together."""

from dataclasses import dataclass
from typing import Self

import tokenizers


@dataclass(frozen=True, slots=True)
class PairFrame:
    """What goes before, between and after two texts.

    Attributes:
        head: Ids before the first.
        middle: Ids between them.
        tail: Ids after the second.
        typed: The second text, and what follows it, is of token type 1.
    """

    head: list[int]
    middle: list[int]
    tail: list[int]
    typed: bool

    @classmethod
    def read(cls, native: tokenizers.Tokenizer) -> Self | None:
        """The frame that a tokenizer puts around a pair; None where it changes the texts themselves."""
        first, second = (native.encode(text, add_special_tokens=False).ids for text in PROBES)
        framed = native.encode(*PROBES, add_special_tokens=True)
        start = _find(framed.ids, first, 0)
        after = _find(framed.ids, second, start + len(first))
        if start < 0 or after < 0:
            return None
        typed = 1 in framed.type_ids and framed.type_ids.index(1) == after
        return cls(framed.ids[:start], framed.ids[start + len(first) : after], framed.ids[after + len(second) :], typed)

    @property
    def size(self) -> int:
        """Tokens of the frame."""
        return len(self.ids)

    @property
    def ids(self) -> list[int]:
        """The tokens of the frame."""
        return self.head + self.middle + self.tail


PROBES = ("a", "b")


def _find(ids: list[int], part: list[int], start: int) -> int:
    """Where a part begins in ids, from a place on; -1 where it does not occur."""
    places = range(max(0, start), len(ids) - len(part) + 1)
    return next((place for place in places if part and ids[place : place + len(part)] == part), -1)
