"""Which items run next: a data structure without threads or clock.

Fair queueing over requests in virtual time (after Goyal, Vin and Cheng, start-time fair queueing, 1996), the cost of an
item being its tokens. A request's turn comes when it has had less than its share: its clock starts at the present and
runs ahead by what it is served, while the present runs by what is served divided by the number of requests that wait.
So a lone query goes before the rest of a long job, and a stream of queries does not starve the job.

A micro-batch is the first item of the request whose turn it is, then items of the same length: its own, then anyone's
in order of arrival, each charged to its request.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray


class Owner:
    """What items belong to: one flow of the fair queue. The fields are the scheduler's."""

    __slots__ = ("clock", "lines", "order", "queued", "turn")

    def __init__(self) -> None:
        self.clock = 0.0
        self.turn = 0
        self.queued = 0
        self.order: deque[Item[Owner]] = deque()
        self.lines: defaultdict[int, deque[Item[Owner]]] = defaultdict(deque)


OwnerT = TypeVar("OwnerT", bound=Owner)


@dataclass(slots=True, eq=False)
class Item(Generic[OwnerT]):
    """One input in the queue.

    Attributes:
        ids: int32 [length].
        owner: What it belongs to.
        row: Its place there.
        taken: Whether it has left the queue.
    """

    ids: NDArray[np.int32]
    owner: OwnerT
    row: int
    taken: bool = False


class Scheduler(Generic[OwnerT]):
    """The queue of one model. O(log requests) a batch and O(1) an item.

    Args:
        batch_tokens: Most tokens of a micro-batch; an input longer than that runs alone.
    """

    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._now = 0.0
        self._served_tokens = 0
        self._turns = 0
        self._active = 0
        self._owners: list[tuple[float, int, OwnerT]] = []
        self._lines: defaultdict[int, deque[Item[OwnerT]]] = defaultdict(deque)
        self.waiting_items = 0
        self.waiting_tokens = 0

    def add(self, owner: OwnerT, rows: Sequence[NDArray[np.int32]]) -> None:
        """Queue the inputs of a new owner, in order."""
        for number, ids in enumerate(rows):
            item = Item(ids, owner, number)
            owner.order.append(item)  # type: ignore[arg-type]  # an owner holds items of its own kind
            owner.lines[len(ids)].append(item)  # type: ignore[arg-type]
            self._lines[len(ids)].append(item)
            self.waiting_tokens += len(ids)
        self.waiting_items += len(rows)
        owner.queued = len(rows)
        self._active += 1
        self._charge(owner, self._now)

    def take(self) -> list[Item[OwnerT]]:
        """The next micro-batch, of inputs of one length; empty when nothing waits."""
        self._now += self._served_tokens / max(1, self._active)
        self._served_tokens = 0
        owner = self._next_owner()
        if owner is None:
            return []
        length = len(next(_queued(owner.order)).ids)
        room = max(1, self._batch_tokens // length)
        mates: Iterator[Item[OwnerT]]
        mates = chain(_queued(owner.lines[length]), _queued(self._lines[length]))  # type: ignore[arg-type]
        batch: list[Item[OwnerT]] = []
        while len(batch) < room and (item := next(mates, None)):
            self._remove(item)
            batch.append(item)
        for served, items in Counter(item.owner for item in batch).items():
            self._charge(served, served.clock + length * items)
        self._tidy(length)
        self._served_tokens = length * len(batch)
        return batch

    def drop(self, owner: OwnerT) -> None:
        """Forget what is still queued of an owner."""
        lengths = list(owner.lines)
        for item in _queued(owner.order):
            self._remove(item)  # type: ignore[arg-type]  # an owner holds items of its own kind
        for length in lengths:
            self._tidy(length)

    def _charge(self, owner: OwnerT, clock: float) -> None:
        """Set an owner's clock; between equal clocks the one that has waited longer goes first."""
        owner.clock = clock
        owner.turn = self._turns
        self._turns += 1
        if owner.queued:
            heapq.heappush(self._owners, (clock, owner.turn, owner))

    def _next_owner(self) -> OwnerT | None:
        """Whose turn it is; entries of owners that were charged since, or have nothing left, are dropped on the way."""
        while self._owners:
            _, turn, owner = self._owners[0]
            if owner.queued and owner.turn == turn:
                return owner
            heapq.heappop(self._owners)
        return None

    def _remove(self, item: Item[OwnerT]) -> None:
        item.taken = True
        item.owner.queued -= 1
        self.waiting_items -= 1
        self.waiting_tokens -= len(item.ids)
        if not item.owner.queued:
            self._active -= 1
            item.owner.order.clear()  # items know their owner: a cycle would keep the job's rows alive
            item.owner.lines.clear()

    def _tidy(self, length: int) -> None:
        """Keep no item that has left, and no line that is empty."""
        if next(_queued(self._lines[length]), None) is None:
            del self._lines[length]


def _queued(line: deque[Item[OwnerT]]) -> Iterator[Item[OwnerT]]:
    """The items of a line that are still queued, in order; those that are not are dropped from it."""
    while line:
        if line[0].taken:
            line.popleft()
        else:
            yield line[0]
