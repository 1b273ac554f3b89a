"""Which items run next: a data structure without threads or clock.

Start-time fair queueing (Goyal, Vin and Cheng, 1996) over requests, the cost of an item being its tokens: an item's tag
is when its turn comes in virtual time, so a lone query goes before the rest of a long job and the job is not starved.
A micro-batch is the item with the least tag and others of the same length, in the order of their tags.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray


class Owner:
    """What items belong to; one flow of the fair queue.

    Attributes:
        abandoned: Nobody waits for it any more: its items are dropped when their turn comes.
    """

    __slots__ = ("abandoned",)

    def __init__(self) -> None:
        self.abandoned = False


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
    """The queue of one model. OwnerT(log n) an item, in and out.

    Args:
        batch_tokens: Most tokens of a micro-batch; an input longer than that runs alone.
    """

    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._now = 0
        self._added = 0
        self._by_tag: list[tuple[int, int, Item[OwnerT]]] = []
        self._by_length: dict[int, list[tuple[int, int, Item[OwnerT]]]] = {}
        self.waiting_items = 0
        self.waiting_tokens = 0

    def add(self, owner: OwnerT, rows: Sequence[NDArray[np.int32]]) -> None:
        """Queue the inputs of one owner, in order."""
        tag = self._now
        for number, ids in enumerate(rows):
            entry = (tag, self._added, Item(ids, owner, number))
            heapq.heappush(self._by_tag, entry)
            heapq.heappush(self._by_length.setdefault(len(ids), []), entry)
            tag += len(ids)
            self._added += 1
            self.waiting_items += 1
            self.waiting_tokens += len(ids)

    def take(self) -> list[Item[OwnerT]]:
        """The next micro-batch, of inputs of one length; empty when nothing waits."""
        first = self._pop(self._by_tag)
        if first is None:
            return []
        tag, item = first
        self._now = max(self._now, tag)
        batch, length = [item], len(item.ids)
        mates = self._by_length[length]
        for _ in range(self._batch_tokens // length - 1):
            mate = self._pop(mates)
            if mate is None:
                break
            batch.append(mate[1])
        self._forget_taken(length)
        return batch

    def _pop(self, heap: list[tuple[int, int, Item[OwnerT]]]) -> tuple[int, Item[OwnerT]] | None:
        """The first item of a heap that is still queued and waited for; each item lies in two heaps."""
        while heap:
            tag, _, item = heapq.heappop(heap)
            if item.taken:
                continue
            item.taken = True
            self.waiting_items -= 1
            self.waiting_tokens -= len(item.ids)
            if not item.owner.abandoned:
                return tag, item
        return None

    def _forget_taken(self, length: int) -> None:
        """Drop taken items from the top of a length's heap, and the heap when it is empty."""
        heap = self._by_length[length]
        while heap and heap[0][2].taken:
            heapq.heappop(heap)
        if not heap:
            del self._by_length[length]
