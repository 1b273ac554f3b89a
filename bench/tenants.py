"""Two tenants on one server: what one with 64 bulk clients takes from one with a single client, and what weights do."""

import random
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
from load import A_REQUEST, TEXTS
from served import Served, served
from workload import Client

SECONDS = 15.0
MANY = 64
REQUESTS = 40
"""Bodies made ahead for each client; more than it gets answered."""


def measure() -> dict[str, Any]:
    """Milliseconds of a tenant's single client alone and beside 64 of another, and the ratio of texts at 3:1."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        equal, third = folder / "equal.toml", folder / "third.toml"
        equal.write_text('[a]\nkeys = ["a"]\n[b]\nkeys = ["b"]\n')
        third.write_text('[a]\nkeys = ["a"]\n[b]\nkeys = ["b"]\nweight = 3\n')
        found: dict[str, Any] = {}
        with served("--tenants", str(equal), "--result-cache-mb", "0") as server:
            for kind in ("bulk", "query"):
                alone = run(server, {"b": (1, kind)})["b"]
                beside = run(server, {"a": (MANY, "bulk"), "b": (1, kind)})["b"]
                found |= {f"{kind}_p99_alone_ms": p99(alone), f"{kind}_p99_beside_64_ms": p99(beside)}
        with served("--tenants", str(third), "--result-cache-mb", "0") as server:
            both = run(server, {"a": (MANY, "query"), "b": (MANY, "query")})
            found["texts_at_3_to_1"] = round(len(both["b"]) / len(both["a"]), 2)
    return found


def run(server: Served, clients: dict[str, tuple[int, str]]) -> dict[str, list[float]]:
    """Seconds of every answer within the time, by tenant."""
    done: dict[str, list[float]] = {key: [] for key in clients}
    rng = random.Random(len(clients))
    work = []
    for key, (count, kind) in clients.items():
        size = REQUESTS * (A_REQUEST if kind == "query" else 1)
        for _ in range(count):
            bodies = [orjson.dumps({"input": TEXTS[kind](rng)}) for _ in range(size)]
            client = Client(server.host, server.port, headers={"api-key": key})
            work.append((client, bodies, done[key]))
    end = time.perf_counter() + SECONDS
    threads = [threading.Thread(target=_loop, args=(*one, end)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def p99(seconds: list[float]) -> float:
    """Milliseconds that 99 of 100 answers keep."""
    return round(sorted(seconds)[int(len(seconds) * 0.99)] * 1000, 1)


def _loop(client: Client, bodies: list[bytes], done: list[float], end: float) -> None:
    for body in bodies:
        started = time.perf_counter()
        status, content = client.send(body)
        now = time.perf_counter()
        if status != 200:
            raise RuntimeError(f"{status}: {content[:200]!r}")
        if now > end:
            break
        done.append(now - started)
    client.close()
