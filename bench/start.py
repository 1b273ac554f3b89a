"""From `vecmill serve` to ready with warm files, and resident memory after 1,000 requests of mixed lengths."""

import statistics
import tempfile
from pathlib import Path
from typing import Any

from served import served
from workload import Client, chunks, passages, queries

from vecmill.config import Settings
from vecmill.model.wheel import cache_folder

STARTS = 5


def measure() -> dict[str, Any]:
    """Seconds and megabytes."""
    first = [first_s() for _ in range(STARTS)]
    ready = []
    for _ in range(STARTS):
        with served() as server:
            ready.append(server.ready_s)
    with served() as server:
        fresh_mb = server.memory_mb()
        client = Client(server.host, server.port)
        for text in queries(1, 900):
            client.embed(text)
        for texts in chunks(passages(1, 800), 8):
            client.embed(texts)
        client.close()
        return {
            "ready_s_median": round(statistics.median(ready), 2),
            "ready_s_median_first": round(statistics.median(first), 2),
            "ready_s_max": round(max(ready), 2),
            "memory_mb_fresh": round(fresh_mb),
            "memory_mb_after_1000_requests": round(server.memory_mb()),
            "memory_mb_peak": round(server.memory_mb("VmHWM")),
        }


def first_s() -> float:
    """Seconds to ready where nothing was kept from earlier starts but the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "wheels").symlink_to(cache_folder(Settings()) / "wheels")
        with served("--cache", folder) as server:
            return server.ready_s
