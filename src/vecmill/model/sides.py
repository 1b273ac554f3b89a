"""Queries and documents of late interaction: their markers, what is added to them, and which tokens count."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import tokenizers
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.model.late import QUERY, Late
from vecmill.model.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Sides:
    """What is done to the tokens of each side.

    Attributes:
        late: What the checkpoint says.
        filler: Id of the token that makes queries longer; -1 where none is needed.
        skipped: Ids that do not count, int32.
    """

    late: Late
    filler: int
    skipped: NDArray[np.int32]

    @classmethod
    def read(cls, native: tokenizers.Tokenizer, late: Late) -> Self:
        """Of a tokenizer, which learns the markers that it would take apart.

        Raises:
            UnsupportedModel: It lacks the token that makes queries longer.
        """
        for marker in late.markers:
            _know(native, marker)
        found = [native.token_to_id(word) for word in late.skipped]
        skipped = np.array([number for number in found if number is not None], dtype=np.int32)
        return cls(late, _filler(native, late), skipped)

    def limit(self, side: str | None) -> int:
        """Most tokens of an input of a side."""
        expansion = self.late.expansion
        if side == QUERY and expansion is not None and expansion.fixed:
            return expansion.length
        largest = int(np.iinfo(np.int32).max)
        least = expansion.length if side == QUERY and expansion is not None else 0
        return max(least, self.late.limits.get(side or "", largest))

    def finish(self, tokens: Tokens, side: str | None) -> Tokens:
        """Make a query longer, and tell which tokens count."""
        ids, seen = tokens.ids, len(tokens.ids)
        expansion = self.late.expansion
        if side == QUERY and expansion is not None and seen < expansion.length:
            ids = np.concatenate([ids, np.full(expansion.length - seen, self.filler, dtype=np.int32)])
            seen = len(ids) if expansion.attend else seen
        kept = np.ones(len(ids), dtype=np.bool_)
        if side in self.late.skips:
            kept = ~np.isin(ids, self.skipped)
        kept[0] &= not self.late.drops_first
        return replace(tokens, ids=ids, mark=seen, kept=None if kept.all() else kept)


def _know(native: tokenizers.Tokenizer, marker: str) -> None:
    """Let a marker that is in the vocabulary, with or without its space, be one token; others stay ordinary words."""
    for name in dict.fromkeys((marker, *marker.split(None, 1)[:1])):
        if native.token_to_id(name) is not None:
            if native.encode(name, add_special_tokens=False).tokens != [name]:
                native.add_special_tokens([tokenizers.AddedToken(name, normalized=False, special=True)])
            return


def _filler(native: tokenizers.Tokenizer, late: Late) -> int:
    if late.expansion is None:
        return -1
    names = [late.expansion.token] if late.expansion.token else ["[MASK]", "<mask>"]
    found = next((number for name in names if (number := native.token_to_id(name)) is not None), None)
    if found is None:
        raise UnsupportedModel(f"the tokenizer has no {' or '.join(names)}, with which queries are made longer")
    return found
