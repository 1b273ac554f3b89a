"""Replicas behind a router: what becomes of a load.

A request that is refused comes back as its manners are. A replica that is lost takes its
queue with it, and the router sends what was there to others, to begin anew; one queue for all loses what ran.
"""

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import numpy as np

from vecmill.errors import Overloaded
from vecmill.serving.admission import Limits
from vecmill.serving.piles import Item
from vecmill.simulate.arrivals import Arrival, Clients
from vecmill.simulate.clock import Clock
from vecmill.simulate.ledger import Ledger
from vecmill.simulate.refused import Manners, Told
from vecmill.simulate.routers import Router, View
from vecmill.simulate.station import Lane, Machine, Request, Station


@dataclass(frozen=True, slots=True)
class Fault:
    """A replica is lost.

    Attributes:
        time: When.
        replica: Its number.
        back_s: Seconds until it is started again; infinite for never.
        notice_s: Seconds until this is noticed: meanwhile it is sent requests that wait for nothing.
    """

    time: float
    replica: int
    back_s: float = math.inf
    notice_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Replicas, and how they are fed.

    Attributes:
        machines: One a replica.
        limits: Of each queue and its batches.
        router: Chooses a replica; None for one queue that all take from.
        stale_s: Age of what the router sees is at most this; 0 is what is so now.
        manners: Of those who are refused.
        faults: In any order.
        follow: One of so many refusals is compared with what would have been right; 0 none.
    """

    machines: Sequence[Machine]
    limits: Limits
    router: Router | None = None
    stale_s: float = 0.0
    manners: Manners = field(default_factory=Manners)
    faults: Sequence[Fault] = ()
    follow: int = 0


def simulate(
    fleet: Fleet,
    arrivals: Iterable[Arrival] = (),
    *,
    clients: Sequence[Clients] = (),
    seconds: float,
    warm_up_s: float = 0.0,
    seed: int = 0,
) -> Ledger:
    """Let a load come for so long, and go on until all of it has ended. The same seed gives the same ledger.

    Args:
        fleet: What it comes to.
        arrivals: Requests in order of time.
        clients: Those who ask again when they are answered.
        seconds: When clients stop; utilisation is counted until then.
        warm_up_s: Requests that come before that are served and not counted.
        seed: For chance.
    """
    lanes = sum(one.lanes for one in fleet.machines)
    run = _Run(fleet, clients, Ledger(warm_up_s, seconds, lanes, Told(fleet.follow)), seed)
    run.start(iter(arrivals))
    run.clock.run()
    return run.ledger


class _Run:
    def __init__(self, fleet: Fleet, clients: Sequence[Clients], ledger: Ledger, seed: int) -> None:
        self.clock = Clock()
        self.ledger = ledger
        self._fleet = fleet
        self._clients = {one.kind: one for one in clients}
        self._rng = Random(seed)
        machines = dict(enumerate(fleet.machines))
        shared = fleet.router is None
        groups = [machines] if shared else [{number: machine} for number, machine in machines.items()]
        self._stations = [
            Station(group, fleet.limits, self.clock, self._rng, ended=self._ended, ran=self._ran, changed=self._changed)
            for group in groups
        ]
        self._of = [0 if shared else number for number in machines]
        self._number = {id(station): number for number, station in enumerate(self._stations)}
        self._view = View(np.full(len(groups), np.inf), Random(seed + 1))
        self._up: set[int] = set()
        self._nowhere: list[Request] = []

    def start(self, arrivals: Iterator[Arrival]) -> None:
        for number, machine in enumerate(self._fleet.machines):
            self.clock.at(machine.start_s, partial(self._begin, number))
        for fault in self._fleet.faults:
            self.clock.at(fault.time, partial(self._lose, fault))
        for one in self._clients.values():
            for _ in range(one.count):
                self._ask_again(one, 0.0)
        if self._fleet.stale_s:
            self._look()
        self._next(arrivals)

    def _next(self, arrivals: Iterator[Arrival]) -> None:
        arrival = next(arrivals, None)
        if arrival is not None:
            self.clock.at(arrival.time, partial(self._arrive, arrival, arrivals))

    def _arrive(self, arrival: Arrival, arrivals: Iterator[Arrival]) -> None:
        self._route(self._request(arrival))
        self._next(arrivals)

    def _ask_again(self, clients: Clients, after_s: float) -> None:
        think_s = self._rng.expovariate(1 / clients.think_s) if clients.think_s else 0.0
        time = self.clock.now + after_s + think_s
        if time < self.ledger.seconds:
            arrival = Arrival(time, clients.kind, clients.kind.lengths(self._rng))
            self.clock.at(time, lambda: self._route(self._request(arrival)))

    def _request(self, arrival: Arrival) -> Request:
        return Request(arrival, self.clock.now, self._fleet.manners.visit(self._rng))

    def _route(self, request: Request, *, again: bool = False) -> None:
        """Send a request somewhere; one that was accepted before is not refused."""
        if not self._view.up:
            self._nowhere.append(request)
            return
        number = self._fleet.router(self._view) if self._fleet.router else 0
        station = self._stations[number]
        try:
            if not again:
                station.admit(request)
        except Overloaded as refusal:
            self._refused(request, station, refusal.retry_after_s)
            return
        request.visit.inside = self.clock.now
        self.ledger.admitted(request)
        station.add(request)

    def _refused(self, request: Request, station: Station, retry_after_s: float) -> None:
        self.ledger.refused_once(request)
        self.ledger.told.follow(self.clock, request.visit, retry_after_s, partial(station.is_open, request))
        after_s = self._fleet.manners.after_s(request.visit, request.tries, retry_after_s)
        if after_s < math.inf:
            again = Request(request.arrival, request.since, request.visit, request.tries + 1)
            self.clock.after(after_s, partial(self._route, again))
            return
        self.ledger.gave_up(request)
        if clients := self._clients.get(request.arrival.kind):
            self._ask_again(clients, retry_after_s)

    def _ended(self, request: Request) -> None:
        self.ledger.done(request, self.clock.now)
        if clients := self._clients.get(request.arrival.kind):
            self._ask_again(clients, 0.0)

    def _ran(self, lane: Lane) -> None:
        self.ledger.ran(lane, self.clock.now)

    def _changed(self, station: Station) -> None:
        number = self._number[id(station)]
        if not self._fleet.stale_s and number in self._up:
            self._view.waits[number] = station.wait_s

    def _look(self) -> None:
        """The router sees how things are, and looks again later, as long as something goes on."""
        for number in self._up:
            self._view.waits[number] = self._stations[number].wait_s
        if self.clock.now < self.ledger.seconds:
            self.clock.after(self._fleet.stale_s, self._look)

    def _begin(self, replica: int) -> None:
        number = self._of[replica]
        self._seen(number, up=True)
        self._stations[number].begin(replica)
        waiting, self._nowhere = self._nowhere, []
        for request in waiting:
            self._route(request, again=True)

    def _seen(self, number: int, *, up: bool) -> None:
        if up != (number in self._up):
            (self._up.add if up else self._up.remove)(number)
            (partial(insort, self._view.up) if up else self._view.up.remove)(number)
        self._view.waits[number] = self._stations[number].wait_s if up else np.inf

    def _lose(self, fault: Fault) -> None:
        held = self._stations[self._of[fault.replica]].stop(fault.replica)
        self.clock.after(fault.notice_s, partial(self._notice, fault, held))

    def _notice(self, fault: Fault, held: list[Item[Request]]) -> None:
        number = self._of[fault.replica]
        station = self._stations[number]
        if self._fleet.router is None:
            station.put_back(held)
        else:
            self._seen(number, up=False)
            for request in station.clear():
                self.ledger.redone += request.begun
                self._route(Request(request.arrival, request.since, request.visit, request.tries), again=True)
        if fault.back_s < math.inf:
            start_s = self._fleet.machines[fault.replica].start_s
            self.clock.after(fault.back_s + start_s, partial(self._begin, fault.replica))
