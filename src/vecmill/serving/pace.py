"""How fast a queue is worked off: predicted seconds of its work that are done in a second, measured while some waits.

What the cost model leaves out is in it: the overhead of batches, lanes that slow each other or help out, and whatever
else wants the processors. So what is ahead of a request is said in seconds of the clock on the wall.
"""

WINDOW_S = 0.25
TAKES = 8
"""A measurement has at least so many seconds and batches."""

BELIEF = 0.3
"""Weight of a measurement beside those before it."""

DOUBT = 4.0
"""No lane is believed to be so many times faster or slower than the cost model says."""


class Pace:
    """The speed of a lane beside the cost model's. Not thread-safe.

    Attributes:
        speed: Predicted seconds of work that a lane does in a second.
    """

    __slots__ = ("_began", "_done_s", "_takes", "speed")

    def __init__(self) -> None:
        self.speed = 1.0
        self._began = 0.0
        self._done_s = 0.0
        self._takes = 0

    def took(self, work_s: float, now: float, lanes: int, *, more: bool) -> None:
        """A batch left the queue.

        Args:
            work_s: What it costs, by the prices of the queue.
            now: By a clock that is the same each time.
            lanes: How many there are.
            more: Whether anything waits still; what is measured is from then on.
        """
        if not more:
            self._takes = 0
            return
        if not self._takes:
            self._began, self._done_s = now, 0.0
        else:
            self._done_s += work_s
        self._takes += 1
        passed_s = now - self._began
        if self._takes > TAKES and passed_s >= WINDOW_S:
            seen = min(max(self._done_s / passed_s / max(1, lanes), 1 / DOUBT), DOUBT)
            self.speed += BELIEF * (seen - self.speed)
            self._began, self._done_s, self._takes = now, 0.0, 1

    def seconds(self, work_s: float, lanes: int) -> float:
        """Seconds that so many lanes need for it."""
        return work_s / (self.speed * max(1, lanes))
