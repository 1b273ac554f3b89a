"""Bulk work: 4 clients of 32 passages a request, against the bare engine on the same texts, in turns."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bare import Bare
from served import Served, served
from workload import Client, chunks, passages

CLIENTS = 4
A_REQUEST = 32
ROUNDS = 5
A_ROUND = 512


def measure() -> dict[str, Any]:
    """Tokens a second, and the ratio of each round's pair."""
    bare = Bare()
    bare.embed_all(passages(4, 64))
    alone, over_http, ratios = [], [], []
    with served() as server:
        _embed(server, passages(5, 256))
        for number in range(ROUNDS):
            texts = passages(100 + number, A_ROUND)
            seconds, tokens = bare.embed_all(texts)
            http_seconds = _embed(server, texts)
            alone.append(tokens / seconds)
            over_http.append(tokens / http_seconds)
            ratios.append(seconds / http_seconds)
    return {
        "bare_tokens_per_s": round(statistics.median(alone)),
        "http_tokens_per_s": round(statistics.median(over_http)),
        "ratio_median": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
    }


def _embed(server: Served, texts: list[str]) -> float:
    """Seconds until all clients have all their answers."""
    requests = list(chunks(texts, A_REQUEST))
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda number: _client(server, requests[number::CLIENTS]), range(CLIENTS)))
    return time.perf_counter() - started


def _client(server: Served, requests: list[list[str]]) -> None:
    client = Client(server.host, server.port)
    for texts in requests:
        client.embed(texts)
    client.close()
