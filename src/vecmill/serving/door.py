"""Before a queue and behind it: who may join, by what is there and at the pace at which it goes.

Runners and the simulator have the same one.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, Protocol

from vecmill.serving.admission import Admission, Ahead, Applicant, Limits
from vecmill.serving.cost import CostModel
from vecmill.serving.pace import Pace
from vecmill.serving.piles import Item
from vecmill.serving.scheduler import OwnerT, Scheduler


class InHand(Protocol):
    """A lane's batch, or none."""

    def left_s(self, now: float) -> float:
        """Predicted seconds until it is done; never less than 0."""


def queue_of(
    limits: Limits, cost: CostModel, lanes: int, alike: Callable[[int], int] | None = None, *, bounded: bool = True
) -> Scheduler[Any]:
    """The queue of a model, whose costs are seconds of a lane.

    Args:
        limits: Of its batches.
        cost: Of its inputs.
        lanes: How many work on it.
        alike: As `Scheduler` has it.
        bounded: Whether batches are bounded by what they cost, too.
    """
    return Scheduler(
        limits.batch_tokens,
        cost.room if bounded else None,
        cost.price,
        alike,
        cost.knee if bounded else None,
        batch_inputs=limits.batch_inputs,
        patience=limits.max_wait_s * lanes,
    )


class Door(Generic[OwnerT]):
    """Admits to a queue and takes from it. Not thread-safe.

    Args:
        queue: Whose costs are seconds of a lane.
        limits: Of the queue.
        batch_s: What a batch costs for which nothing waits.
        lanes: How many lanes work on it now.
        hands: What they have in hand.
        clock: Seconds.
    """

    def __init__(
        self,
        queue: Scheduler[OwnerT],
        limits: Limits,
        batch_s: float,
        lanes: Callable[[], int],
        hands: Callable[[], Iterable[InHand]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._batch_s = batch_s
        self._batch_wait_s = limits.batch_wait_s
        self._since = 0.0  # something waits
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
    def pause_s(self) -> float:
        """How long what waits has left to wait for more; none or less where it is a batch, or waiting is not wished."""
        if not self._batch_wait_s or not self._queue.waiting_items or self._queue.fills(self._batch_s):
            return 0.0
        return self._since + self._batch_wait_s - self._clock()

    @property
    def crowded(self) -> bool:
        """Whether somebody was refused of late and may come back."""
        return self._admission.crowded

    def admit(self, lengths: Sequence[int], who: Hashable = None, *, joins: bool = True) -> None:
        """Let inputs of these lengths wait, or of about these, now or when they are ready.

        Raises:
            Overloaded: Too much waits already.
        """
        if self._queue.waiting_items or self._admission.crowded:  # else it takes anything
            self._admission.admit(self._asking(lengths, who), self._ahead(), joins=joins)
        if self._batch_wait_s and not self._queue.waiting_items:
            self._since = self._clock()

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
        return Applicant(sum(lengths), self._seconds(sum(map(self._queue.cost_of, lengths))), who, len(lengths))

    def _ahead(self) -> Ahead:
        queue = self._queue
        return Ahead(queue.waiting_tokens, self._seconds(queue.waiting_cost), self.waiting_s, queue.waiting_items)
