"""Before a queue and behind it: who may join, by what is there and at the pace at which it goes.

Runners and the simulator have the same one.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, Protocol

from vecmill.serving.admission import Admission, Ahead, Applicant, Limits
from vecmill.serving.pace import Pace
from vecmill.serving.piles import Item
from vecmill.serving.scheduler import OwnerT, Scheduler


class InHand(Protocol):
    """A lane's batch, or none."""

    def left_s(self, now: float) -> float:
        """Predicted seconds until it is done; never less than 0."""


class Door(Generic[OwnerT]):
    """Admits to a queue and takes from it. Not thread-safe.

    Args:
        queue: Whose costs are seconds of a lane.
        limits: Of the queue.
        lanes: How many lanes work on it now.
        hands: What they have in hand.
        clock: Seconds.
    """

    def __init__(
        self,
        queue: Scheduler[OwnerT],
        limits: Limits,
        *,
        lanes: Callable[[], int],
        hands: Callable[[], Iterable[InHand]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._lanes = lanes
        self._hands = hands
        self._clock = clock
        self._pace = Pace()
        self._admission = Admission(limits, clock)

    @property
    def waiting_s(self) -> float:
        """Predicted seconds until all is done that waits and runs."""
        now = self._clock()
        runs_s = sum(one.left_s(now) for one in self._hands())  # at the machine's pace already
        return self._seconds(self._queue.waiting_cost) + runs_s / max(1, self._lanes())

    @property
    def crowded(self) -> bool:
        """Whether somebody was refused of late and may come back."""
        return self._admission.crowded

    def admit(self, lengths: Sequence[int], who: Hashable = None, *, joins: bool = True) -> None:
        """Let inputs of these lengths wait, or of about these, now or when they are ready.

        Raises:
            Overloaded: Too much waits already.
        """
        self._admission.admit(self._asking(lengths, who), self._ahead(), joins=joins)

    def is_open(self, lengths: Sequence[int], who: Hashable = None) -> bool:
        """Whether they would be admitted now; nothing comes of asking."""
        return self._admission.is_open(self._asking(lengths, who), self._ahead())

    def take(self, most: float = math.inf) -> list[Item[OwnerT]]:
        """The next micro-batch, as `Scheduler.take`."""
        before_s = self._queue.waiting_cost
        if items := self._queue.take(most):
            done_s, more = before_s - self._queue.waiting_cost, self._queue.waiting_items > 0
            self._pace.took(done_s, self._clock(), self._lanes(), more=more)
        return items

    def _seconds(self, work_s: float) -> float:
        return self._pace.seconds(work_s, self._lanes())

    def _asking(self, lengths: Sequence[int], who: Hashable) -> Applicant:
        return Applicant(sum(lengths), self._seconds(sum(map(self._queue.cost_of, lengths))), who)

    def _ahead(self) -> Ahead:
        return Ahead(self._queue.waiting_tokens, self._seconds(self._queue.waiting_cost), self.waiting_s)
