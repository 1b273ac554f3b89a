"""Who may join a queue, and when those who may not are told to come back."""

import math

import pytest

from vecmill.errors import Overloaded
from vecmill.serving.admission import KEPT_S, LEAST_S, LONGEST_S, MOST_PLACES, Admission, Ahead, Applicant, Limits

LATE = 1.2 + 1e-9
"""A time that is told is up to so many times what is predicted."""


class Clock:
    """Time that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


CLOCK = Clock()


def a_door(max_wait_s: float = 2.0, max_queue_tokens: int = 10**9) -> Admission:
    """One that nobody stands at."""
    return Admission(Limits(batch_tokens=8, max_queue_tokens=max_queue_tokens, max_wait_s=max_wait_s), CLOCK)


def ahead(seconds: float, tokens: int = 100, waiting_s: float | None = None) -> Ahead:
    """What is there already."""
    return Ahead(tokens, seconds if waiting_s is None else waiting_s, seconds)


def refused(door: Admission, asking: Applicant, there: Ahead) -> float:
    """Seconds after which a request is told to come back."""
    with pytest.raises(Overloaded) as error:
        door.admit(asking, there)
    return error.value.retry_after_s


def test_an_empty_queue_takes_anything() -> None:
    """However large a request is, it may come where nothing waits, though something runs."""
    a_door(0.1, 10).admit(Applicant(10**6, 100.0, 1), ahead(0.05, tokens=0, waiting_s=0.0))


def test_room_by_time() -> None:
    """All that is there and the request itself may take the longest wait; else it comes back when they do."""
    door = a_door()
    door.admit(Applicant(10, 0.5, 1), ahead(1.5))
    assert 0.7 <= refused(door, Applicant(10, 0.5, 1), ahead(2.2)) <= 0.7 * LATE


def test_room_by_inputs() -> None:
    """So many inputs may wait, of whatever length; who is one too many comes back when they have gone."""
    limits = Limits(batch_tokens=8, max_queue_tokens=10**9, max_queue_inputs=10, max_wait_s=100.0)
    door, there = Admission(limits, CLOCK), Ahead(100, 8.0, 8.0, inputs=8)
    door.admit(Applicant(1, 0.1, 1, inputs=2), there)
    with pytest.raises(Overloaded, match="8 inputs wait and 3 more would pass the limit of 10") as error:
        door.admit(Applicant(1, 3.0, 2, inputs=3), there)
    assert 1.0 <= error.value.retry_after_s <= LATE


def test_room_that_is_kept_beside_much_that_is_free() -> None:
    """Where there is room by far, what is kept for another is in nobody's way, also when hardly anything waits."""
    door = a_door(300.0, 2_000_000)
    door.admit(Applicant(3000, 0.5, "is being read"), ahead(0.2), joins=False)
    for seconds in (0.0, 1e-12, 0.2):
        door.admit(Applicant(10, 0.004, "a query"), ahead(seconds, 3000))


def test_what_runs_counts() -> None:
    """What runs is ahead of a request as what waits is."""
    assert refused(a_door(), Applicant(10, 0.5, 1), ahead(2.5, waiting_s=1.0)) >= 1.0


def test_room_by_tokens() -> None:
    """Who has too many tokens comes back when so many have run."""
    door = a_door(math.inf, 100)
    door.admit(Applicant(10, 1.0, 1), ahead(9.0, 90))
    assert 2.0 <= refused(door, Applicant(30, 3.0, 2), ahead(9.0, 90)) <= 2.0 * LATE


def test_each_is_told_its_own_time() -> None:
    """Who is refused next comes back after the one before; who asks again too soon is told the same moment."""
    door, began = a_door(), CLOCK.now
    first, second = (refused(door, Applicant(10, 0.3, who), ahead(2.7)) for who in "ab")
    assert second - first == pytest.approx(0.3, rel=0.25)
    CLOCK.now = began + 0.5
    assert refused(door, Applicant(10, 0.3, "b"), ahead(2.2)) == pytest.approx(second - 0.5)


def test_room_is_kept_for_who_was_told() -> None:
    """In its time who was told to come is let in, and nobody else is; when it does not come, others are."""
    for comes in (True, False):
        door = a_door()
        CLOCK.now += refused(door, Applicant(10, 0.5, "told"), ahead(2.5))
        assert not door.is_open(Applicant(10, 0.5, "other"), ahead(1.4))
        if comes:
            door.admit(Applicant(10, 0.5, "told"), ahead(1.4))
            assert not door.crowded
        else:
            CLOCK.now += KEPT_S
            door.admit(Applicant(10, 0.5, "other"), ahead(1.4))


def test_no_lane_waits_for_the_line() -> None:
    """Where little is there, who has no place is let in though others are in line."""
    door = a_door()
    for who in range(10):
        refused(door, Applicant(10, 0.5, who), ahead(2.5))
    assert door.is_open(Applicant(10, 0.5, "other"), ahead(0.9))
    assert not door.is_open(Applicant(10, 0.5, "other"), ahead(1.1))


def test_the_line_is_as_long_as_those_who_come() -> None:
    """Where none of many came back, nobody waits for them."""
    door = a_door()
    for who in range(100):
        refused(door, Applicant(10, 0.1, who), ahead(2.5))
        CLOCK.now += 10.0
        refused(door, Applicant(10, 0.1, ("asks too", who)), ahead(2.5))
    for who in range(100):
        last = refused(door, Applicant(10, 0.1, ("last", who)), ahead(2.5))
    assert last < 2.0


def test_who_comes_in_time_for_nothing_is_told_soon() -> None:
    """A prediction that was too short costs those who were told so little more, one after the other."""
    door = a_door()
    told = max(refused(door, Applicant(10, 0.1, who), ahead(2.1)) for who in "abc")
    CLOCK.now += told
    times = [refused(door, Applicant(10, 0.1, who), ahead(2.5)) for who in "abc"]
    assert times == pytest.approx([0.6, 0.7, 0.8])


def test_a_request_that_is_being_read_has_its_room() -> None:
    """Who is let in to have its texts read is let in when they are, and nobody in between."""
    door = a_door()
    door.admit(Applicant(10, 0.5, "read"), ahead(1.4), joins=False)
    refused(door, Applicant(10, 0.5, "other"), ahead(1.4))
    door.admit(Applicant(12, 0.6, "read"), ahead(1.4))


def test_nobody_is_told_to_come_at_once_or_never() -> None:
    """Times have a least and a longest, and the line an end."""
    door = a_door()
    assert refused(door, Applicant(1, 0.001, "soon"), ahead(2.0)) == LEAST_S
    for who in range(MOST_PLACES + 10):
        last = refused(door, Applicant(50, 1.0, who), ahead(3.0))
    assert last <= 3.0 + LONGEST_S + 2.0


def test_who_comes_when_its_place_is_given_up_is_new() -> None:
    """A place that lapses while somebody asks for it, on a clock that does not stand still, is no error."""
    times = iter([0.0, *(10.0 + KEPT_S * step / 7 for step in range(200))])
    door = Admission(Limits(batch_tokens=8, max_queue_tokens=10**9, max_wait_s=2.0), lambda: next(times))
    with pytest.raises(Overloaded):
        door.admit(Applicant(10, 0.5, 1), ahead(2.5))
    for _ in range(90):
        with pytest.raises(Overloaded):
            door.admit(Applicant(10, 0.5, 1), ahead(2.5))
        door.is_open(Applicant(10, 0.5, 1), ahead(2.5))
