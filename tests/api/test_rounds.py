"""One timer looks after all requests of a loop."""

import asyncio

import pytest

from vecmill.api import rounds
from vecmill.api.rounds import Rounds

WAIT_S = 10.0


class Guest:
    """Counts how often it is looked at, and leaves after so many times."""

    def __init__(self, rounds: Rounds, most: int = 3) -> None:
        self.seen = 0
        self.left = asyncio.Event()
        self._rounds = rounds
        self._most = most

    def look(self) -> None:
        """So much time has passed again."""
        self.seen += 1
        if self.seen == self._most:
            self._rounds.discard(self)
            self.left.set()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "EVERY_S", 0.001)


async def test_it_stands_still_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of guests share one timer; without guests there is none, and the next one winds it up again."""
    loop, one, timers = asyncio.get_running_loop(), Rounds(), list[float]()
    later = loop.call_later

    def counted(delay: float, *what: object) -> object:
        timers.append(delay)
        return later(delay, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_later", counted)
    for _ in range(2):
        guests = [Guest(one) for _ in range(100)]
        for guest in guests:
            one.add(guest)
        await asyncio.wait_for(asyncio.gather(*(guest.left.wait() for guest in guests)), WAIT_S)
        assert [guest.seen for guest in guests] == [3] * 100
        await asyncio.sleep(0.02)
    assert timers.count(rounds.EVERY_S) == 8  # three rounds and the one that finds nobody, twice


def test_another_loop_has_its_own_timer() -> None:
    """Where a loop ended with guests, those of the next are looked at all the same."""
    one = Rounds()

    async def leave_one() -> None:
        one.add(Guest(one))

    async def wait() -> int:
        guest = Guest(one)
        one.add(guest)
        await asyncio.wait_for(guest.left.wait(), WAIT_S)
        return guest.seen

    asyncio.run(leave_one())
    assert asyncio.run(wait()) == 3
