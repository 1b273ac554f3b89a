"""What a request wishes of its outputs, after the engine: requests with different wishes share batches."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Output, Sparse, Value
from vecmill.engine.base import Column
from vecmill.errors import EngineFailed, InvalidRequest
from vecmill.model.tokens import Tokens

Floats = NDArray[np.float32]


def vectors(rows: Floats, dimensions: int | None, *, scale: bool) -> Floats:
    """The leading numbers of each row (Matryoshka, arXiv 2205.13147; OpenAI's `dimensions`), at length 1 where wished.

    Args:
        rows: [inputs, dims], as the model gives them before it would normalise.
        dimensions: How many; None is all.
        scale: Whether they are scaled.

    Raises:
        InvalidRequest: What is left of a row is no vector.
    """
    if dimensions is not None and dimensions != rows.shape[1]:
        rows = np.ascontiguousarray(rows[:, :dimensions])
        lost = np.flatnonzero(~sound("dense", rows))
        if len(lost):
            message = f"input[{lost[0]}]: the first {dimensions} numbers of its vector are all zero; ask for more"
            raise InvalidRequest(message, param="dimensions")
    return scaled(rows) if scale else rows


def means(rows: Floats, owners: Sequence[int], weights: Sequence[int], *, scale: bool) -> Floats:
    """The weighted mean of the rows of each owner, at length 1 where wished; a row that is alone stays as it is.

    Args:
        rows: [parts, dims].
        owners: Whose each row is, ascending.
        weights: How much each row counts beside the others of its owner.
        scale: Whether the means are scaled.

    Raises:
        EngineFailed: What is left of an owner's rows is no vector.
    """
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    sizes = np.diff(starts, append=len(rows))
    weighed = np.asarray(weights, dtype=np.float64)[:, None]
    mean = (np.add.reduceat(rows * weighed, starts) / np.add.reduceat(weighed, starts)).astype(np.float32)
    lost = np.flatnonzero(~sound("dense", mean))
    if len(lost):
        raise EngineFailed(f"input {owners[starts[lost[0]]]}: the vectors of its chunks have no mean other than zero")
    return np.where(sizes[:, None] == 1, rows[starts], scaled(mean) if scale else mean)


def kept(vectors: Sequence[Floats], tokens: list[Tokens]) -> list[Floats]:
    """Vectors of the tokens that count."""
    return [rows if one.kept is None else rows[one.kept] for rows, one in zip(vectors, tokens, strict=False)]


def scaled(rows: Floats) -> Floats:
    """Each row at length 1, also where its squares are too large or too small for float32; a row of zeros stays one."""
    with np.errstate(over="ignore", under="ignore"):
        norms: Floats = np.sqrt(np.add.reduce(rows * rows, axis=1, keepdims=True))
    if all(SAFE_NORM < norm < math.inf for (norm,) in norms.tolist()):
        return np.divide(rows, norms, dtype=np.float32)
    usual = (norms > SAFE_NORM) & (norms < np.inf)
    result: Floats = (rows / np.where(usual, norms, np.float32(1))).astype(np.float32, copy=False)
    wide = rows[~usual[:, 0]].astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    result[~usual[:, 0]] = wide / np.where(lengths > 0, lengths, 1)
    return result


SAFE_NORM = 1e-15
"""Below it the squares of float32 numbers lose digits."""


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
        good: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(column), axis=axes)
        return good & np.logical_or.reduce(column, axis=axes) if nonzero else good
    return np.array([_is_sound(value, nonzero=nonzero) for value in column])


def _is_sound(value: Value, *, nonzero: bool) -> bool:
    numbers = value.values if isinstance(value, Sparse) else value
    return bool(np.isfinite(numbers).all() and (not nonzero or np.any(numbers)))


NEVER_ZERO: set[Output] = {"dense", "multi"}
