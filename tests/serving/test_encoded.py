"""Answers as bytes: what went in comes out, and nothing else does."""

from typing import Any

import numpy as np
import pytest

from vecmill.core import Output, Sparse, Value
from vecmill.serving.encoded import decode, encode

OUTPUTS: tuple[Output, ...] = ("dense", "sparse", "multi", "scores")
WIDTHS = (4, 0, 0, 2)
UNTIL = 1234.5


def answer() -> list[Value]:
    """One of each kind."""
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(4).astype(np.float32),
        Sparse(np.array([3, 70_000], np.int32), np.array([0.5, 2], np.float32)),
        rng.standard_normal((3, 4)).astype(np.float32),
        np.array([0, -1.5], np.float32),
    ]


def numbers(value: Value) -> list[Any]:
    """All that a value holds."""
    return [value.indices.tolist(), value.values.tolist()] if isinstance(value, Sparse) else value.tolist()


def test_what_goes_in_comes_out() -> None:
    """Every kind of value keeps its bits, shape and type, and the time is said."""
    found = decode(encode(answer(), UNTIL), OUTPUTS, WIDTHS)
    assert found is not None
    values, until = found
    assert until == UNTIL
    assert list(map(numbers, values)) == list(map(numbers, answer()))
    assert [one.dtype for one in values if isinstance(one, np.ndarray)] == [np.float32] * 3


def test_an_empty_sparse_vector_is_one() -> None:
    """A text may have no weight in any entry."""
    empty = Sparse(np.zeros(0, np.int32), np.zeros(0, np.float32))
    found = decode(encode([empty], UNTIL), ("sparse",), (0,))
    assert found is not None
    assert numbers(found[0][0]) == [[], []]


def test_damaged_bytes_are_no_answer() -> None:
    """Cut anywhere, with more behind it, or with any one byte changed, it is no answer and no error."""
    data = encode(answer(), UNTIL)
    assert [end for end in range(len(data)) if decode(data[:end], OUTPUTS, WIDTHS) is not None] == []
    assert decode(data + b"\0", OUTPUTS, WIDTHS) is None
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x41
        assert decode(bytes(changed), OUTPUTS, WIDTHS) is None
    rng = np.random.default_rng(0)
    for size in (0, 1, 8, 17, 100, 1000):
        assert decode(rng.bytes(size), OUTPUTS, WIDTHS) is None


@pytest.mark.parametrize(
    ("value", "output", "width"),
    [
        (np.ones(3, np.float32), "dense", 4),
        (np.ones((1, 4), np.float32), "dense", 4),
        (np.ones(4, np.float32), "multi", 0),
        (np.ones(4, np.float32), "sparse", 0),
        (Sparse(np.ones(1, np.int32), np.ones(1, np.float32)), "dense", 1),
        (np.zeros(4, np.float32), "dense", 4),
        (np.array([1, np.nan], np.float32), "dense", 2),
        (np.array([1, np.inf], np.float32), "scores", 2),
    ],
)
def test_what_no_engine_gives_is_no_answer(value: Value, output: Output, width: int) -> None:
    """Whole bytes of another shape or kind, or of no vector, are no answer."""
    assert decode(encode([value], UNTIL), (output,), (width,)) is None


def test_other_outputs_are_no_answer() -> None:
    """The answer holds what was asked, no less and no more."""
    data = encode(answer(), UNTIL)
    assert decode(data, OUTPUTS[:3], WIDTHS[:3]) is None
    assert decode(encode(answer()[:3], UNTIL), OUTPUTS, WIDTHS) is None
    assert decode(encode(answer(), float("nan")), OUTPUTS, WIDTHS) is None
