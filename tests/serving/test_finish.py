"""What a request wishes of its rows."""

import numpy as np
import pytest

from vecmill.core import Sparse
from vecmill.errors import InvalidRequest
from vecmill.serving.finish import ACTIVATIONS, scaled, sound, vectors


def test_without_wishes_rows_stay_as_they_are() -> None:
    """No dimensions, no change, not even a copy."""
    rows = np.ones((2, 4), dtype=np.float32)
    assert vectors(rows, None, scale=False) is rows
    assert vectors(rows, 4, scale=False) is rows


def test_fewer_dimensions_are_normalised_again() -> None:
    """The leading numbers are kept and scaled to length 1."""
    rows = np.array([[3, 4, 12], [0, 2, 5]], dtype=np.float32)
    assert vectors(rows, 2, scale=True).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 1.0]]


def test_a_row_of_zeros_is_refused() -> None:
    """A vector whose leading numbers are all zero is an error that names it, not a zero vector."""
    rows = np.array([[1, 1, 1], [0, 0, 5]], dtype=np.float32)
    with pytest.raises(InvalidRequest, match=r"input\[1\].*first 2 numbers.*zero"):
        vectors(rows, 2, scale=True)


def test_only_finite_rows_that_are_not_zero_are_vectors() -> None:
    """NaN, infinity and all zeros are no vectors; tiny and huge numbers are."""
    rows = np.array([[1, 0], [np.nan, 1], [np.inf, 0], [0, 0], [1e-30, 0], [3e38, 3e38]], dtype=np.float32)
    assert sound("dense", rows).tolist() == [True, False, False, False, True, True]


def test_scores_may_be_zero_but_not_nan() -> None:
    """A score of zero is an answer, one that is no number is none."""
    scores = np.array([[0.0], [np.nan], [-2.0]], dtype=np.float32)
    assert sound("scores", scores).tolist() == [True, False, True]


def test_values_of_many_sizes_are_judged_one_by_one() -> None:
    """Token vectors of zeros are none; a text without sparse entries is fine, one with infinity is not."""
    matrices = [np.ones((2, 3), dtype=np.float32), np.zeros((1, 3), dtype=np.float32)]
    assert sound("multi", matrices).tolist() == [True, False]
    weights = [np.array(values, dtype=np.float32) for values in ([], [1.5], [np.inf])]
    entries = [Sparse(np.arange(len(values), dtype=np.int32), values) for values in weights]
    assert sound("sparse", entries).tolist() == [True, True, False]


def test_probabilities() -> None:
    """Sigmoid and softmax of large numbers are exact and silent."""
    scores = np.array([[-200.0, 0.0, 200.0]], dtype=np.float32)
    assert ACTIVATIONS["sigmoid"](scores).tolist() == [[0.0, 0.5, 1.0]]
    assert ACTIVATIONS["softmax"](scores).tolist() == [[0.0, 0.0, 1.0]]
    assert ACTIVATIONS["softmax"](np.log(np.array([[1, 3]], dtype=np.float32))) == pytest.approx(
        np.array([[0.25, 0.75]])
    )


def test_every_row_is_scaled() -> None:
    """Rows whose squares are too large or too small for float32 get length 1 too; zeros stay zeros."""
    rows = np.array([[3, 4], [3e38, 3e38], [1e-40, 0], [0, 0]], dtype=np.float32)
    assert np.linalg.norm(scaled(rows), axis=1).tolist() == [pytest.approx(1)] * 3 + [0]


def test_dimensions_without_scaling_is_a_slice() -> None:
    """Where the caller wants no scaling the leading numbers are kept as they are."""
    rows = np.array([[3, 4, 12]], dtype=np.float32)
    assert vectors(rows, 2, scale=False).tolist() == [[3, 4]]


@pytest.mark.parametrize("dims", [1, 7, 16, 384, 1000])
def test_a_scaled_row_does_not_depend_on_its_mates(dims: int) -> None:
    """A row scaled alone has the bytes of the row scaled in a batch, odd mates or not."""
    rows = np.random.default_rng(dims).normal(size=(33, dims)).astype(np.float32)
    rows[5] *= np.float32(1e30)
    together = scaled(rows)
    assert [
        number for number in range(33) if not np.array_equal(scaled(rows[number : number + 1])[0], together[number])
    ] == []
