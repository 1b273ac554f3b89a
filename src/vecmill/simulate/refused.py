"""Those who were refused: when they come back, and when there would have been room for them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from vecmill.simulate.clock import Clock

LOOK = 0.1
"""A shadow looks so often, as a part of the time that its request was told."""

FAR = 4.0
"""It gives up after so many times that time and `NEAR_S`: the time was wrong."""

NEAR_S = 0.05
"""A time that is wrong by no more than this is right: it is no more than two batches."""

RIGHT = 0.5
"""So is one that is wrong by no more than this part of itself or of what was right."""


@dataclass(slots=True, eq=False)
class Visit:
    """One who asks, as often as it does.

    Attributes:
        obeys: Whether it comes back when it is told to.
        inside: When it was admitted; infinite before that.
    """

    obeys: bool = True
    inside: float = math.inf


@dataclass(frozen=True, slots=True)
class Manners:
    """What becomes of requests that are refused.

    Attributes:
        retries: How often one comes back.
        obey: Part of those who come when they were told to.
        every_s: Seconds after which the others come; infinite never.
    """

    retries: int = 0
    obey: float = 1.0
    every_s: float = math.inf

    def visit(self, rng: Random) -> Visit:
        """Someone who comes for the first time."""
        return Visit(self.obey >= 1.0 or rng.random() < self.obey)

    def after_s(self, visit: Visit, tries: int, told_s: float) -> float:
        """Seconds until a refused one comes back; infinite for never."""
        if tries > self.retries:
            return math.inf
        return told_s if visit.obeys else self.every_s


@dataclass(slots=True)
class Told:
    """Times that refusals told, beside the earliest at which the door would have opened to one who stayed there.

    Attributes:
        every: One of so many refusals is followed; 0 none.
        times_s: What each was told, and what was right; infinite where that was far more.
    """

    every: int = 0
    times_s: list[tuple[float, float]] = field(default_factory=list)
    _refusals: int = 0

    @property
    def right(self) -> float:
        """Part of the times that were right."""
        return sum(is_right(*pair) for pair in self.times_s) / max(1, len(self.times_s))

    def follow(self, clock: Clock, visit: Visit, told_s: float, is_open: Callable[[], bool]) -> None:
        """Someone was refused: see when it would have been let in."""
        self._refusals += 1
        if self.every and self._refusals % self.every == 0:
            clock.after(LOOK * told_s, partial(self._look, clock, visit, clock.now, told_s, is_open))

    def _look(self, clock: Clock, visit: Visit, since: float, told_s: float, is_open: Callable[[], bool]) -> None:
        passed_s = clock.now - since
        if visit.inside <= clock.now:
            self.times_s.append((told_s, visit.inside - since))
        elif is_open():
            self.times_s.append((told_s, passed_s))
        elif passed_s > FAR * (told_s + NEAR_S):
            self.times_s.append((told_s, math.inf))
        else:
            pause_s = max(LOOK * told_s, LOOK * passed_s, LOOK * NEAR_S)
            clock.after(pause_s, partial(self._look, clock, visit, since, told_s, is_open))


def is_right(told_s: float, right_s: float) -> bool:
    """Whether a time that was told is near enough."""
    return abs(told_s - right_s) <= max(NEAR_S, RIGHT * right_s)
