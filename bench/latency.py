"""One query at a time: over HTTP against the bare engine, on the same texts, in turns."""

import statistics
import time
from typing import Any

from bare import Bare
from served import served
from workload import Client, queries

ROUNDS = 10
A_ROUND = 50


def measure() -> dict[str, Any]:
    """Milliseconds: medians and 99th percentiles of 500 texts each way."""
    bare = Bare()
    texts = queries(2, ROUNDS * A_ROUND)
    alone: list[float] = []
    over_http: list[float] = []
    with served() as server:
        client = Client(server.host, server.port)
        for text in queries(3, A_ROUND):
            bare.embed_one(text)
            client.embed(text)
        for number in range(ROUNDS):
            some = texts[number * A_ROUND : (number + 1) * A_ROUND]
            alone += [bare.embed_one(text) for text in some]
            over_http += [_timed(client, text) for text in some]
        client.close()
    p50_alone, p50_http = statistics.median(alone), statistics.median(over_http)
    return {
        "bare_p50_ms": round(p50_alone * 1e3, 2),
        "http_p50_ms": round(p50_http * 1e3, 2),
        "difference_p50_ms": round((p50_http - p50_alone) * 1e3, 2),
        "bare_p99_ms": round(statistics.quantiles(alone, n=100)[98] * 1e3, 2),
        "http_p99_ms": round(statistics.quantiles(over_http, n=100)[98] * 1e3, 2),
    }


def _timed(client: Client, text: str) -> float:
    started = time.perf_counter()
    client.embed(text)
    return time.perf_counter() - started
