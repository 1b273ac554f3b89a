"""A machine on paper that is like the one that bench/results was measured on, and how like it is.

Two constants, the seconds of a batch and of a token, are chosen so that two measured figures come out: the bare
engine's p50 of a lone query and the server's bulk texts a second. All other figures are then foretold, and compared
with what bench/rivals.py and bench/tenants.py measured.
"""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from vecmill.config import Settings
from vecmill.serving.admission import Limits
from vecmill.serving.cost import CostModel
from vecmill.simulate.arrivals import Clients, Kind, lognormal, poisson
from vecmill.simulate.fleet import Fleet, simulate
from vecmill.simulate.ledger import Ledger
from vecmill.simulate.station import Machine

RESULTS = Path(__file__).parent / "results"
SETTINGS = Settings()
LIMITS = Limits(
    batch_tokens=SETTINGS.batch_tokens,
    max_queue_tokens=SETTINGS.max_queue_tokens,
    max_wait_s=SETTINGS.max_wait_s,
)

WIDE = {"float32": 1.6, "int8": 1.43}
"""How many times faster a lone batch is on two threads: two lanes did 1.25 and 1.4 times as much as it (lanes.json)."""

REQUEST_S = 0.001
"""The server's own processor time for a lone query (overhead.json)."""

NOISE = 0.15
"""Deviation of a batch's seconds, lognormal: what the p99 of lone queries has beyond their lengths."""

SPECIAL = 6
"""Tokens of a text of bench/workload.py beyond its words: its number, and the special ones."""

QUERY = Kind("query", lambda rng: SPECIAL + rng.randint(3, 14))
PASSAGE = lognormal(60.0 + SPECIAL, 0.9, 4 + SPECIAL, 256)
BULK = Kind("bulk", PASSAGE, inputs=32)


Figures = dict[str, float]


def machine(overhead_s: float, token_s: float, wide: float = WIDE["float32"]) -> Machine:
    """Two lanes and the express lane."""
    cost = CostModel(SETTINGS.batch_time_ms / 1000, overhead_s, [1], [token_s])
    return Machine(cost, lanes=2, express=True, wide=wide, request_s=REQUEST_S, chance=chance)


def chance(rng: Random) -> float:
    """What nobody knows of a batch's time; its mean is 1."""
    return rng.lognormvariate(-(NOISE**2) / 2, NOISE)


def alone(one: Machine, *clients: Clients, queries: Kind | None = None, seconds: float = 60.0) -> Ledger:
    """One replica under clients, and ten queries a second at random."""
    arrivals = poisson(queries, 10.0, seconds, 1) if queries else ()
    fleet = Fleet(machines=[one], limits=LIMITS)
    return simulate(fleet, arrivals, clients=clients, seconds=seconds, warm_up_s=1.0, seed=1)


def texts_per_s(ledger: Ledger, kind: str) -> float:
    """Answered texts of a kind a second."""
    return ledger.inputs[kind] / ledger.seconds


def fitted(rivals: dict[str, Any], precision: str) -> Machine:
    """The machine on which a lone query and bulk work take what they took."""
    wide = WIDE[precision]
    single_s = rivals[f"bare {precision}"]["single"] / 1000 * wide
    wanted = rivals[f"vecmill {precision}"]["index"]["bulk"]["texts_per_s"]
    tokens = SPECIAL + 8.5  # of the median query
    low, high = 0.0, single_s / tokens
    for _ in range(10):
        middle = (low + high) / 2
        one = machine(single_s - middle * tokens, middle, wide)
        fast = texts_per_s(alone(one, Clients(BULK, 4)), "bulk") > wanted
        low, high = (middle, high) if fast else (low, middle)
    return one


def foretold(one: Machine) -> Figures:
    """What the benchmarks would find of this machine."""
    single, query = alone(one, Clients(QUERY, 1)), alone(one, Clients(QUERY, 32), seconds=30.0)
    index, mixed = alone(one, Clients(BULK, 4)), alone(one, Clients(BULK, 4), queries=QUERY)
    ours, theirs = replace(BULK, tenant="b"), replace(BULK, name="theirs", tenant="a")
    asks = replace(QUERY, tenant="b")
    light, heavy = replace(QUERY, name="light", tenant="a"), replace(QUERY, name="heavy", tenant="b", share=3.0)
    bulk_alone = alone(one, Clients(ours, 1))
    bulk_beside = alone(one, Clients(ours, 1), Clients(theirs, 64))
    query_beside = alone(one, Clients(asks, 1), Clients(theirs, 64))
    weighed = alone(one, Clients(light, 64), Clients(heavy, 64), seconds=30.0)
    return {
        "single p50, ms": single.quantiles_s("query")[0.5] * 1000,
        "query texts/s": texts_per_s(query, "query"),
        "query p50, ms": query.quantiles_s("query")[0.5] * 1000,
        "index p50, ms": index.quantiles_s("bulk")[0.5] * 1000,
        "mixed query p50, ms": mixed.quantiles_s("query")[0.5] * 1000,
        "mixed query p99, ms": mixed.quantiles_s("query")[0.99] * 1000,
        "mixed bulk / index": texts_per_s(mixed, "bulk") / texts_per_s(index, "bulk"),
        "bulk p99 beside 64 / alone": bulk_beside.quantiles_s("bulk")[0.99] / bulk_alone.quantiles_s("bulk")[0.99],
        "query p99 beside 64, ms": query_beside.quantiles_s("query")[0.99] * 1000,
        "texts at 3:1": weighed.ended["heavy"] / weighed.ended["light"],
    }


def measured(rivals: dict[str, Any], tenants: Figures, precision: str) -> Figures:
    """The same of the process that ran; tenants were measured in float32."""
    ours, ratios = rivals[f"vecmill {precision}"], rivals["ratios"]
    found = {
        "single p50, ms": ours["single"]["query"]["p50_ms"],
        "query texts/s": ours["query"]["query"]["texts_per_s"],
        "query p50, ms": ours["query"]["query"]["p50_ms"],
        "index p50, ms": ours["index"]["bulk"]["p50_ms"],
        "mixed query p50, ms": ratios[f"{precision} mixed query p50, ms"],
        "mixed query p99, ms": ratios[f"{precision} mixed query p99, ms"],
        "mixed bulk / index": ratios[f"{precision} mixed bulk / index"],
    }
    if precision == "float32":
        found |= {
            "bulk p99 beside 64 / alone": tenants["bulk_p99_beside_64_ms"] / tenants["bulk_p99_alone_ms"],
            "query p99 beside 64, ms": tenants["query_p99_beside_64_ms"],
            "texts at 3:1": tenants["texts_at_3_to_1"],
        }
    return found


def compare() -> tuple[Machine, dict[str, Any]]:
    """The float32 machine, and what each is foretold beside what was measured."""
    rivals, tenants = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("rivals", "tenants"))
    machines = {precision: fitted(rivals, precision) for precision in WIDE}
    found: dict[str, Any] = {}
    for precision, one in machines.items():
        told, seen = foretold(one), measured(rivals, tenants, precision)
        found[precision] = {
            "overhead_ms": round(one.cost.overhead_s * 1000, 3),
            "token_ms": round(one.cost.token_s[0] * 1000, 4),
            **{name: {"foretold": round(told[name], 2), "measured": round(value, 2)} for name, value in seen.items()},
        }
    return machines["float32"], found


if __name__ == "__main__":
    print(json.dumps(compare()[1], indent=1))
