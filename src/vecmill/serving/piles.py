"""Piles of what waits at like lengths, and lines of them."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

Pile = list[Any]
"""What is queued of one owner at like lengths, the next one last. Whoever takes an item takes it from here."""

Lines = defaultdict[int, deque[Pile]]
"""Piles by their length, in order of arrival; an empty one leaves when it comes to the front."""


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
