"""Which replica a request goes to. Each rule is a function of what a router can see."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class View:
    """What a router knows.

    Attributes:
        waits: float64 [replicas], predicted seconds until what each holds is done; infinite where it is down.
        up: Those that are not, ascending.
        rng: For choices at random.
        turn: Requests that were routed in turn.
    """

    waits: NDArray[np.float64]
    rng: Random
    up: list[int] = field(default_factory=list)
    turn: int = -1


Router = Callable[[View], int]


def in_turn(view: View) -> int:
    """Round robin."""
    view.turn += 1
    return view.up[view.turn % len(view.up)]


def at_random(view: View) -> int:
    """Any."""
    return view.rng.choice(view.up)


def of_two(view: View) -> int:
    """The one of two at random that is done sooner (Mitzenmacher, the power of two choices, 2001)."""
    one, other = view.rng.choice(view.up), view.rng.choice(view.up)
    return one if view.waits[one] <= view.waits[other] else other


def least_wait(view: View) -> int:
    """The one that is done soonest; of several any."""
    best = int(view.waits.argmin())
    if view.waits[best] > 0:
        return best
    idle = np.flatnonzero(view.waits == 0)
    return int(idle[view.rng.randrange(len(idle))])


ROUTERS: dict[str, Router] = {
    "round robin": in_turn,
    "random": at_random,
    "two choices": of_two,
    "least wait": least_wait,
}
"""Those that need a queue for each replica; with one queue for all there is nothing to choose."""
