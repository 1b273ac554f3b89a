"""Whether a request may join a queue: refused at once, with the time to come back, rather than late.

Who is refused has a place in a line: a time at which there will be room, of which others are kept out. As not all come
back, the line is as long as those are who will, by what the ones before them did; nobody waits for the others.
"""

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heappop, heappush

from vecmill.errors import Overloaded

LONGEST_S = 600.0
"""Nobody is asked to stay away for longer than this beyond the queue itself."""

ANYBODY = 0.5
"""Where no more than this part of the room is taken, nobody waits for the line: not all come, none stands idle."""

PRUDENCE = 0.2
MOST_PRUDENCE = 0.25
"""A time that is told is so much later than what is predicted, but no more than this part of the longest wait: who
comes late finds room, who comes early does not. As nobody is later than that, the queue does not run dry."""

LEAST_S = 0.02
"""Nobody is told to come back sooner."""

SLACK = 1.1
"""Who comes in time is let in up to so many times the longest wait: predictions are not exact."""

KEPT_S = 1.5
"""Room is kept for so long for who is late; whole seconds are what many clients read of the time that they are told."""

MOST_PLACES = 50_000
"""Who is refused beyond these has no place, and is told the end of the line."""

MEMORY = 0.03
"""Weight of the last one in the part that comes back, of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a runner takes on.

    Attributes:
        batch_tokens: Most tokens of a micro-batch.
        max_queue_tokens: Most tokens that may wait.
        max_queue_inputs: Most inputs that may wait.
        batch_inputs: Most inputs of a micro-batch.
        batch_wait_s: How long less than a batch waits for more.
        max_wait_s: Longest predicted time until all is done that waits and runs, a new request's own work with it.
        stall_s: Seconds after which a batch may count as stalled; 0 never.
    """

    batch_tokens: int
    max_queue_tokens: int
    max_queue_inputs: float = math.inf
    batch_inputs: float = math.inf
    batch_wait_s: float = 0.0
    max_wait_s: float = math.inf
    stall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is there already.

    Attributes:
        tokens: That wait.
        waiting_s: Predicted seconds of what waits.
        all_s: The same with what runs.
        inputs: That wait.
    """

    tokens: int
    waiting_s: float
    all_s: float
    inputs: int = 0


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who asks.

    Attributes:
        tokens: Of the request, or about so many.
        takes_s: Predicted seconds of them.
        who: The same when it comes back; None has no place in the line.
        inputs: Of the request.
    """

    tokens: int
    takes_s: float
    who: Hashable = None
    inputs: int = 1


Bound = tuple[int, int, float, str]
"""What is there, what comes, how much there may be, and of what."""


@dataclass(slots=True, eq=False)
class _Place:
    who: Hashable
    due: float
    takes_s: float
    told: bool
    again: bool
    near: bool = False


class Admission:
    """The door of one queue. O(log places) a request; not thread-safe.

    Args:
        limits: Of the queue.
        clock: Seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._places: dict[Hashable, _Place] = {}
        self._line: list[tuple[float, int, _Place]] = []  # by their time
        self._near: list[tuple[float, int, _Place]] = []  # whose time has come
        self._far_s = 0.0
        self._near_s = 0.0
        self._given = 0
        self._seen = 0
        self._return = 1.0
        self._again = 0.0

    def admit(self, applicant: Applicant, ahead: Ahead, *, joins: bool = True) -> None:
        """Let a request join; an empty queue takes anything.

        Args:
            applicant: Who asks.
            ahead: What is there already.
            joins: Whether it joins now; if not, room is kept for it as for one that was told to come now.

        Raises:
            Overloaded: With the seconds after which there will be room.
        """
        self._pass(now := self._clock())
        place = self._places.get(applicant.who)
        if self._takes(applicant, ahead, now):
            if place is not None:
                self._leave(place, came=True)
            if not joins and ahead.tokens:
                self._enter(applicant, now, told=False, again=True)
            return
        if place is None:
            room_s = min(self._over_s(applicant, ahead, self._line_s), ahead.all_s + LONGEST_S)
            due = now + room_s + min(PRUDENCE * room_s, MOST_PRUDENCE * self.limits.max_wait_s)
            self._enter(applicant, due)
        else:
            due = place.due
            if due <= now:  # it came in time, and what is ahead takes longer than was thought
                due = max(now + self._over_s(applicant, ahead, 0.0), self._again)
                self._again = due + applicant.takes_s
                self._leave(place, came=True)
                self._enter(applicant, due, again=True)
        raise Overloaded(self._why(applicant, ahead, "" if joins else "about "), retry_after_s=max(due - now, LEAST_S))

    @property
    def crowded(self) -> bool:
        """Whether somebody is in line."""
        return bool(self._places)

    def is_open(self, applicant: Applicant, ahead: Ahead) -> bool:
        """Whether a request would be let in now; nothing comes of asking."""
        self._pass(now := self._clock())
        return self._takes(applicant, ahead, now)

    def _takes(self, applicant: Applicant, ahead: Ahead, now: float) -> bool:
        """Whether there is room; what time has done to the line was seen to before."""
        if not ahead.tokens:
            return True
        if (place := self._places.get(applicant.who)) is not None:
            first = place.again or self._again <= now
            return place.near and first and self._fits(applicant, ahead)
        filled = (there / limit for there, _, limit, _ in self._bounds(applicant, ahead))
        little = max(ahead.all_s / self.limits.max_wait_s, *filled) <= ANYBODY
        return self._over_s(applicant, ahead, self._return * self._near_s if little else self._line_s) <= 0.0

    @property
    def _line_s(self) -> float:
        """Predicted seconds of those in line who will come."""
        return self._return * (self._near_s + self._far_s)

    def _fits(self, applicant: Applicant, ahead: Ahead) -> bool:
        """Whether one that comes in time does no harm."""
        in_time = ahead.all_s + applicant.takes_s <= SLACK * self.limits.max_wait_s
        return in_time and self._crowding(applicant, ahead) is None

    def _over_s(self, applicant: Applicant, ahead: Ahead, kept_s: float) -> float:
        """Seconds until there is room beside what is kept for others; none or less where there is."""
        over_s = ahead.all_s + kept_s + applicant.takes_s - self.limits.max_wait_s
        if ahead.tokens:
            all_s = ahead.waiting_s + applicant.takes_s
            for there, more, limit, _ in self._bounds(applicant, ahead):
                over_s = max(over_s, all_s * (1 - limit / (there + more)) + kept_s)
            over_s = min(over_s, ahead.all_s + kept_s)  # whatever its size, there is room when nothing waits
        return over_s

    def _why(self, applicant: Applicant, ahead: Ahead, about: str) -> str:
        if (crowding := self._crowding(applicant, ahead)) is not None:
            there, more, limit, kind = crowding
            return f"{there} {kind} wait and {about}{more} more would pass the limit of {limit:g}"
        if ahead.all_s + applicant.takes_s > self.limits.max_wait_s:
            total_s, limit_s = ahead.all_s + applicant.takes_s, self.limits.max_wait_s
            return f"what waits and runs, with this, takes {total_s:.1f} s, more than the limit of {limit_s:g} s"
        return "what room there is is kept for those who were told to come back for it"

    def _bounds(self, applicant: Applicant, ahead: Ahead) -> tuple[Bound, Bound]:
        """What a queue is bounded in besides time."""
        return (
            (ahead.tokens, applicant.tokens, self.limits.max_queue_tokens, "tokens"),
            (ahead.inputs, applicant.inputs, self.limits.max_queue_inputs, "inputs"),
        )

    def _crowding(self, applicant: Applicant, ahead: Ahead) -> Bound | None:
        """What a queue with this request would have too much of."""
        bounds = self._bounds(applicant, ahead)
        return next((bound for bound in bounds if bound[0] + bound[1] > bound[2]), None)

    def _enter(self, applicant: Applicant, due: float, *, told: bool = True, again: bool = False) -> None:
        """Keep room for who asks, from a time on."""
        if applicant.who is None or len(self._places) >= MOST_PLACES:
            return
        place = self._places[applicant.who] = _Place(applicant.who, due, applicant.takes_s, told, again)
        self._given += 1
        self._far_s += place.takes_s
        heappush(self._line, (due, self._given, place))

    def _leave(self, place: _Place, *, came: bool) -> None:
        """A place is given up; it stays in its list, for nobody."""
        del self._places[place.who]
        if place.near:
            self._near_s -= place.takes_s
        else:
            self._far_s -= place.takes_s
        place.takes_s = 0.0
        if place.told:
            self._seen += 1
            self._return += max(MEMORY, 1 / (self._seen + 1)) * (came - self._return)
        if not self._places:
            self._near_s = self._far_s = 0.0
            self._line.clear()
            self._near.clear()

    def _pass(self, now: float) -> None:
        """Time has gone by: whose time has come are near, who has not come by then is not waited for."""
        while self._line and self._line[0][0] <= now:
            due, number, place = heappop(self._line)
            if self._places.get(place.who) is place:
                place.near = True
                self._far_s -= place.takes_s
                self._near_s += place.takes_s
                heappush(self._near, (due, number, place))
        while self._near and self._near[0][0] + KEPT_S <= now:
            _, _, place = heappop(self._near)
            if self._places.get(place.who) is place:
                self._leave(place, came=False)
        while self._line and self._places.get(self._line[0][2].who) is not self._line[0][2]:
            heappop(self._line)
        while self._near and self._places.get(self._near[0][2].who) is not self._near[0][2]:
            heappop(self._near)
