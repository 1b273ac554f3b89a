"""What a request wishes of its rows."""

import numpy as np
import pytest

from vecmill.core import Options
from vecmill.errors import InvalidRequest
from vecmill.serving.finish import finish, sound


def test_without_wishes_rows_stay_as_they_are() -> None:
    """No dimensions, no change, not even a copy."""
    rows = np.ones((2, 4), dtype=np.float32)
    assert finish(rows, Options()) is rows
    assert finish(rows, Options(dimensions=4)) is rows


def test_fewer_dimensions_are_normalised_again() -> None:
    """The leading numbers are kept and scaled to length 1."""
    rows = np.array([[3, 4, 12], [0, 2, 5]], dtype=np.float32)
    assert finish(rows, Options(dimensions=2)).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 1.0]]


def test_a_row_of_zeros_is_refused() -> None:
    """A vector whose leading numbers are all zero is an error that names it, not a zero vector."""
    rows = np.array([[1, 1, 1], [0, 0, 5]], dtype=np.float32)
    with pytest.raises(InvalidRequest, match=r"input\[1\].*first 2 numbers.*zero"):
        finish(rows, Options(dimensions=2))


def test_only_finite_rows_that_are_not_zero_are_vectors() -> None:
    """NaN, infinity and all zeros are no vectors; tiny and huge numbers are."""
    rows = np.array([[1, 0], [np.nan, 1], [np.inf, 0], [0, 0], [1e-30, 0], [3e38, 3e38]], dtype=np.float32)
    assert sound(rows).tolist() == [True, False, False, False, True, True]
