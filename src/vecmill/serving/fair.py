"""Sharing one thing fairly, in virtual time (Demers, Keshav and Shenker, weighted fair queueing, 1989).

A flow's clock starts at the present and runs ahead by what it is served, divided by its weight, while the present runs
by what is served, divided by the weights of all that wait. The turn is of the flow whose clock would be least after it:
so one that comes late, or wants little, goes before the rest of one that has had much, and a stream of them does not
starve it, as its clock stands still meanwhile.

That has no end for one that wants much while others come that want little. So from where others were served so much
since it came, the one that has waited longest has every other turn.
"""

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

NEAR = 128
"""Flows at the front that are looked at where it need not be the first one's turn. They are not sorted: one that is
among the first few is surely there, others most often."""


class Flow:
    """One that waits for its turns. The other fields are those of `Fair`.

    Args:
        weight: Its share, beside those of others.

    Attributes:
        ahead: What its next turn will cost; 0 where that is not known.
    """

    __slots__ = ("ahead", "came", "clock", "turn", "waits", "weight")

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        self.ahead = 0.0
        self.came = 0.0
        self.clock = 0.0
        self.turn = 0
        self.waits = False


FlowT = TypeVar("FlowT", bound=Flow)


class Fair(Generic[FlowT]):
    """Whose turn it is. O(log flows) a turn.

    Args:
        patience: What may be served from a flow's coming on before it has every other turn.

    Attributes:
        waiting: How many flows wait.
    """

    __slots__ = ("_all", "_heap", "_line", "_now", "_owed", "_patience", "_served", "_turns", "_weights", "waiting")

    def __init__(self, patience: float = math.inf) -> None:
        self.waiting = 0
        self._patience = patience
        self._line: OrderedDict[FlowT, None] = OrderedDict()
        self._all = 0.0
        self._owed = 0.0  # to the one that has waited longest
        self._now = 0.0
        self._served = 0.0
        self._weights = 0.0
        self._turns = 0
        self._heap: list[tuple[float, int, FlowT]] = []

    def enter(self, flow: FlowT) -> None:
        """The flow waits from now on; what it was served ahead of its share before still counts."""
        flow.waits = True
        self.waiting += 1
        self._weights += flow.weight
        if self._patience < math.inf:
            flow.came = self._all
            self._line[flow] = None
        self._set(flow, max(flow.clock, self._now))

    def leave(self, flow: FlowT) -> None:
        """The flow has nothing more to be served."""
        flow.waits = False
        self._line.pop(flow, None)
        self.waiting -= 1
        self._weights = self._weights - flow.weight if self.waiting else 0.0
        if not self.waiting:
            self._heap.clear()  # what is left of it would keep flows alive

    def charge(self, flow: FlowT, cost: float) -> None:
        """The flow is served, whether or not it was its turn."""
        self._served += cost
        if self._patience < math.inf:
            longest = self._longest()
            self._all += cost
            self._owed += 0.0 if longest is None else cost if flow is not longest else -cost
        self._set(flow, flow.clock + cost / flow.weight)

    def first(self) -> FlowT | None:
        """Whose turn it is; None where nobody waits."""
        if self._owed > 0.0 and (longest := self._longest()) is not None:
            return longest
        if self._served:
            self._now += self._served / (self._weights or 1.0)
            self._served = 0.0
        heap = self._heap
        while heap:
            _, turn, flow = heap[0]
            if flow.waits and flow.turn == turn:
                return flow
            heapq.heappop(heap)  # charged since, or gone
        return None

    def least(self, most: float = math.inf) -> Iterator[FlowT]:
        """Those whose next turn costs no more than this, in the order of their turns, of `NEAR` of them."""
        near = [one for one in self._heap[:NEAR] if one[2].ahead <= most and one[2].waits and one[2].turn == one[1]]
        return (flow for _, _, flow in sorted(near))

    def _longest(self) -> FlowT | None:
        """Who has waited longest, if that is too long."""
        longest = next(iter(self._line), None)
        if longest is not None and self._all - longest.came > self._patience:
            return longest
        self._owed = 0.0
        return None

    def is_ahead(self, flow: FlowT) -> bool:
        """Whether a flow has been served ahead of its share, so that it must not be forgotten yet."""
        return flow.clock > self._now

    def _set(self, flow: FlowT, clock: float) -> None:
        """Between equal clocks the one that has waited longer goes first."""
        flow.clock = clock
        flow.turn = turn = self._turns
        self._turns = turn + 1
        if not flow.waits:
            return
        heap, entry = self._heap, (clock + flow.ahead / flow.weight, turn, flow)
        if heap and heap[0][2] is flow:
            heapq.heapreplace(heap, entry)  # most often it was its turn
        else:
            heapq.heappush(heap, entry)
