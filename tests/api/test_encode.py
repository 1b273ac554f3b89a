"""Numbers in fewer bits, and as text."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from vecmill.api.encode import DTYPES, encoded, int8

ROWS = np.random.default_rng(0).normal(size=(50, 384)).astype(np.float32)
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
NUMPY = {
    "float": "<f4",
    "float32": "<f4",
    "float16": "<f2",
    "int8": "i1",
    "uint8": "u1",
    "binary": "i1",
    "ubinary": "u1",
}


def decoded(row: bytes, dtype: str) -> Any:
    """The numbers in a base64 string of JSON."""
    return np.frombuffer(base64.b64decode(json.loads(row), validate=True), dtype=NUMPY[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_base64_holds_what_the_list_holds(dtype: str) -> None:
    """A client that decodes base64 by the type gets the numbers that it would get as a list."""
    lists, strings = encoded(ROWS, dtype), encoded(ROWS, dtype, "base64")
    for numbers, string in zip(lists, strings, strict=True):
        wanted = np.array(json.loads(bytes(numbers)), dtype=NUMPY[dtype])
        assert np.array_equal(decoded(bytes(string), dtype), wanted)


@pytest.mark.parametrize(("dtype", "size"), [("float16", 768), ("int8", 384), ("binary", 48), ("ubinary", 48)])
def test_fewer_bits_are_fewer_bytes(dtype: str, size: int) -> None:
    """A vector of 384 numbers takes that many bytes."""
    assert decoded(bytes(encoded(ROWS[:1], dtype, "base64")[0]), dtype).nbytes == size


def test_int8_keeps_similarities() -> None:
    """Cosines of int8 vectors differ from those of the vectors by less than half a hundredth."""
    steps = int8(UNIT).astype(np.float32)
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    assert np.abs(steps @ steps.T - UNIT @ UNIT.T).max() < 0.005


def test_int8_does_not_depend_on_length_or_mates() -> None:
    """The same direction gives the same bytes, whatever its length and whatever stands beside it."""
    assert np.array_equal(int8(ROWS), int8(ROWS * np.float32(8)))
    assert np.array_equal(int8(ROWS)[7], int8(ROWS[7:8])[0])


def test_signs() -> None:
    """A bit is set where a number is not negative, the first one highest; signed bytes are 128 less; zeros fill up."""
    row = np.array([[1, -1, 0, -1, -1, -1, -1, -2, 5]], dtype=np.float32)
    assert DTYPES["ubinary"](row).tolist() == [[0b10100000, 0b10000000]]
    assert DTYPES["binary"](row).tolist() == [[0b10100000 - 128, 0]]


def test_uint8_is_int8_from_zero() -> None:
    """uint8 is int8 plus 128."""
    assert np.array_equal(DTYPES["uint8"](ROWS).astype(int), int8(ROWS).astype(int) + 128)


def test_half_precision_never_overflows() -> None:
    """What is too large for float16 is its largest number, not infinity."""
    assert np.isfinite(DTYPES["float16"](np.array([[1e30, -1e30]], dtype=np.float32))).all()
