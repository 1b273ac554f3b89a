"""What a request wishes of its outputs, after the engine: requests with different wishes share batches."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Output, Sparse, Value
from vecmill.engine.base import Column
from vecmill.errors import InvalidRequest

Floats = NDArray[np.float32]


def shorten(rows: Floats, dimensions: int | None, *, scale: bool = True) -> Floats:
    """The leading numbers of each row, scaled to length 1 (Matryoshka, arXiv 2205.13147; OpenAI's `dimensions`).

    Args:
        rows: [inputs, dims].
        dimensions: How many; None and all of them change nothing.
        scale: Whether what is left is scaled.

    Raises:
        InvalidRequest: What is left of a row is no vector.
    """
    if dimensions is None or dimensions == rows.shape[1]:
        return rows
    kept = np.ascontiguousarray(rows[:, :dimensions])
    shortened = scaled(kept) if scale else kept
    lost = np.flatnonzero(~sound("dense", shortened))
    if len(lost):
        message = f"input[{lost[0]}]: the first {dimensions} numbers of its vector are all zero; ask for more"
        raise InvalidRequest(message, param="dimensions")
    return shortened


def scaled(rows: Floats) -> Floats:
    """Each row at length 1; a row of zeros stays one. In float64, where no square of a float32 is lost."""
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(norms > 0, norms, 1)).astype(np.float32)


def sigmoid(scores: Floats) -> Floats:
    """1 / (1 + e^-x), without overflow at either end."""
    small = np.exp(-np.abs(scores))
    result: Floats = np.where(scores >= 0, 1, small) / (1 + small)
    return result


def softmax(scores: Floats) -> Floats:
    """e^x over its sum along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return result


ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {"sigmoid": sigmoid, "softmax": softmax, "none": lambda x: x}
"""What makes probabilities of scores; `model.tasks` says which one a model was trained with."""


def sound(output: Output, column: Column) -> NDArray[np.bool_]:
    """Which values of an engine's column may leave, bool [rows].

    All are finite. A vector, and the vectors of an input's tokens together, are not all zero; a score may be, and a
    text may have no weight in any sparse entry.
    """
    nonzero = output in NEVER_ZERO
    if isinstance(column, np.ndarray):
        axes = tuple(range(1, column.ndim))
        good: NDArray[np.bool_] = np.logical_and(
            np.isfinite(column).all(axis=axes), np.any(column, axis=axes) if nonzero else True
        )
        return good
    return np.array([_is_sound(value, nonzero=nonzero) for value in column])


def _is_sound(value: Value, *, nonzero: bool) -> bool:
    numbers = value.values if isinstance(value, Sparse) else value
    return bool(np.isfinite(numbers).all() and (not nonzero or np.any(numbers)))


NEVER_ZERO: set[Output] = {"dense", "multi"}
