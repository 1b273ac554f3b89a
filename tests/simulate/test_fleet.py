"""A fleet on paper: what theory says of simple queues, that nothing is lost, who gets what, and that seeds decide."""

import heapq
import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from vecmill.serving.admission import Limits
from vecmill.serving.cost import CostModel
from vecmill.simulate.arrivals import Clients, Kind, always, between, bursts, lognormal, poisson, trace
from vecmill.simulate.fleet import Fault, Fleet, simulate
from vecmill.simulate.ledger import Ledger
from vecmill.simulate.refused import Manners
from vecmill.simulate.routers import ROUTERS
from vecmill.simulate.station import Machine

ANY = Limits(batch_tokens=2048, max_queue_tokens=10**9)
ALONE = Limits(batch_tokens=1, max_queue_tokens=10**9)
"""Batches of one input."""

SECOND = CostModel(1.0, 0.0, [1], [1.0])
"""A token takes a second."""

REAL = CostModel(0.025, 0.0005, [8, 32, 128, 512], [0.0001, 0.0001, 0.0001, 0.00012])
CORES = Machine(REAL, lanes=2, express=True, wide=1.6)
QUERY = Kind("query", between(4, 20), tenant="search")
BULK = Kind("bulk", lognormal(80, 0.9, 8, 500), inputs=16, tenant="index")


def queue(
    load: float, machines: int, *, exponential: bool, router: str | None = None, seconds: float = 40_000.0
) -> Ledger:
    """One input of a second each, at random, to servers that take an input at a time."""
    machine = Machine(SECOND, chance=(lambda rng: rng.expovariate(1.0)) if exponential else lambda _: 1.0)
    fleet = Fleet(machines=[machine] * machines, limits=ALONE, router=ROUTERS[router] if router else None)
    arrivals = poisson(Kind("one", always(1)), load * machines, seconds, seed=7)
    return simulate(fleet, arrivals, seconds=seconds, warm_up_s=seconds / 20)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8])
def test_one_server_waits_as_theory_says(load: float) -> None:
    """With seconds of service at random the mean is 1 / (1 - load), with constant ones 1 + load / (2 (1 - load))."""
    assert queue(load, 1, exponential=True).mean_s("one") == pytest.approx(1 / (1 - load), rel=0.15)
    assert queue(load, 1, exponential=False).mean_s("one") == pytest.approx(1 + load / (2 * (1 - load)), rel=0.1)


def test_what_a_router_knows_is_worth_having() -> None:
    """At 0.9 of what ten replicas can do, one queue waits least, then least wait, two choices, round robin, random."""
    means = [
        queue(0.9, 10, exponential=True, router=router, seconds=4000.0).mean_s("one")
        for router in (None, "least wait", "two choices", "round robin", "random")
    ]
    assert means == sorted(means)
    assert means[-1] == pytest.approx(10, rel=0.3)


def test_lanes_work_as_much_as_they_are_asked() -> None:
    """Utilisation is the load, and what comes in comes out."""
    ledger = queue(0.6, 4, exponential=False, router="random", seconds=5000.0)
    assert ledger.utilisation == pytest.approx(0.6, rel=0.05)
    assert ledger.inputs_per_s == pytest.approx(2.4, rel=0.05)


@pytest.mark.parametrize("router", [None, *ROUTERS])
@pytest.mark.parametrize("seed", range(3))
def test_every_request_ends_once(router: str | None, seed: int) -> None:
    """Whatever fails and is refused, each request is answered or given up, and no more than that."""
    seconds, rng = 20.0, Random(seed)
    faults = [Fault(rng.uniform(0, seconds), rng.randrange(6), rng.choice((0.5, 3.0)), rng.choice((0.0, 0.2)))]
    faults += [Fault(rng.uniform(0, seconds), replica, math.inf, 0.1) for replica in (0, 1)]
    arrivals = [
        *poisson(QUERY, 500.0, seconds, seed),
        *bursts(BULK, 40, 1.0, seconds, seed),
    ]
    fleet = Fleet(
        machines=[replace(CORES, speed=speed, start_s=start) for speed, start in [(1, 0), (2, 1), (0.5, 0)] * 2],
        limits=replace(ANY, max_queue_tokens=8000),
        router=ROUTERS[router] if router else None,
        stale_s=0.05 * seed,
        manners=Manners(seed),
        faults=faults,
    )
    ledger = simulate(fleet, sorted(arrivals), seconds=seconds, seed=seed)
    assert ledger.refusals
    assert ledger.ended + ledger.given_up == Counter(arrival.kind.name for arrival in arrivals)
    assert {name: len(seen) for name, seen in ledger.latencies_s.items()} == ledger.ended


def test_a_lost_replica_delays_and_loses_nothing() -> None:
    """What a lost replica had runs elsewhere, later; with one queue for all only what ran begins anew."""
    arrivals = list(poisson(QUERY, 4000.0, 2.0, 1))
    slowest = {}
    for name in (None, "two choices"):
        fleet = Fleet(machines=[CORES] * 4, limits=ANY, router=ROUTERS[name] if name else None)
        calm = simulate(fleet, arrivals, seconds=2.0)
        rough = simulate(replace(fleet, faults=[Fault(1.0, 2, notice_s=0.5)]), arrivals, seconds=2.0)
        assert rough.ended == calm.ended == {"query": len(arrivals)}
        assert max(rough.latencies_s["query"]) > 0.5 > max(calm.latencies_s["query"])
        slowest[name] = sum(seconds > 0.1 for seconds in rough.latencies_s["query"])
    assert 0 < slowest[None] < slowest["two choices"]


def test_all_replicas_may_be_down() -> None:
    """Requests wait where there is nobody, and are served by the first that starts."""
    machine = replace(CORES, start_s=5.0)
    ledger = simulate(
        Fleet(machines=[machine], limits=ANY, router=ROUTERS["random"]), poisson(QUERY, 10.0, 4.0, 0), seconds=4.0
    )
    assert ledger.ended.total() > 20
    assert min(ledger.latencies_s["query"]) > 1.0


def test_tenants_share_three_to_one() -> None:
    """Two tenants with more than enough to do have the lanes by their weights."""
    kinds = [Kind(name, between(4, 20), tenant=name, share=share) for name, share in (("a", 1.0), ("b", 3.0))]
    fleet = Fleet(machines=[CORES], limits=ANY)
    ledger = simulate(fleet, clients=[Clients(kind, 64) for kind in kinds], seconds=20.0, warm_up_s=1.0)
    assert ledger.served_s["b"] / ledger.served_s["a"] == pytest.approx(3, rel=0.1)
    assert ledger.fairness({"a": 1.0, "b": 3.0}) > 0.99
    assert ledger.fairness({"a": 1.0, "b": 1.0}) < 0.9


def test_queries_do_not_wait_behind_bulk_work() -> None:
    """Beside clients that keep the lanes full, the median of queries is a small part of the bulk requests'."""
    ledger = simulate(
        Fleet(machines=[CORES], limits=ANY), poisson(QUERY, 10.0, 60.0, 3), clients=[Clients(BULK, 4)], seconds=60.0
    )
    assert ledger.quantiles_s("query")[0.5] < 0.1 * ledger.quantiles_s("bulk")[0.5]
    assert ledger.utilisation > 0.95


def test_who_comes_back_when_told_is_welcome() -> None:
    """A client that comes back when it was told to finds room, if not at once: overheads are not foretold."""
    arrivals = trace((0.0, "", 1.0, (10,) * 100) for _ in range(3))
    limits = Limits(batch_tokens=64, max_queue_tokens=2000)
    ledger = simulate(Fleet(machines=[Machine(REAL)], limits=limits, manners=Manners(4)), arrivals, seconds=2.0)
    assert 1 <= ledger.refusals.total() <= 4
    assert ledger.ended.total() == 3


def test_refusals_end_where_nobody_comes_back() -> None:
    """Without retries what is refused is given up, and counts."""
    arrivals = trace((0.0, "", 1.0, (10,) * 100) for _ in range(4))
    limits = Limits(batch_tokens=64, max_queue_tokens=2000)
    ledger = simulate(Fleet(machines=[Machine(REAL)], limits=limits), arrivals, seconds=2.0)
    assert ledger.ended.total() == ledger.given_up.total() == 2
    assert ledger.refused == 0.5


def test_a_trace_is_what_was_recorded() -> None:
    """Each row is a request of its tenant at its time."""
    rows = [(0.5, "a", 1.0, (5, 6)), (0.7, "b", 2.0, (7,))]
    arrivals = list(trace(rows))
    assert [(one.time, one.kind.tenant, one.kind.weight, one.lengths) for one in arrivals] == rows
    assert simulate(Fleet(machines=[CORES], limits=ANY), arrivals, seconds=1.0).ended == {"a": 1, "b": 1}


def test_the_seed_decides() -> None:
    """The same seed gives the same latencies to the last bit, another one others."""

    def run(seed: int) -> dict[str, list[float]]:
        machine = replace(CORES, chance=lambda rng: rng.lognormvariate(-0.02, 0.2))
        fleet = Fleet(machines=[machine] * 3, limits=ANY, router=ROUTERS["two choices"], faults=[Fault(2.0, 1, 1.0)])
        arrivals = heapq.merge(poisson(QUERY, 300.0, 5.0, seed), bursts(BULK, 5, 0.5, 5.0, seed))
        return dict(simulate(fleet, arrivals, clients=[Clients(BULK, 2, 0.1)], seconds=5.0, seed=seed).latencies_s)

    assert run(1) == run(1)
    assert run(1) != run(2)
