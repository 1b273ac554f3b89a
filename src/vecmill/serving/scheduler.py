"""Which items run next: a data structure without threads or clock.

Tenants share the engine by their weights, the requests of a tenant its part by theirs (`vecmill.serving.fair`);
the cost of an item is what the cost model says. So a tenant with many requests takes nothing from one with few, and a
lone query goes before the rest of a long job.

A micro-batch is the first item of the request whose turn it is, then items of the same length: its own, its tenant's,
then anyone's in order of arrival, each charged to its request and tenant.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vecmill.serving.fair import Fair, Flow

MANY_TENANTS = 1000
"""Tenants that wait for nothing are forgotten beyond this number."""


class Tenant(Flow):
    """Those whose requests share one part. The fields are the scheduler's."""

    __slots__ = ("lines", "name", "requests")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.requests: Fair[Owner] = Fair()
        self.lines: Lines[Owner] = defaultdict(deque)


class Owner(Flow):
    """What items belong to: one flow among those of its tenant. The fields are the scheduler's."""

    __slots__ = ("lines", "order", "queued", "tenant")

    def __init__(self) -> None:
        super().__init__()
        self.queued = 0
        self.tenant: Tenant | None = None
        self.order: deque[Item[Owner]] = deque()
        self.lines: Lines[Owner] = defaultdict(deque)


OwnerT = TypeVar("OwnerT", bound=Owner)


@dataclass(slots=True, eq=False)
class Item(Generic[OwnerT]):
    """One input in the queue.

    Attributes:
        ids: int32 [length].
        owner: What it belongs to.
        row: Its place there.
        taken: Whether it has left the queue.
        deaths: Times that its engine died over it.
    """

    ids: NDArray[np.int32]
    owner: OwnerT
    row: int
    taken: bool = False
    deaths: int = 0


Lines = defaultdict[int, deque[Item[OwnerT]]]
"""Items by their length, in order of arrival; those that were taken leave when they come to the front."""


class Scheduler(Generic[OwnerT]):
    """The queue of one model. O(log requests) a batch and O(1) an item.

    Args:
        batch_tokens: Most tokens of a micro-batch; an input longer than that runs alone.
        room: Most rows of a length in a micro-batch, where that is fewer; None where only the tokens count.
        price: What a row of a length costs, in any unit; None is its tokens.

    Attributes:
        waiting_items: Items in the queue.
        waiting_tokens: Their tokens.
        waiting_cost: What they cost.
    """

    def __init__(
        self,
        batch_tokens: int,
        room: Callable[[int], int] | None = None,
        price: Callable[[int], float] | None = None,
    ) -> None:
        self.batch_tokens = batch_tokens
        self._most = room
        self._price = price or float
        self._tenants: dict[str, Tenant] = {}
        self._turns: Fair[Tenant] = Fair()
        self._lines: Lines[OwnerT] = defaultdict(deque)
        self.waiting_items = 0
        self.waiting_tokens = 0
        self.waiting_cost = 0.0

    def add(
        self,
        owner: OwnerT,
        rows: Sequence[NDArray[np.int32]],
        *,
        tenant: str = "",
        share: float = 1.0,
        weight: float = 1.0,
    ) -> None:
        """Queue the inputs of a new owner, in order.

        Args:
            owner: Nothing of it is queued.
            rows: Its inputs, int32 [length] each.
            tenant: Whose it is.
            share: The tenant's weight beside other tenants.
            weight: The owner's weight beside the tenant's others.
        """
        self._put(owner, [Item(ids, owner, number) for number, ids in enumerate(rows)], tenant, share, weight)

    def put_back(self, items: Sequence[Item[OwnerT]]) -> None:
        """Queue items again that were taken; those of an owner stand before what else is queued of it."""
        for item in reversed(items):
            item.taken = False
            owner, length = item.owner, len(item.ids)
            owner.order.appendleft(item)  # type: ignore[arg-type]  # an owner holds items of its own kind
            owner.lines[length].appendleft(item)  # type: ignore[arg-type]
            self._lines[length].appendleft(item)
            self._count(item, 1)
            if owner.tenant is not None:
                owner.tenant.lines[length].appendleft(item)  # type: ignore[arg-type]
                if not owner.queued:
                    self._enter(owner, owner.tenant)
            owner.queued += 1

    def take(self, most: float = math.inf) -> list[Item[OwnerT]]:
        """The next micro-batch, of inputs of one length; empty when nothing waits.

        Args:
            most: What it may cost; empty also where what is left of the request whose turn it is costs more.
        """
        tenant = self._turns.first()
        owner = tenant.requests.first() if tenant is not None else None
        if tenant is None or owner is None:
            return []
        length = len(next(_queued(owner.order)).ids)
        price = self._price(length)
        if owner.queued * price > most:
            return []
        room = self.room(length) if most == math.inf else min(self.room(length), int(most / price))
        mates: Iterator[Item[OwnerT]]
        mates = chain(*map(_queued, (owner.lines[length], tenant.lines[length], self._lines[length])))  # type: ignore[arg-type]
        batch: list[Item[OwnerT]] = []
        while len(batch) < room and (item := next(mates, None)):
            self._remove(item)
            batch.append(item)
        for served, items in Counter(item.owner for item in batch).items():
            if served.tenant is not None:
                served.ahead = self._ahead(served)
                served.tenant.requests.charge(served, price * items)
                self._turns.charge(served.tenant, price * items)
        self._tidy(length, {item.owner.tenant for item in batch})
        return batch

    def room(self, length: int) -> int:
        """Most rows of a length in a micro-batch."""
        room = self.batch_tokens // length
        return max(1, room if self._most is None else min(room, self._most(length)))

    def drop(self, owner: OwnerT) -> None:
        """Forget what is still queued of an owner."""
        lengths = list(owner.lines)
        for item in _queued(owner.order):
            self._remove(item)  # type: ignore[arg-type]  # an owner holds items of its own kind
        for length in lengths:
            self._tidy(length, {owner.tenant})

    def _put(self, owner: OwnerT, items: list[Item[OwnerT]], tenant: str, share: float, weight: float) -> None:
        if not items:
            return
        whose = self._tenant(tenant, share)
        for item in items:
            length = len(item.ids)
            owner.order.append(item)  # type: ignore[arg-type]  # an owner holds items of its own kind
            owner.lines[length].append(item)  # type: ignore[arg-type]
            whose.lines[length].append(item)  # type: ignore[arg-type]
            self._lines[length].append(item)
            self._count(item, 1)
        owner.queued = len(items)
        owner.weight = weight
        self._enter(owner, whose)

    def _tenant(self, name: str, share: float) -> Tenant:
        if len(self._tenants) > MANY_TENANTS:
            kept = {key: one for key, one in self._tenants.items() if one.waits or self._turns.is_ahead(one)}
            self._tenants = kept
        tenant = self._tenants.setdefault(name, Tenant(name))
        if not tenant.waits:
            tenant.weight = share
        return tenant

    def _ahead(self, owner: Owner) -> float:
        """What the owner's part of its next batch costs."""
        item = next(_queued(owner.order), None)
        if item is None:
            return 0.0
        length = len(item.ids)
        return min(self.room(length), owner.queued) * self._price(length)

    def _enter(self, owner: OwnerT, tenant: Tenant) -> None:
        owner.tenant = tenant
        owner.ahead = self._ahead(owner)
        tenant.requests.enter(owner)
        if not tenant.waits:
            self._turns.enter(tenant)

    def _remove(self, item: Item[OwnerT]) -> None:
        item.taken = True
        self._count(item, -1)
        owner = item.owner
        owner.queued -= 1
        if owner.queued or owner.tenant is None:
            return
        owner.order.clear()  # items know their owner: a cycle would keep the job's rows alive
        owner.lines.clear()
        owner.tenant.requests.leave(owner)
        if not owner.tenant.requests.waiting:
            owner.tenant.lines.clear()
            self._turns.leave(owner.tenant)

    def _count(self, item: Item[OwnerT], sign: int) -> None:
        self.waiting_items += sign
        self.waiting_tokens += sign * len(item.ids)
        cost = self.waiting_cost + sign * self._price(len(item.ids))
        self.waiting_cost = max(0.0, cost) if self.waiting_items else 0.0  # prices change while items wait

    def _tidy(self, length: int, tenants: Iterable[Tenant | None]) -> None:
        """Keep no item that has left, and no line that is empty."""
        every: list[Lines[Any]] = [self._lines, *(tenant.lines for tenant in tenants if tenant is not None)]
        for lines in every:
            if next(_queued(lines[length]), None) is None:
                del lines[length]


def _queued(line: deque[Item[OwnerT]]) -> Iterator[Item[OwnerT]]:
    """The items of a line that are still queued, in order; those that are not are dropped from it."""
    while line:
        if line[0].taken:
            line.popleft()
        else:
            yield line[0]
