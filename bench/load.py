"""The same bytes to any server with an OpenAI-style endpoint, from a process of its own; prints JSON.

usage: load.py HOST PORT PATH WORKLOAD SECONDS SEED

Clients are closed loops, but for the queries of "mixed", which arrive at random and do not wait for each other. Texts
are distinct and bodies are encoded before the clock starts; an answer counts if it is 200 with a vector for each text.
"""

import json
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import orjson
from served import Served
from workload import Client, passage, query

MODEL = "minilm"
A_REQUEST = 32
ARRIVALS_A_S = 10.0
WARM_UP_S = 1.0

CLIENTS: dict[str, dict[str, int]] = {
    "single": {"query": 1},
    "query": {"query": 32},
    "index": {"bulk": 4},
    "mixed": {"bulk": 4, "query": 0},
}
"""Workload to its clients by the kind of request; 0 clients arrive at random."""

TEXTS: dict[str, Callable[[random.Random], list[str]]] = {
    "query": lambda rng: [query(rng)],
    "bulk": lambda rng: [passage(rng) for _ in range(A_REQUEST)],
}

MOST_A_S = {"query": 2500, "bulk": 30}
"""Requests a second for which bodies are made ahead."""


@dataclass
class Kind:
    """What came of one kind of request.

    Attributes:
        bodies: Made ahead, with their number of texts.
        done: Number of texts, start and end of each answer.
        failed: What went wrong.
    """

    bodies: "queue.SimpleQueue[tuple[int, bytes]]" = field(default_factory=queue.SimpleQueue)
    done: list[tuple[int, float, float]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def fill(self, texts: Callable[[random.Random], list[str]], requests: int, rng: random.Random) -> None:
        """Make bodies ahead; a lone text goes as a string."""
        for _ in range(requests):
            made = texts(rng)
            asked = made if len(made) > 1 else made[0]
            self.bodies.put((len(made), orjson.dumps({"model": MODEL, "input": asked})))

    def ask(self, client: Client) -> None:
        """Send the next body."""
        try:
            texts, body = self.bodies.get_nowait()
        except queue.Empty:
            self.failed.append("there are no more texts: the server is faster than was thought")
            return
        started = time.perf_counter()
        status, content = client.send(body)
        if status == 200 and content.count(b'"embedding":[') == texts:
            self.done.append((texts, started, time.perf_counter()))
        else:
            self.failed.append(f"{status} {content[:200]!r}")

    def figures(self, end: float, seconds: float) -> dict[str, float]:
        """Texts a second, of each answer the part within the clock, and latencies of all."""
        texts = sum(count * max(0.0, min(stop, end) - start) / (stop - start) for count, start, stop in self.done)
        took = sorted(stop - start for _, start, stop in self.done)
        places = {"p50_ms": 0.5, "p99_ms": 0.99}
        latencies = {name: round(took[int(len(took) * part)] * 1000, 2) for name, part in places.items()}
        return {"texts_per_s": round(texts / seconds, 1), "requests": len(took), **latencies}


def loop(kind: Kind, connect: Callable[[], Client], end: float) -> None:
    """One client: a request after the other."""
    client = connect()
    while time.perf_counter() < end and not kind.failed:
        kind.ask(client)
    client.close()


def arrive(kind: Kind, connect: Callable[[], Client], end: float, rng: random.Random) -> None:
    """Queries at random moments, each on a connection that is idle or new."""
    idle: queue.SimpleQueue[Client] = queue.SimpleQueue()

    def one() -> None:
        try:
            client = idle.get_nowait()
        except queue.Empty:
            client = connect()
        kind.ask(client)
        idle.put(client)

    with ThreadPoolExecutor(200) as pool:
        asked = []
        while time.perf_counter() < end:
            time.sleep(rng.expovariate(ARRIVALS_A_S))
            asked.append(pool.submit(one))
        wait(asked)


def at_once(threads: list[threading.Thread], kinds: dict[str, Kind]) -> None:
    """Run these to their end.

    Raises:
        RuntimeError: A request failed.
    """
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed := [error for kind in kinds.values() for error in kind.failed]:
        raise RuntimeError(f"{len(failed)} requests failed, first {failed[0]}")


def measured(server: Served, path: str, workload: str, seconds: float, seed: int) -> Any:  # noqa: ANN401 (JSON)
    """What `run` finds, from a process of its own.

    Raises:
        RuntimeError: As `run`.
    """
    arguments = [server.host, str(server.port), path, workload, str(seconds), str(seed)]
    ran = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{workload}: {ran.stderr.strip().splitlines()[-1]}")
    return json.loads(ran.stdout)


def run(connect: Callable[[], Client], workload: str, seconds: float, seed: int) -> dict[str, dict[str, float]]:
    """Figures of each kind of request.

    Raises:
        RuntimeError: An answer was no answer.
    """
    rng = random.Random(seed)
    kinds = {name: Kind() for name in CLIENTS[workload]}
    for name, kind in kinds.items():
        kind.fill(TEXTS[name], round(seconds * MOST_A_S[name]), rng)
        loop(kind, connect, time.perf_counter() + WARM_UP_S)
        kind.done.clear()
    end = time.perf_counter() + seconds
    threads = []
    for name, clients in CLIENTS[workload].items():
        threads += [threading.Thread(target=loop, args=(kinds[name], connect, end)) for _ in range(clients)]
        threads += [] if clients else [threading.Thread(target=arrive, args=(kinds[name], connect, end, rng))]
    at_once(threads, kinds)
    return {name: kind.figures(end, seconds) for name, kind in kinds.items()}


if __name__ == "__main__":
    host, port, path, workload, seconds, seed = sys.argv[1:]
    print(json.dumps(run(lambda: Client(host, int(port), path), workload, float(seconds), int(seed))))
