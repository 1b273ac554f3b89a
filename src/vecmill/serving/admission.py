"""Whether a request may join a queue: refused at once, with the time to come back, rather than late."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from vecmill.errors import Overloaded

LONGEST_S = 30.0
"""Nobody is asked to stay away for longer than this beyond the queue itself: who was refused may not come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a runner takes on.

    Attributes:
        batch_tokens: Most tokens of a micro-batch.
        max_queue_tokens: Most tokens that may wait.
        max_wait_s: Longest predicted time for all that waits, beyond which nothing more may.
        stall_s: Seconds after which a batch may count as stalled; 0 never.
    """

    batch_tokens: int
    max_queue_tokens: int
    max_wait_s: float = math.inf
    stall_s: float = 0.0


class Admission:
    """The door of one queue.

    Who is refused is told when there will be room for it, after those who were told so before: if all came back as soon
    as one finds room, all but one would be refused again. That room is not kept: who comes and finds some has it.

    Args:
        limits: Of the queue.
        clock: Seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._promised = 0.0  # when the room that was promised last will be filled

    def admit(self, tokens: int, *, waiting: int, waiting_s: float, about: int = 0) -> None:
        """Let so many more tokens wait; an empty queue takes anything.

        Args:
            tokens: Of the request.
            waiting: Tokens that wait already.
            waiting_s: Predicted seconds that they take.
            about: What `tokens` will be, where nobody has counted them yet and it is 0.

        Raises:
            Overloaded: With the seconds after which there will be room.
        """
        if not waiting:
            return
        if waiting + tokens > self.limits.max_queue_tokens:
            excess = min(waiting + tokens - self.limits.max_queue_tokens, waiting)
            limit = self.limits.max_queue_tokens
            message = f"{waiting} tokens wait and {tokens} more would pass the limit of {limit}"
            room_s = excess / waiting * waiting_s
        elif waiting_s > self.limits.max_wait_s:
            message = f"what waits takes {waiting_s:.1f} s, more than the limit of {self.limits.max_wait_s:g} s"
            room_s = waiting_s - self.limits.max_wait_s
        else:
            return
        raise Overloaded(message, retry_after_s=self._promise(room_s, max(tokens, about) / waiting * waiting_s))

    def _promise(self, room_s: float, takes_s: float) -> float:
        """Seconds until there is room that nobody else was promised, for a request that takes so long."""
        now = self._clock()
        at = max(now + room_s, min(self._promised, now + room_s + LONGEST_S))
        self._promised = at + takes_s
        return at - now
