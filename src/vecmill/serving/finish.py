"""What a request wishes of its rows, after the engine: requests with different wishes share batches."""

import numpy as np
from numpy.typing import NDArray

from vecmill.core import Options
from vecmill.errors import InvalidRequest


def finish(rows: NDArray[np.float32], options: Options) -> NDArray[np.float32]:
    """Apply the options to float32 [inputs, dims].

    Raises:
        InvalidRequest: What is left of a row is no vector.
    """
    if options.dimensions is None or options.dimensions == rows.shape[1]:
        return rows
    shortened = shorten(rows, options.dimensions)
    lost = np.flatnonzero(~sound(shortened))
    if len(lost):
        message = f"input[{lost[0]}]: the first {options.dimensions} numbers of its vector are all zero; ask for more"
        raise InvalidRequest(message, param="dimensions")
    return shortened


def shorten(rows: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """The leading numbers of each row, scaled to length 1 (Matryoshka, arXiv 2205.13147; OpenAI's `dimensions`)."""
    kept = rows[:, :dimensions]
    norms = np.linalg.norm(kept, axis=1, keepdims=True)
    shortened: NDArray[np.float32] = kept / np.maximum(norms, np.finfo(np.float32).tiny)
    return shortened


def sound(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows are vectors: finite and not all zero. bool [rows]."""
    good: NDArray[np.bool_] = np.logical_and(np.isfinite(rows).all(axis=1), np.any(rows, axis=1))
    return good
