"""The server's own CPU time, with an engine that answers at once: of a lone query, and of a text in a large request."""

import os
import random
from pathlib import Path
from typing import Any

from served import Served, served
from workload import Client, passages, queries

CONSTANT = Path(__file__).parent / "constant.py"
TICKS = os.sysconf("SC_CLK_TCK")
LONE = 3000
LARGE, A_REQUEST = 60, 256


def measure() -> dict[str, Any]:
    """Microseconds of CPU, all threads together, a lone query and a text of a 256-text request."""
    with served("--result-cache-mb", "0", script=CONSTANT) as server:
        client = Client(server.host, server.port)
        lone = _microseconds(server, client, [[text] for text in queries(5, LONE)], LONE)
        texts = random.Random(6).sample(queries(6, LARGE * A_REQUEST), LARGE * A_REQUEST)
        requests = [texts[start : start + A_REQUEST] for start in range(0, len(texts), A_REQUEST)]
        short = _microseconds(server, client, requests, len(texts))
        long = passages(7, 10 * A_REQUEST)
        requests = [long[start : start + A_REQUEST] for start in range(0, len(long), A_REQUEST)]
        mixed = _microseconds(server, client, requests, len(long))
        client.close()
    return {"lone_query_us": lone, "query_of_256_us": short, "passage_of_256_us": mixed}


def _microseconds(server: Served, client: Client, requests: list[list[str]], texts: int) -> int:
    client.embed(["hello"])
    before = _cpu_s(server.pid)
    for request in requests:
        client.embed(request)
    return round((_cpu_s(server.pid) - before) / texts * 1e6)


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS
