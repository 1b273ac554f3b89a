"""A server under mixed load for long: whether memory, threads, files and latency stay what they were.

usage: soak.py [SECONDS]        (an hour without an argument); writes bench/results/soak.json
"""

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import machine
from load import MODEL, TEXTS, Kind, arrive, at_once, loop
from served import Served, served
from workload import Client

from vecmill.config import DEFAULT_MODEL

PARTS = 12
BULK_CLIENTS = 2
RESULTS = Path(__file__).parent / "results"


def measure(seconds: float) -> dict[str, Any]:
    """Figures of each part of the time, and the last against the third: caches fill and plans are made before that."""
    with served(f"{MODEL}={DEFAULT_MODEL}") as server:
        parts = []
        for number in range(PARTS):
            parts.append(part(server, seconds / PARTS, number))
            print(f"{number + 1} of {PARTS}: {parts[-1]}", flush=True)
    early, late = parts[2], parts[-1]
    growth = {f"{name}_last_of_third": round(late[name] / early[name], 2) for name in early}
    return {"seconds": seconds, **growth, "parts": parts}


def part(server: Served, seconds: float, seed: int) -> dict[str, float]:
    """Bulk clients and queries at random for so long; what the process is like at its end."""
    rng = random.Random(seed)
    kinds = {"query": Kind(), "bulk": Kind()}
    kinds["query"].fill(TEXTS["query"], round(seconds * 40) + 100, rng)
    kinds["bulk"].fill(TEXTS["bulk"], round(seconds * 10) + 10, rng)
    end = time.perf_counter() + seconds

    def connect() -> Client:
        return Client(server.host, server.port)

    threads = [threading.Thread(target=loop, args=(kinds["bulk"], connect, end)) for _ in range(BULK_CLIENTS)]
    at_once([*threads, threading.Thread(target=arrive, args=(kinds["query"], connect, end, rng))], kinds)
    took = sorted(stop - start for _, start, stop in kinds["query"].done)
    process = Path(f"/proc/{server.pid}")
    return {
        "memory_mb": round(server.memory_mb(), 1),
        "threads": len(list((process / "task").iterdir())),
        "files": len(list((process / "fd").iterdir())),
        "query_p50_ms": round(took[len(took) // 2] * 1000, 1),
        "bulk_texts_per_s": kinds["bulk"].figures(end, seconds)["texts_per_s"],
    }


def main(seconds: float = 3600.0) -> None:
    """Measure, print and keep."""
    result = {"machine": machine.describe(), **measure(seconds)}
    (RESULTS / "soak.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
