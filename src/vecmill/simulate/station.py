"""A queue and the lanes that work on it: a replica's own, or one queue for all replicas.

Lanes take as those of `vecmill.serving.runner` do. A batch takes what the replica's cost model says, times chance.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random

import numpy as np
from numpy.typing import NDArray

from vecmill.serving.admission import Limits
from vecmill.serving.cost import CostModel
from vecmill.serving.door import Door, queue_of
from vecmill.serving.job import EXPRESS
from vecmill.serving.piles import Item
from vecmill.serving.scheduler import Owner, Scheduler
from vecmill.simulate.arrivals import Arrival
from vecmill.simulate.clock import Clock
from vecmill.simulate.refused import Visit

Chance = Callable[[Random], float]


@dataclass(frozen=True, slots=True)
class Machine:
    """What a replica is made of.

    Attributes:
        cost: Seconds of batches on one lane of a machine of speed 1.
        lanes: Batches that run at once, the express lane's not counted.
        express: Whether there is an express lane.
        speed: How many times faster it is.
        wide: How many times faster a batch is that is alone and has all cores.
        request_s: Processor time beside the engine's that a request costs, on the same cores.
        chance: Factor of a batch's seconds that the cost model does not know; its mean should be 1.
        start_s: Seconds from its start until it serves.
    """

    cost: CostModel
    lanes: int = 1
    express: bool = False
    speed: float = 1.0
    wide: float = 1.0
    request_s: float = 0.0
    chance: Chance = field(default=lambda _: 1.0)
    start_s: float = 0.0

    def model(self) -> CostModel:
        """What this machine believes of itself, its own to correct."""
        speeds = [token_s / self.speed for token_s in self.cost.token_s]
        return replace(
            self.cost, overhead_s=self.cost.overhead_s / self.speed, lengths=list(self.cost.lengths), token_s=speeds
        )


class Request(Owner):
    """One request at one station; a new one where it has to begin anew.

    Attributes:
        arrival: What was asked.
        since: When it was first asked.
        tries: How often it was, refusals counted.
        visit: The same each time.
        missing: Inputs that are not done.
        begun: Whether any ran.
    """

    __slots__ = ("arrival", "begun", "missing", "since", "tries", "visit")

    def __init__(self, arrival: Arrival, since: float, visit: Visit, tries: int = 1) -> None:
        super().__init__()
        self.arrival = arrival
        self.since = since
        self.tries = tries
        self.visit = visit
        self.missing = len(arrival.lengths)
        self.begun = False


@dataclass(slots=True, eq=False)
class Lane:
    """One batch after the other.

    Attributes:
        replica: Whose it is.
        machine: What it runs on.
        express: Whether it is there for small requests, while the replica's other lanes are busy.
        up: Whether it works.
        items: In hand.
        began: Since when.
        ends: When they will be done.
        alone: Whether they have all cores.
        expected_s: What they should take.
        part_s: What the largest part of them costs that is one request's.
    """

    replica: int
    machine: Machine
    express: bool
    up: bool = False
    items: list[Item[Request]] = field(default_factory=list)
    began: float = 0.0
    ends: float = 0.0
    alone: bool = False
    expected_s: float = 0.0
    part_s: float = 0.0

    def left_s(self, now: float) -> float:
        """Predicted seconds until the batch in hand is done."""
        return max(0.0, self.began + self.expected_s - now)


class Station:
    """One queue, and the lanes of one or more replicas.

    Args:
        machines: Replica to its machine; they share the queue.
        limits: Of the queue and its batches.
        clock: Virtual time.
        rng: For chance.
        ended: Told of each request that is done.
        ran: Told of each batch that is: the lane still has it in hand.
        changed: Told whenever something has come or is done.
    """

    def __init__(
        self,
        machines: dict[int, Machine],
        limits: Limits,
        clock: Clock,
        rng: Random,
        *,
        ended: Callable[[Request], None],
        ran: Callable[[Lane], None],
        changed: Callable[["Station"], None],
    ) -> None:
        self._clock, self._rng = clock, rng
        self._ended, self._ran, self._changed = ended, ran, changed
        self.cost = next(iter(machines.values())).model()
        lanes = sum(machine.lanes for machine in machines.values())
        self.queue: Scheduler[Request] = queue_of(limits, self.cost, lanes)
        self.lanes = {
            replica: [Lane(replica, machine, express=False) for _ in range(machine.lanes)]
            + [Lane(replica, machine, express=True)] * machine.express
            for replica, machine in machines.items()
        }
        self.present: dict[Request, None] = {}
        self._idle: dict[Lane, None] = {}
        self._idle_express: dict[Lane, None] = {}
        self._busy: dict[Lane, None] = {}
        self._working = 0
        self._door = Door(
            self.queue, limits, self.cost.batch_s, lambda: self._working, lambda: self._busy, clock=lambda: clock.now
        )

    @property
    def wait_s(self) -> float:
        """Predicted seconds until all that is here is done."""
        return self._door.waiting_s

    def admit(self, request: Request) -> None:
        """Refuse what the queue cannot take.

        Raises:
            Overloaded: Too much waits already.
        """
        self._door.admit(request.arrival.lengths, request.visit)

    def is_open(self, request: Request) -> bool:
        """Whether it would be admitted now."""
        return self._door.is_open(request.arrival.lengths, request.visit)

    def add(self, request: Request) -> None:
        """Queue a request."""
        kind = request.arrival.kind
        rows = [ids(length) for length in request.arrival.lengths]
        self.present[request] = None
        self.queue.add(request, rows, tenant=kind.tenant, share=kind.share, weight=kind.weight)
        self._feed()

    def begin(self, replica: int) -> None:
        """A replica serves from now on."""
        for lane in self.lanes[replica]:
            lane.up = True
            self._free(lane)
            self._working += not lane.express
        self._feed()

    def stop(self, replica: int) -> list[Item[Request]]:
        """A replica is lost: what it held, in no order."""
        held = []
        for lane in self.lanes[replica]:
            if lane.items:
                held += lane.items
                self._let_go(lane)
            self._working -= lane.up and not lane.express
            lane.up = False
            self._idle.pop(lane, None)
            self._idle_express.pop(lane, None)
        return held

    def clear(self) -> list[Request]:
        """Everything leaves; the requests that were not done, in order of arrival."""
        left = list(self.present)
        self.present.clear()
        for request in left:
            self.queue.drop(request)
        return left

    def put_back(self, items: list[Item[Request]]) -> None:
        """Queue items again that a lost replica held."""
        self.queue.put_back(items)
        self._feed()

    def _free(self, lane: Lane) -> None:
        (self._idle_express if lane.express else self._idle)[lane] = None

    def _feed(self) -> None:
        """Give idle lanes what they may take."""
        self._feed_lanes()
        self._changed(self)

    def _feed_lanes(self) -> None:
        while self.queue.waiting_items and self._idle:
            lane, _ = self._idle.popitem()
            self._run(lane, self._door.take())
        for lane in list(self._idle_express) if self.queue.waiting_items and self._idle_express else ():
            beside = [other.part_s for other in self.lanes[lane.replica] if not other.express]
            if not (items := self._door.take(min(beside) / EXPRESS)):
                return
            del self._idle_express[lane]
            self._run(lane, items)

    def _run(self, lane: Lane, items: list[Item[Request]]) -> None:
        machine, length = lane.machine, len(items[0].ids)
        lane.items, lane.began = items, self._clock.now
        lane.expected_s = self.cost.seconds(len(items), length)
        lane.part_s = max(Counter(item.owner for item in items).values()) * self.cost.price(length)
        self._busy[lane] = None
        busy = sum(bool(other.items) for other in self.lanes[lane.replica])
        lane.alone = busy == 1 and not self.queue.waiting_items
        rate = machine.wide if lane.alone else min(1.0, machine.lanes / busy)
        new = {item.owner for item in items if not item.owner.begun}
        for owner in new:
            owner.begun = True
        engine_s = machine.cost.seconds(len(items), length) * machine.chance(self._rng) / rate
        lane.ends = self._clock.now + (engine_s + len(new) * machine.request_s) / machine.speed
        self._clock.at(lane.ends, partial(self._done, lane, items))

    def _done(self, lane: Lane, items: list[Item[Request]]) -> None:
        if lane.items is not items:
            return  # the replica was lost meanwhile
        self._ran(lane)
        if not lane.alone:
            self.cost.saw(len(items), len(items[0].ids), self._clock.now - lane.began)
        self._let_go(lane)
        self._free(lane)
        for item in items:
            item.owner.missing -= 1
            if not item.owner.missing:
                del self.present[item.owner]
                self._ended(item.owner)
        self._feed()

    def _let_go(self, lane: Lane) -> None:
        lane.items = []
        self._busy.pop(lane, None)


@cache
def ids(length: int) -> NDArray[np.int32]:
    """Token ids of an input of which nothing counts but its length."""
    return np.zeros(length, dtype=np.int32)
