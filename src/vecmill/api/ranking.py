"""Scores in order."""

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Result
from vecmill.errors import InvalidRequest


def shortest(numbers: NDArray[np.float32]) -> list[float]:
    """Each number as the float whose decimals are the fewest that give the same float32 back. Takes [numbers]."""
    return [float(str(number)) for number in numbers]


def ranked(result: Result, top_n: int | None = None) -> list[tuple[int, float]]:
    """Place and score of each document, the best first; equals stay in the order in which they came.

    Args:
        result: Of a request that `ranks`.
        top_n: At most that many; None is all.
    """
    scores = shortest(result.scores[:, 0])
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return [(place, scores[place]) for place in order[:top_n]]


def check_top(top_n: int | None, field: str = "top_n", least: int = 1) -> int | None:
    """How many are wanted; None where all are, as also for 0 where that is allowed.

    Raises:
        InvalidRequest: Fewer than `least`.
    """
    if top_n is not None and top_n < least:
        raise InvalidRequest(f"{field} is {top_n}; the least is {least}", param=field)
    return top_n or None


def labelled(result: Result, row: int) -> list[tuple[str, float]]:
    """Label and score, the best first; equals stay in the model's order."""
    pairs = zip(result.labels, shortest(result.scores[row]), strict=True)
    return sorted(pairs, key=lambda pair: -pair[1])
