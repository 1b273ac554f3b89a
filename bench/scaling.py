"""Fleets on paper: routers, one queue or many, lost replicas, refusals; writes results/scaling.json and docs/scaling.

usage: scaling.py [STUDY ...]        (`make bench-scaling`)

All of it runs on a virtual clock: the figures do not depend on the machine that runs it. All studies take ten minutes.
"""

import heapq
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import machine
from curves import Points, curve, table
from likeness import BULK, LIMITS, PASSAGE, QUERY, compare

from vecmill.simulate.arrivals import Arrival, Clients, Kind, poisson
from vecmill.simulate.fleet import Fault, Fleet, simulate
from vecmill.simulate.ledger import Ledger
from vecmill.simulate.refused import Manners
from vecmill.simulate.routers import ROUTERS
from vecmill.simulate.station import Machine

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "scaling.json"
PAGES = HERE.parent / "docs" / "scaling"
SHARED = "one queue"
RULES = (*ROUTERS, SHARED)
TEXT = Kind("passage", PASSAGE)
QUERIES = 0.9
"""Part of lone texts that are queries, the others passages."""

SIZES = (
    (1, 10_000, (0.5, 0.7, 0.8, 0.9, 0.95)),
    (16, 15_000, (0.5, 0.7, 0.8, 0.9, 0.95)),
    (256, 25_000, (0.5, 0.8, 0.95)),
    (4096, 50_000, (0.8, 0.95)),
)
"""Replicas, requests, loads."""

Study = Callable[[Machine], Any]


def fleet(one: Machine, replicas: int, rule: str) -> Fleet:
    """So many of a machine, behind a router or with one queue for all."""
    return Fleet(machines=[one] * replicas, limits=LIMITS, router=ROUTERS.get(rule))


def texts(per_s: float, seconds: float, seed: int = 1) -> Iterator[Arrival]:
    """Lone texts, queries and passages."""
    parts = [(QUERY, QUERIES), (TEXT, 1 - QUERIES)]
    return heapq.merge(*(poisson(kind, per_s * part, seconds, seed + at) for at, (kind, part) in enumerate(parts)))


def capacity(one: Machine, load: Callable[[float, float], Iterator[Arrival]], requests: int = 4000) -> float:
    """Requests a second that a replica does when all of them are there from the beginning."""
    arrivals = [replace(arrival, time=0.0) for arrival in load(float(requests), 1.0)]
    endless = replace(LIMITS, max_queue_tokens=10**9, max_wait_s=1e9)
    ledger = simulate(replace(fleet(one, 1, SHARED), limits=endless), arrivals, seconds=1e9)
    return ledger.ended.total() / (ledger.busy_s / one.lanes)


def ms(ledger: Ledger, kind: str = "query", *parts: float) -> list[float]:
    """Quantiles of latency."""
    quantiles = ledger.quantiles_s(kind)
    return [round(quantiles[part] * 1000, 1) for part in parts or (0.5, 0.99)]


def routers(one: Machine) -> list[dict[str, Any]]:
    """Latency of queries by router, replicas and load, lone texts; with 4,096 the time is too short for long queues."""
    full = capacity(one, texts)
    rows = []
    for replicas, requests, loads in SIZES:
        for load in loads:
            for rule in RULES if replicas > 1 else (SHARED,):
                seconds = requests / (load * full * replicas)
                arrivals = texts(load * full * replicas, seconds)
                ledger = simulate(fleet(one, replicas, rule), arrivals, seconds=seconds, warm_up_s=seconds / 5)
                p50, p99, p999 = ms(ledger, "query", 0.5, 0.99, 0.999)
                rows.append({"replicas": replicas, "load": load, "router": rule, "p50_ms": p50, "p99_ms": p99})
                rows[-1] |= {"p999_ms": p999, "utilisation": round(ledger.utilisation, 3)}
    return rows


def stale(one: Machine) -> list[dict[str, Any]]:
    """What routers lose that see the replicas as they were."""
    replicas, load, requests = 64, 0.8, 40_000
    per_s = load * capacity(one, texts) * replicas
    rows = []
    for stale_s in (0.0, 0.003, 0.01, 0.03, 0.1, 0.3):
        for rule in ("random", "two choices", "least wait"):
            seen = replace(fleet(one, replicas, rule), stale_s=stale_s)
            seconds = requests / per_s
            ledger = simulate(seen, texts(per_s, seconds), seconds=seconds, warm_up_s=seconds / 5)
            rows.append({"stale_ms": round(stale_s * 1000), "router": rule, "p99_ms": ms(ledger)[1]})
    return rows


def bulk(one: Machine) -> list[dict[str, Any]]:
    """Queries beside bulk requests of 32 passages, which are most of the load."""
    replicas, seconds = 16, 60.0
    full = capacity(one, lambda per_s, seconds: poisson(BULK, per_s, seconds, 1), 100)
    queries = 20.0 * replicas
    rows = []
    for load in (0.3, 0.5, 0.7, 0.8, 0.9):
        for rule in RULES:
            arrivals = heapq.merge(
                poisson(QUERY, queries, seconds, 1), poisson(BULK, load * full * replicas, seconds, 2)
            )
            ledger = simulate(fleet(one, replicas, rule), arrivals, seconds=seconds, warm_up_s=10.0)
            (p50, p99), slow = ms(ledger), ms(ledger, "bulk")[1]
            rows.append({"bulk_load": load, "router": rule, "query_p50_ms": p50, "query_p99_ms": p99})
            rows[-1] |= {"bulk_p99_ms": slow, "utilisation": round(ledger.utilisation, 3)}
    return rows


def needed(one: Machine) -> list[dict[str, Any]]:
    """The fewest replicas with which 99 of 100 queries keep a promise, by router and texts a second."""
    full, promise_ms = capacity(one, texts), 50.0
    rows = []
    for worth in (4, 16):
        seconds = 15_000 / (worth * full)
        arrivals = list(texts(worth * full, seconds))
        for rule in RULES:
            low, high = worth, 2 * worth  # the first is too few
            while high - low > 1:
                middle = (low + high) // 2
                ledger = simulate(fleet(one, middle, rule), arrivals, seconds=seconds, warm_up_s=seconds / 5)
                low, high = (low, middle) if ms(ledger)[1] <= promise_ms else (middle, high)
            rows.append({"texts_per_s": round(worth * full), "router": rule, "replicas": high})
    return rows


def lost(one: Machine) -> list[dict[str, Any]]:
    """The tail of the four seconds after one of 16 replicas is lost for good."""
    replicas, load, seconds, at = 16, 0.8, 8.0, 4.0
    full = capacity(one, texts)
    rows = []
    for notice_s in (None, 0.0, 1.0):
        for rule in ("random", "two choices", "least wait", SHARED):
            faults = [] if notice_s is None else [Fault(at, 3, notice_s=notice_s)]
            rough = replace(fleet(one, replicas, rule), faults=faults)
            ledger = simulate(rough, texts(load * full * replicas, seconds), seconds=seconds, warm_up_s=at)
            p99, p999 = ms(ledger, "query", 0.99, 0.999)
            rows.append({"noticed_s": notice_s, "router": rule, "p99_ms": p99, "p999_ms": p999})
            rows[-1]["begun_anew"] = ledger.redone
    return rows


def refusals(one: Machine) -> list[dict[str, Any]]:
    """When a queue that may hold two seconds refuses, and whether those who come back when told find room."""
    limits, seconds = replace(LIMITS, max_wait_s=2.0), 30.0
    full = capacity(one, texts)
    rows = []
    for replicas, rule in ((1, SHARED), (4, SHARED), (4, "two choices")):
        for load in (0.9, 1.0, 1.1, 1.5):
            full_fleet = replace(fleet(one, replicas, rule), limits=limits, manners=Manners(1))
            arrivals = texts(load * full * replicas, seconds)
            ledger = simulate(full_fleet, arrivals, seconds=seconds, warm_up_s=5.0)
            given_up = ledger.given_up.total() / (ledger.given_up.total() + ledger.ended.total())
            rows.append({"replicas": replicas, "router": rule, "load": load, "given_up": round(given_up, 3)})
            rows[-1] |= {"refused": round(ledger.refused, 3), "returned": ledger.returned}
            rows[-1] |= {"welcome": round(ledger.welcome / max(1, ledger.returned), 3)}
            rows[-1] |= {"utilisation": round(ledger.utilisation, 3), "p99_ms": ms(ledger)[1]}
    return rows


MANNERS = {
    "obey": Manners(1000),
    "half obey": Manners(1000, 0.5),
    "every 0.2 s": Manners(1000, 0.0, 0.2),
    "never": Manners(),
}
"""What the refused do, by name."""

MIXES = {"query": (QUERY,), "bulk": (BULK,), "mix": (QUERY, BULK)}
OVERLOAD_S = 20.0


def overload(one: Machine) -> list[dict[str, Any]]:
    """Times that refusals told, and answers, of a queue that may hold 1.5 s, by load, kind and manners of the refused.

    `right` is the part of the times that are within half of the earliest at which someone who stayed at the door would
    have been let in, or within 50 ms of it. `welcome` is the part of those who came back a first time and were let in.
    Answers are in parts of the longest wait, from when a request was let in.
    """
    wait_s = 1.5
    limits = replace(LIMITS, max_wait_s=wait_s)
    full = {kind: capacity(one, partial(poisson, kind, seed=1), 200) for kind in (QUERY, BULK)}
    rows = []
    for name, kinds in MIXES.items():
        for manners, how in MANNERS.items():
            for times, loop in ((2, "open"), (5, "open"), (10, "open"), (5, "closed")):
                if manners == "every 0.2 s" and times == 10:
                    continue  # a million refusals say the same
                per_s = {kind: times * full[kind] / len(kinds) for kind in kinds}
                arrivals = heapq.merge(*(poisson(kind, rate, OVERLOAD_S, 7) for kind, rate in per_s.items()))
                clients = [Clients(kind, max(2, round(rate * wait_s))) for kind, rate in per_s.items()]
                follow = 1 + int(sum(per_s.values()) * OVERLOAD_S / 400)
                door = Fleet(machines=[one], limits=limits, manners=how, follow=follow)
                chosen = {"arrivals": arrivals} if loop == "open" else {"clients": clients}
                ledger = simulate(door, seconds=OVERLOAD_S, **chosen)
                rows.append({"kind": name, "refused": manners, "load": times, "loop": loop})
                rows[-1] |= {"right": round(ledger.told.right, 2)}
                rows[-1] |= {"welcome": round(ledger.welcome / ledger.returned, 2) if ledger.returned else ""}
                rows[-1] |= {"utilisation": round(ledger.utilisation, 2)}
                for kind in (QUERY, BULK):
                    waits = sorted(ledger.answer_s[kind.name])
                    rows[-1][f"{kind.name} longest"] = round(waits[-1] / wait_s, 2) if waits else ""
    return rows


STUDIES: dict[str, Study] = {
    "routers": routers,
    "stale": stale,
    "bulk": bulk,
    "needed": needed,
    "lost": lost,
    "refusals": refusals,
    "overload": overload,
}

CURVES: tuple[tuple[str, str, str, str, str, str, dict[str, Any]], ...] = (
    ("routers", "p99 of queries, 16 replicas", "load", "ms", "load", "p99_ms", {"replicas": 16}),
    ("routers", "p99 of queries at load 0.8", "replicas", "ms", "replicas", "p99_ms", {"load": 0.8}),
    ("stale", "p99 by what the router knows, 64 replicas, load 0.8", "ms old", "ms", "stale_ms", "p99_ms", {}),
    ("bulk", "p99 of queries beside bulk work, 16 replicas", "bulk load", "ms", "bulk_load", "query_p99_ms", {}),
)
"""Study, title, axes, the columns that are drawn, and the rows that are."""


def draw(found: dict[str, Any]) -> None:
    """Write each curve, and each study as a table, to docs/scaling."""
    PAGES.mkdir(exist_ok=True)
    for study, title, x, y, across, down, only in CURVES:
        lines: dict[str, Points] = {}
        for row in found.get(study, []):
            if only.items() <= row.items():
                lines.setdefault(row["router"], []).append((row[across], row[down]))
        lines = {name: points for name, points in lines.items() if len(points) > 1}
        (PAGES / f"{study}-{across}.svg").write_text(curve(title, x, y, lines, log_x=across == "replicas"))
    tables = [
        f"## {name}\n\n{(STUDIES[name].__doc__ or '').strip()}\n\n"
        + table(list(rows[0]), [[*row.values()] for row in rows])
        for name, rows in found.items()
        if name in STUDIES and isinstance(rows, list)
    ]
    (PAGES / "tables.md").write_text("# Tables of bench/scaling.py\n\n" + "\n".join(tables))


def main(*names: str) -> None:
    """Run studies, all without a name, and keep what they found beside what is there."""
    one, likeness = compare()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if names and RESULTS.exists() else {}
    found |= {"machine": machine.describe(), "likeness": likeness}
    for name in names or STUDIES:
        began = time.perf_counter()
        found[name] = STUDIES[name](one)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    draw(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
