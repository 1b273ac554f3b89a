"""Whether a request may join a queue: refused at once, with the time to come back, rather than late."""

import math
from dataclasses import dataclass

from vecmill.errors import Overloaded


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


def admit(tokens: int, limits: Limits, *, waiting: int, waiting_s: float) -> None:
    """Let so many more tokens wait; an empty queue takes anything.

    Args:
        tokens: Of the request.
        limits: Of the queue.
        waiting: Tokens that wait already.
        waiting_s: Predicted seconds that they take.

    Raises:
        Overloaded: With the seconds after which there will be room.
    """
    if not waiting:
        return
    if waiting + tokens > limits.max_queue_tokens:
        excess = min(waiting + tokens - limits.max_queue_tokens, waiting)
        message = f"{waiting} tokens wait and {tokens} more would pass the limit of {limits.max_queue_tokens}"
        raise Overloaded(message, retry_after_s=excess / waiting * waiting_s)
    if waiting_s > limits.max_wait_s:
        message = f"what waits takes {waiting_s:.1f} s, more than the limit of {limits.max_wait_s:g} s"
        raise Overloaded(message, retry_after_s=waiting_s - limits.max_wait_s)
