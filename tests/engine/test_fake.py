"""The fake engine fails when it is told to: tests of everything above engines rest on it."""

import threading

import numpy as np
import pytest

from vecmill.engine.base import Batch
from vecmill.engine.fake import FakeEngine, FakeEngineError, fake_row

TEXTS = [np.array(ids, dtype=np.int32) for ids in ([2, 5, 3], [2, 9, 3], [2, 3])]


def test_rows_follow_from_ids(fake: FakeEngine) -> None:
    """A row is what `fake_row` says, of length 1."""
    rows = fake.run(Batch.pack(TEXTS))
    assert np.array_equal(rows[1], fake_row(TEXTS[1], fake.spec.dims))
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1)


def test_raise(fake: FakeEngine) -> None:
    """A batch that holds the token raises; others run."""
    fake.faults[9] = "raise"
    with pytest.raises(FakeEngineError, match="asked to fail"):
        fake.run(Batch.pack(TEXTS))
    assert fake.run(Batch.pack([TEXTS[0], TEXTS[2]])).shape == (2, fake.spec.dims)


def test_exit(fake: FakeEngine) -> None:
    """A batch that holds the token kills the thread that runs it."""
    fake.faults[9] = "exit"
    with pytest.raises(SystemExit, match="asked to kill the thread"):
        fake.run(Batch.pack(TEXTS))


@pytest.mark.parametrize("fault", ["nan", "zero"])
def test_a_row_that_is_no_vector(fake: FakeEngine, fault: str) -> None:
    """The row that holds the token is no vector; its mates are."""
    fake.faults[9] = fault
    rows = fake.run(Batch.pack(TEXTS))
    sound = np.isfinite(rows).all(axis=1) & np.any(rows, axis=1)
    assert sound.tolist() == [True, False, True]


def test_gate(fake: FakeEngine) -> None:
    """The engine stalls while its gate is closed and goes on when it opens."""
    fake.gate.clear()
    thread = threading.Thread(target=fake.run, args=(Batch.pack(TEXTS),))
    thread.start()
    assert not fake.batches
    fake.gate.set()
    thread.join()
    assert fake.batches == [[3, 3, 2]]


def test_close(fake: FakeEngine) -> None:
    """The engine remembers that it was closed."""
    assert not fake.closed
    fake.close()
    assert fake.closed
