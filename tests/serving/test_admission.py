"""Who may join a queue, and when those who may not are told to come back."""

import math

import pytest

from vecmill.errors import Overloaded
from vecmill.serving.admission import LONGEST_S, Admission, Limits


class Clock:
    """Time that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def refused(door: Admission, tokens: int, waiting: int, waiting_s: float) -> float:
    """Seconds after which a request is told to come back."""
    with pytest.raises(Overloaded) as error:
        door.admit(tokens, waiting=waiting, waiting_s=waiting_s)
    return error.value.retry_after_s


def test_an_empty_queue_takes_anything() -> None:
    """However large a request is, it may come where nothing waits."""
    Admission(Limits(batch_tokens=8, max_queue_tokens=10, max_wait_s=0.1)).admit(10**6, waiting=0, waiting_s=0.0)


def test_room_by_time() -> None:
    """Up to the longest wait all may come; beyond it the first who may not comes back when that is reached again."""
    door = Admission(Limits(batch_tokens=8, max_queue_tokens=10**6, max_wait_s=2.0), Clock())
    door.admit(10, waiting=100, waiting_s=2.0)
    assert refused(door, 10, 100, 2.5) == pytest.approx(0.5)


def test_room_by_tokens() -> None:
    """The first who may not come comes back when as many tokens have run as are too many."""
    door = Admission(Limits(batch_tokens=8, max_queue_tokens=100), Clock())
    door.admit(10, waiting=90, waiting_s=9.0)
    assert refused(door, 30, 90, 9.0) == pytest.approx(2.0)


def test_each_is_promised_its_own_time() -> None:
    """Who is refused next comes back when the one before has had its turn; as time goes by, so do promises."""
    clock = Clock()
    door = Admission(Limits(batch_tokens=8, max_queue_tokens=10**6, max_wait_s=2.0), clock)
    assert [refused(door, 10, 100, 3.0) for _ in range(3)] == pytest.approx([1.0, 1.3, 1.6])
    clock.now += 0.5
    assert refused(door, 10, 100, 3.0) == pytest.approx(1.4)
    clock.now += 60
    assert refused(door, 10, 100, 3.0) == pytest.approx(1.0)


def test_room_is_not_kept() -> None:
    """Who comes and finds room has it, whatever others were promised."""
    door = Admission(Limits(batch_tokens=8, max_queue_tokens=10**6, max_wait_s=2.0), Clock())
    refused(door, 1000, 100, 3.0)
    door.admit(10, waiting=100, waiting_s=1.9)


def test_promises_end_somewhere() -> None:
    """Those who were refused may never come back: after any number of them the time is bounded."""
    door = Admission(Limits(batch_tokens=8, max_queue_tokens=10**6, max_wait_s=2.0), Clock())
    last = [refused(door, 50, 100, 3.0) for _ in range(1000)][-1]
    assert math.isclose(last, 1.0 + LONGEST_S)
