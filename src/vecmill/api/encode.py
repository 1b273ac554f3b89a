"""Rows of numbers as they travel: JSON numbers or base64, one `msgspec.Raw` a row."""

import base64
from collections.abc import Callable

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray


def as_numbers(row: NDArray[np.float32]) -> msgspec.Raw:
    """A JSON array of the shortest decimals that give the same float32 back. Takes float32 [dims]."""
    return msgspec.Raw(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY))


def as_base64(row: NDArray[np.float32]) -> msgspec.Raw:
    """A JSON string: base64 of little-endian float32, as OpenAI's clients decode it. Takes float32 [dims]."""
    return msgspec.Raw(b'"' + base64.b64encode(row.astype("<f4", copy=False).tobytes()) + b'"')


ENCODINGS: dict[str, Callable[[NDArray[np.float32]], msgspec.Raw]] = {"float": as_numbers, "base64": as_base64}
