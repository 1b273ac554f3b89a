"""Which items run next: a data structure without threads or clock.

Tenants share the engine by their weights, the requests of a tenant its part by theirs (`vecmill.serving.fair`);
the cost of an item is what the cost model says. So a tenant with many requests takes nothing from one with few, and a
lone query goes before the rest of a long job.

A micro-batch is the first item of the request whose turn it is, then items of like length: its own, its tenant's, then
anyone's in order of arrival, each charged to its request and tenant. Which lengths are alike the engine says; how many
tokens are worth a batch the cost model, by the first one's length. Where nothing of it is of a long request it may take
longer: whoever comes next would wait for the same small requests anyway. Other tenants' add to no more than half of
that: what they have in one another's batches no weight divides.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vecmill.serving.fair import Fair, Flow
from vecmill.serving.piles import Item, Lines, Pile, filled, leading, tidy, tokens_of, total_cost

MANY_TENANTS = 1000
"""Tenants that wait for nothing are forgotten beyond this number."""


class Tenant(Flow):
    """Those whose requests share one part. The fields are the scheduler's."""

    __slots__ = ("lines", "name", "requests")

    def __init__(self, name: str, patience: float) -> None:
        super().__init__()
        self.name = name
        self.requests: Fair[Owner] = Fair(patience)
        self.lines: Lines = defaultdict(deque)


class Owner(Flow):
    """What items belong to: one flow among those of its tenant. The fields are the scheduler's."""

    __slots__ = ("order", "piles", "queued", "tenant")

    def __init__(self) -> None:
        super().__init__()
        self.queued = 0
        self.tenant: Tenant | None = None
        self.order: list[Item[Any]] = []
        self.piles: defaultdict[int, Pile] = defaultdict(list)


OwnerT = TypeVar("OwnerT", bound=Owner)


class Scheduler(Generic[OwnerT]):
    """The queue of one model. O(log requests) a batch and O(1) an item.

    Args:
        batch_tokens: Most tokens of a micro-batch; an input longer than that runs alone.
        room: Rows of a length whose tokens a micro-batch has at most, where that is fewer; None is no such bound.
        price: What a row of a length costs, in any unit; None is its tokens.
        alike: Length to the least length that is no shorter and runs with it; None is the length itself.
        knee: The same where none is of a long request, half of it with other tenants'; None is no more.
        batch_inputs: Most items of a micro-batch.
        patience: What a tenant is served from a request's coming on, before that has every other of its turns.

    Attributes:
        batch_tokens: As above; may be lowered.
        batch_inputs: As above.
        waiting_items: Items in the queue.
        waiting_tokens: Their tokens.
        waiting_cost: What they cost, at the prices at which they came.
    """

    def __init__(
        self,
        batch_tokens: int,
        room: Callable[[int], int] | None = None,
        price: Callable[[int], float] | None = None,
        alike: Callable[[int], int] | None = None,
        knee: Callable[[int], int] | None = None,
        *,
        batch_inputs: float = math.inf,
        patience: float = math.inf,
    ) -> None:
        self.batch_tokens = batch_tokens
        self.batch_inputs = batch_inputs
        self._most = room
        self._knee = knee
        self._patience = patience
        self._price = price or float
        self._alike = alike or int
        self._tenants: dict[str, Tenant] = {}
        self._turns: Fair[Tenant] = Fair()
        self._lines: Lines = defaultdict(deque)
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
    ) -> float:
        """Queue the inputs of a new owner, in order; what they cost.

        Args:
            owner: Nothing of it is queued.
            rows: Its inputs, int32 [length] each.
            tenant: Whose it is.
            share: The tenant's weight beside other tenants.
            weight: The owner's weight beside the tenant's others.
        """
        if not rows:
            return 0.0
        whose = self._tenant(tenant, share)
        owner.order = [Item(ids, owner, row) for row, ids in enumerate(rows)]
        owner.order.reverse()
        for item in owner.order:
            owner.piles[self._alike(len(item.ids))].append(item)
        all_cost = 0.0
        for length, pile in owner.piles.items():
            token_s, tokens, cost = self._price(length) / length, 0, 0.0
            for item in pile:
                tokens += (size := len(item.ids))
                item.cost = size * token_s
                cost += item.cost
            whose.lines[length].append(pile)
            self._lines[length].append(pile)
            self._count(len(pile), tokens, cost)
            all_cost += cost
        owner.queued = len(rows)
        owner.weight = weight
        self._enter(owner, whose)
        return all_cost

    def put_back(self, items: Sequence[Item[OwnerT]]) -> None:
        """Queue items again that were taken; those of an owner stand before what else is queued of it."""
        for item in reversed(items):
            item.taken = False
            owner, length = item.owner, self._alike(len(item.ids))
            pile = owner.piles[length]
            pile.append(item)
            owner.order.append(item)
            self._lines[length].appendleft(pile)
            self._count(1, len(item.ids), item.cost)
            if owner.tenant is not None:
                owner.tenant.lines[length].appendleft(pile)
                if not owner.queued:
                    self._enter(owner, owner.tenant)
            owner.queued += 1

    def take(self, most: float = math.inf) -> list[Item[OwnerT]]:
        """The next micro-batch, of inputs that run together; empty when nothing waits.

        Args:
            most: What it may cost. Requests with more left are passed over; empty where none of `fair.NEAR` has less.
        """
        owner = self._turn() if most == math.inf else self._small(most)
        if owner is None or (tenant := owner.tenant) is None:
            return []
        own = len(_next(owner).ids)
        token_s = self._price(own) / own
        most /= token_s
        room = min(self.room(own) * own, most)
        knee = max(room, min(self._bounded(self._knee, own) * own, most)) if self._knee is not None else room
        batch: list[Item[OwnerT]] = []
        length, tokens = self._alike(own), 0
        for pile in chain((owner.piles[length],), filled(tenant.lines[length]), filled(self._lines[length])):
            whole = len(pile) == pile[-1].owner.queued and len(pile) <= room < knee and tokens_of(pile) <= room
            small = knee if pile[-1].owner.tenant is tenant else max(room, knee / 2)
            left = self.batch_inputs - len(batch)
            part, size = leading(pile, (small if whole else room) - tokens, left, least=not batch)
            if part:
                batch += part
                tokens += size
                self._serve(part, length, size * token_s)
            if pile:
                break
        self._count(-len(batch), -tokens, -total_cost(batch))
        tidy(self._lines, length)
        return batch

    def _turn(self) -> Owner | None:
        """Whose turn it is."""
        tenant = self._turns.first()
        return None if tenant is None else tenant.requests.first()

    def _small(self, most: float) -> Owner | None:
        """The first whose whole rest costs no more than this."""
        small = (owner for tenant in self._turns.least() for owner in tenant.requests.least(most))
        return next((one for one in small if one.queued * self._price(len(_next(one).ids)) <= most), None)

    def fills(self, cost: float) -> bool:
        """Whether what waits is a batch: of so many tokens or items, or one that costs so much."""
        items, tokens = self.waiting_items >= self.batch_inputs, self.waiting_tokens >= self.batch_tokens
        return items or tokens or self.waiting_cost >= cost

    def cost_of(self, length: int) -> float:
        """What an input of a length costs, as `waiting_cost` counts it."""
        alike = self._alike(max(1, length))
        return length * self._price(alike) / alike

    def room(self, length: int) -> int:
        """Most rows of a length in a micro-batch, where some are of a long request."""
        return self._bounded(self._most, length)

    def _bounded(self, most: Callable[[int], int] | None, length: int) -> int:
        room = self.batch_tokens // length
        return max(1, room if most is None else min(room, most(length)))

    def drop(self, owner: OwnerT) -> None:
        """Forget what is still queued of an owner."""
        if owner.tenant is None or not owner.queued:
            return
        lines = owner.tenant.lines
        piles, owner.piles = owner.piles, defaultdict(list)
        self._leave(owner, owner.tenant)
        for length, pile in piles.items():
            self._count(-len(pile), -tokens_of(pile), -total_cost(pile))
            for item in pile:
                item.taken = True
            pile.clear()
            tidy(lines, length)
            tidy(self._lines, length)

    def _tenant(self, name: str, share: float) -> Tenant:
        if len(self._tenants) > MANY_TENANTS:
            kept = {key: one for key, one in self._tenants.items() if one.waits or self._turns.is_ahead(one)}
            self._tenants = kept
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = Tenant(name, self._patience)
        if not tenant.waits:
            tenant.weight = share
        return tenant

    def _ahead(self, owner: Owner) -> float:
        """What the owner's part of its next batch costs."""
        length = len(_next(owner).ids)
        rows = 1 if owner.queued == 1 else min(self.room(length), owner.queued, self.batch_inputs)
        return rows * self._price(length)

    def _enter(self, owner: OwnerT, tenant: Tenant) -> None:
        owner.tenant = tenant
        owner.ahead = self._ahead(owner)
        tenant.requests.enter(owner)
        if not tenant.waits:
            self._turns.enter(tenant)

    def _leave(self, owner: OwnerT, tenant: Tenant) -> None:
        owner.queued = 0
        owner.ahead = 0.0
        owner.order.clear()  # items know their owner: a cycle would keep the job's rows alive
        owner.piles.clear()
        tenant.requests.leave(owner)
        if not tenant.requests.waiting:
            tenant.lines.clear()
            self._turns.leave(tenant)

    def _serve(self, part: Pile, length: int, cost: float) -> None:
        """An owner has these of its items in the batch."""
        owner = part[0].owner
        tenant = owner.tenant
        if tenant is None:
            return
        for item in part:
            item.taken = True
        owner.queued -= len(part)
        if owner.queued:
            owner.ahead = self._ahead(owner)
        else:
            self._leave(owner, tenant)
        tenant.requests.charge(owner, cost)
        self._turns.charge(tenant, cost)
        tidy(tenant.lines, length)

    def _count(self, items: int, tokens: int, cost: float) -> None:
        """So many come, or go where they are less than none, at what they cost when they came: prices change."""
        self.waiting_items += items
        self.waiting_tokens += tokens
        self.waiting_cost = max(0.0, self.waiting_cost + cost) if self.waiting_items else 0.0


def _next(owner: Owner) -> Item[Any]:
    """The first item that is still queued of an owner that has one."""
    while owner.order[-1].taken:
        owner.order.pop()
    return owner.order[-1]
