"""A door under overload, on paper: the time that a refusal tells is right, work goes on, and answers come in time."""

import heapq
from collections import Counter
from functools import cache

import pytest

from vecmill.serving.admission import Limits
from vecmill.serving.cost import CostModel
from vecmill.simulate.arrivals import Clients, Kind, between, bursts, lognormal, poisson
from vecmill.simulate.fleet import Fleet, simulate
from vecmill.simulate.ledger import Ledger
from vecmill.simulate.refused import Manners
from vecmill.simulate.station import Machine

WAIT_S = 1.5
SECONDS = 6.0
LIMITS = Limits(batch_tokens=8192, max_queue_tokens=10**9, max_wait_s=WAIT_S)
CORES = Machine(
    CostModel(0.025, 0.0022, [1], [0.0004]),
    lanes=2,
    express=True,
    wide=1.6,
    request_s=0.001,
    chance=lambda rng: rng.lognormvariate(-0.011, 0.15),
)
QUERY = Kind("query", between(9, 20))
BULK = Kind("bulk", lognormal(66, 0.9, 10, 256), inputs=8)
LOADS = {"query": ((QUERY, 250.0),), "bulk": ((BULK, 7.5),), "mix": ((QUERY, 125.0), (BULK, 3.75))}
"""About as many a second as the machine does."""

OBEY, NEVER, TOO_SOON = Manners(10_000), Manners(), Manners(10_000, 0.0, 0.2)
LONGEST = 2.25
"""Of the longest wait that is promised: no answer takes longer."""


@cache
def overloaded(load: str, times: int, manners: Manners, loop: str = "open") -> Ledger:
    """So many times what the machine does."""
    rates = [(kind, times * per_s) for kind, per_s in LOADS[load]]
    fleet = Fleet(machines=[CORES], limits=LIMITS, manners=manners, follow=1 + times)
    if loop == "closed":
        clients = [Clients(kind, max(2, round(rate * WAIT_S))) for kind, rate in rates]
        return simulate(fleet, clients=clients, seconds=SECONDS)
    return simulate(fleet, heapq.merge(*(poisson(kind, rate, SECONDS, 7) for kind, rate in rates)), seconds=SECONDS)


CASES = [
    *((load, times, OBEY, "open") for load in LOADS for times in (2, 5, 10)),
    *((load, 5, NEVER, "open") for load in LOADS),
    *((load, 5, OBEY, "closed") for load in LOADS),
    *((load, 2, TOO_SOON, "open") for load in LOADS),
]


@pytest.mark.parametrize(("load", "times", "manners", "loop"), CASES)
def test_the_time_that_is_told_is_right(load: str, times: int, manners: Manners, loop: str) -> None:
    """Nine of ten are within half of the earliest at which one who stays at the door is let in."""
    told = overloaded(load, times, manners, loop).told
    assert len(told.times_s) > 10
    assert told.right >= (0.7 if (load, times) == ("mix", 10) else 0.9)  # once nothing waits there for a moment


@pytest.mark.parametrize(("load", "times", "manners", "loop"), CASES)
def test_lanes_work_on(load: str, times: int, manners: Manners, loop: str) -> None:
    """Whoever is refused and whatever they do then, nothing stands idle."""
    assert overloaded(load, times, manners, loop).utilisation > 0.95


@pytest.mark.parametrize(("load", "times", "manners", "loop"), CASES)
def test_answers_come_in_time(load: str, times: int, manners: Manners, loop: str) -> None:
    """Who was let in has its answer in about twice the longest wait, also where it is large and all others small."""
    ledger = overloaded(load, times, manners, loop)
    assert max(seconds for waits in ledger.answer_s.values() for seconds in waits) < LONGEST * WAIT_S


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("manners", [OBEY, TOO_SOON])
def test_all_who_come_back_are_served(load: str, manners: Manners) -> None:
    """Whoever goes on asking has an answer in the end, and most of those who obey at their first return."""
    ledger = overloaded(load, 2, manners)
    wanted = Counter(arrival.kind.name for kind, rate in LOADS[load] for arrival in poisson(kind, 2 * rate, SECONDS, 7))
    assert ledger.ended == wanted
    assert not ledger.given_up
    if manners is OBEY:
        assert ledger.welcome > 0.8 * ledger.returned


def test_it_is_over_when_the_overload_is() -> None:
    """What is left when arrivals end is done within the longest wait, a tenth more at most."""
    for shares in LOADS.values():
        rates = [(kind, 10 * per_s) for kind, per_s in shares]
        arrivals = list(heapq.merge(*(poisson(kind, rate, SECONDS, 7) for kind, rate in rates)))
        late = [one for one in poisson(QUERY, 10.0, SECONDS + 4, 8) if one.time > SECONDS + 1.2 * WAIT_S]
        alone = Kind("late", QUERY.length)
        late = [type(one)(one.time, alone, one.lengths) for one in late]
        ledger = simulate(Fleet(machines=[CORES], limits=LIMITS), [*arrivals, *late], seconds=SECONDS + 4)
        assert max(ledger.latencies_s["late"]) < 0.1
        assert not ledger.refusals["late"]


def test_bursts_at_every_size() -> None:
    """Bursts of requests of all sizes keep the promise too, one larger than the longest wait alone excepted."""
    for inputs in (1, 4, 16):
        kind = Kind("burst", lognormal(60, 0.9, 4, 256), inputs=inputs)
        ledger = simulate(
            Fleet(machines=[CORES], limits=LIMITS, manners=OBEY),
            heapq.merge(bursts(kind, 200 // inputs, 1.0, SECONDS, 3), poisson(QUERY, 100.0, SECONDS, 4)),
            seconds=SECONDS,
        )
        assert max(seconds for waits in ledger.answer_s.values() for seconds in waits) < LONGEST * WAIT_S
