"""A request with its inputs as tokens, and what is asked of them before and after the engine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Input, Pair, Request
from vecmill.model.tokens import Tokens

INLINE_CHARS = 2000
"""Texts up to this many characters are tokenised on the caller's thread: a hop to another costs more."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready for the queue."""

    tokens: list[Tokens]
    vocabulary: str | None
    seconds: float


def kept(vectors: Sequence[NDArray[np.float32]], tokens: list[Tokens]) -> list[NDArray[np.float32]]:
    """Vectors of the tokens that count."""
    return [rows if one.kept is None else rows[one.kept] for rows, one in zip(vectors, tokens, strict=False)]


def is_small(request: Request) -> bool:
    """Whether a request is tokenised where it arrives."""
    return sum(_chars(one) for one in request.inputs) <= INLINE_CHARS


def _chars(one: Input) -> int:
    """Characters to tokenise; ids count as many, because whose they are takes time to tell."""
    if isinstance(one, Pair):
        return len(one.first) + len(one.second)
    return len(one) if isinstance(one, str) else INLINE_CHARS + 1
