"""Inputs as they lie in a queue: piles of an owner's, in lines by their length."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

OwnerT = TypeVar("OwnerT")


class Item(msgspec.Struct, Generic[OwnerT], eq=False):
    """One input in the queue.

    Attributes:
        ids: int32 [length].
        owner: What it belongs to.
        row: Its place there.
        cost: What it was to cost when it came.
        taken: Whether it has left the queue.
        deaths: Times that its engine died over it.
    """

    ids: NDArray[np.int32]
    owner: OwnerT
    row: int
    cost: float = 0.0
    taken: bool = False
    deaths: int = 0


Pile = list[Item[Any]]
"""What is queued of one owner at like lengths, the next one last. Whoever takes an item takes it from here."""

Lines = defaultdict[int, deque[Pile]]
"""Piles by their length, in order of arrival; an empty one leaves when it comes to the front."""


def total_cost(items: Sequence[Item[Any]]) -> float:
    """What they cost together."""
    return sum([item.cost for item in items])


def tokens_of(items: Sequence[Item[Any]]) -> int:
    """Their tokens."""
    return sum([len(item.ids) for item in items])


def leading(pile: Pile, most: float, items: float, *, least: bool) -> tuple[Pile, int]:
    """What comes next of a pile, in order, of so many tokens and items at most, or one item at least; taken from it.

    Returns:
        The items, and their tokens.
    """
    part: Pile = []
    tokens = 0
    while pile and len(part) < items and (tokens + (more := len(pile[-1].ids)) <= most or (least and not part)):
        part.append(pile.pop())
        tokens += more
    return part, tokens


def filled(line: deque[Pile]) -> Iterator[Pile]:
    """The piles of a line that hold something, in order; those that do not are dropped from it."""
    while line:
        if line[0]:
            yield line[0]
        else:
            line.popleft()


def tidy(lines: Lines, length: int) -> None:
    """Keep no empty pile in front, and no line that is empty."""
    line = lines.get(length)
    while line and not line[0]:
        line.popleft()
    if line is not None and not line:
        del lines[length]
