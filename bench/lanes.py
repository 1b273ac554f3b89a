"""Batches side by side on a thread each against one after the other on all threads, in turns."""

from typing import Any

from load import MODEL, measured
from served import served

from vecmill.config import DEFAULT_MODEL

SECONDS = 8.0
ROUNDS = 2
FIGURES = {
    "index": ("bulk", "texts_per_s"),
    "query": ("query", "texts_per_s"),
    "mixed": ("bulk", "texts_per_s"),
    "single": ("query", "p50_ms"),
}
"""Workload to the figure that counts."""


def measure() -> dict[str, Any]:
    """The figures of each round without lanes and with, and the second to the first in the mean of the rounds."""
    found: dict[str, Any] = {}
    for precision in ("float32", "int8"):
        seen: dict[str, dict[str, list[float]]] = {workload: {"1": [], "0": []} for workload in FIGURES}
        for number in range(ROUNDS):
            for lanes in ("1", "0"):
                with served(f"{MODEL}={DEFAULT_MODEL}", "--precision", precision, "--lanes", lanes) as server:
                    for place, (workload, (kind, figure)) in enumerate(FIGURES.items()):
                        seed = 10 * number + place  # the same texts with and without
                        got = measured(server, "/v1/embeddings", workload, SECONDS, seed)
                        seen[workload][lanes].append(got[kind][figure])
        for workload, by_lanes in seen.items():
            name = f"{precision} {workload} {FIGURES[workload][1]}"
            found[name] = {"one": by_lanes["1"], "lanes": by_lanes["0"]}
            found[f"{name} ratio"] = round(sum(by_lanes["0"]) / sum(by_lanes["1"]), 2)
    return found
