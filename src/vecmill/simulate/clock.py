"""Virtual time: what is to happen, in order."""

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Clock:
    """Runs actions at their times; those of one time in the order in which they were set.

    Attributes:
        now: Seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._set = 0
        self._events: list[tuple[float, int, Action]] = []

    def at(self, time: float, action: Action) -> None:
        """Let an action happen at a time, or now where that is past."""
        heapq.heappush(self._events, (max(time, self.now), self._set, action))
        self._set += 1

    def after(self, seconds: float, action: Action) -> None:
        """Let an action happen so many seconds from now."""
        self.at(self.now + seconds, action)

    def run(self) -> None:
        """Go on until nothing is left to happen."""
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()
