"""Two tenants on one server: what one with 64 bulk clients takes from one with a single client, and what weights do."""

import random
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from load import MODEL, MOST_A_S, TEXTS, Kind, at_once, loop
from served import Served, served
from workload import Client

from vecmill.config import DEFAULT_MODEL

SECONDS = 40.0
WARM_UP_S = 3.0
MANY = 64
SERVED = f"{MODEL}={DEFAULT_MODEL}"


def measure() -> dict[str, Any]:
    """Milliseconds of a tenant's single client alone and beside 64 of another, and the ratio of texts at 3:1."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        equal, third = folder / "equal.toml", folder / "third.toml"
        equal.write_text('[a]\nkeys = ["a"]\n[b]\nkeys = ["b"]\n')
        third.write_text('[a]\nkeys = ["a"]\n[b]\nkeys = ["b"]\nweight = 3\n')
        found: dict[str, Any] = {}
        with served(SERVED, "--tenants", str(equal), "--result-cache-mb", "0") as server:
            for kind in ("bulk", "query"):
                alone = run(server, {"b": (1, kind)})["b"]
                beside = run(server, {"a": (MANY, "bulk"), "b": (1, kind)})["b"]
                for name, part in {"p50": 0.5, "p99": 0.99}.items():
                    found[f"{kind}_{name}_alone_ms"] = place(alone, part)
                    found[f"{kind}_{name}_beside_64_ms"] = place(beside, part)
        with served(SERVED, "--tenants", str(third), "--result-cache-mb", "0") as server:
            both = run(server, {"a": (MANY, "query"), "b": (MANY, "query")})
            found["texts_at_3_to_1"] = round(len(both["b"]) / len(both["a"]), 2)
    return found


def run(server: Served, clients: dict[str, tuple[int, str]]) -> dict[str, list[float]]:
    """Seconds of every answer within the time, by tenant."""
    rng = random.Random(len(clients))
    kinds = {key: Kind() for key in clients}
    work = []
    for key, (count, name) in clients.items():
        kinds[key].fill(TEXTS[name], round((WARM_UP_S + SECONDS) * MOST_A_S[name]) + count, rng)
        connect = partial(Client, server.host, server.port, headers={"api-key": key})
        work += [(kinds[key], connect)] * count
    begin = time.perf_counter() + WARM_UP_S
    end = begin + SECONDS
    at_once([threading.Thread(target=loop, args=(*one, end)) for one in work], kinds)
    return {
        key: [stop - start for _, start, stop in kind.done if begin <= start and stop <= end]
        for key, kind in kinds.items()
    }


def place(seconds: list[float], part: float) -> float:
    """Milliseconds that this part of all answers keeps."""
    return round(sorted(seconds)[int(len(seconds) * part)] * 1000, 1)
