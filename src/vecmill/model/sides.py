"""Queries and documents of late interaction: their markers, what is added to them, and which tokens count."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers
from msgspec.structs import replace
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.model.late import DOCUMENT, QUERY, Expansion, Late
from vecmill.model.spec import ModelSpec
from vecmill.model.tokenizer_class import class_name, token_text
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
    def read(cls, native: tokenizers.Tokenizer, late: Late, spec: ModelSpec, settings: dict[str, Any]) -> Self:
        """Of a tokenizer, which learns the markers that it would take apart.

        Args:
            native: The tokenizer.
            late: What the checkpoint says of its sides.
            spec: The checkpoint.
            settings: tokenizer_config.json.

        Raises:
            UnsupportedModel: It lacks the token that makes queries longer, or that goes before them.
        """
        for marker in late.markers:
            _know(native, marker)
        found = [native.token_to_id(word) for word in late.skipped]
        skipped = np.array([number for number in found if number is not None], dtype=np.int32)
        if late.expansion is None:
            return cls(late, -1, skipped)
        kind = class_name(spec.family, settings.get("tokenizer_class") or spec.config.get("tokenizer_class"))
        if settings.get("padding_side", "left" if kind in FILLED_LEFT else "right") != "right":
            raise UnsupportedModel(f"{spec.folder}: queries that are made longer on the left are not supported")
        return cls(late, _filler(native, late.expansion, settings, spec.folder), skipped)

    def limit(self, side: str | None) -> int | None:
        """Most tokens of an input of a side; None where it has the model's."""
        return self.late.limits.get(side or DOCUMENT)

    def finish(self, tokens: Tokens, side: str | None) -> Tokens:
        """Make a query longer, and tell which tokens count."""
        ids, seen = tokens.ids, len(tokens.ids)
        expansion = self.late.expansion
        if side == QUERY and expansion is not None and seen < expansion.length:
            ids = np.concatenate([ids, np.full(expansion.length - seen, self.filler, dtype=np.int32)])
        kept = np.ones(len(ids), dtype=np.bool_)
        kept[seen:] = expansion is not None and expansion.counts
        if side in self.late.skips:
            kept &= ~np.isin(ids, self.skipped)
        if side != QUERY and self.late.only:
            kept &= np.isin(ids, self.late.only)
        kept[0] &= not self.late.drops_first
        mark = seen if self.late.unseen else tokens.mark
        return replace(tokens, ids=ids, mark=mark, kept=None if kept.all() else kept)


FILLED_LEFT = {"GemmaTokenizer", "LlamaTokenizer"}
"""Classes that fill up on the left where nothing is said."""


def _know(native: tokenizers.Tokenizer, marker: str) -> None:
    """Let a marker that is in the vocabulary, with or without its space, be one token; others stay ordinary words."""
    for name in dict.fromkeys((marker, *marker.split(None, 1)[:1])):
        if native.token_to_id(name) is not None:
            if native.encode(name, add_special_tokens=False).tokens != [name]:
                native.add_special_tokens([tokenizers.AddedToken(name, normalized=False, special=True)])
            return


def _filler(native: tokenizers.Tokenizer, expansion: Expansion, settings: dict[str, Any], folder: Path) -> int:
    """The token that is named, else the tokenizer's mask, else its end, as PyLate has it."""
    stated = [token_text(settings, name, "") for name in ("mask_token", "eos_token")]
    masks = stated[:1] if stated[0] or stated[1] else ["[MASK]", "<mask>"]
    names = [expansion.token] if expansion.token else [name for name in (*masks, *stated[1:]) if name]
    found = next((number for name in names if (number := native.token_to_id(name)) is not None), None)
    if found is None:
        raise UnsupportedModel(f"{folder}: the tokenizer has no {' or '.join(names)}, which makes queries longer")
    return found
