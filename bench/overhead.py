"""The server's own CPU time, with an engine that answers at once: of a lone query, and of a text in a large request."""

import os
from pathlib import Path
from typing import Any

from served import Served, served
from workload import Client, chunks, passages, queries

CONSTANT = Path(__file__).parent / "constant.py"
TICKS = os.sysconf("SC_CLK_TCK")
LONE = 3000
LARGE, A_REQUEST = 60, 256


def measure() -> dict[str, Any]:
    """Microseconds of CPU, all threads together, a lone query and a text of a 256-text request."""
    with served("--result-cache-mb", "0", script=CONSTANT) as server:
        client = Client(server.host, server.port)
        lone = _microseconds(server, client, queries(5, LONE), 1)
        short = _microseconds(server, client, queries(6, LARGE * A_REQUEST), A_REQUEST)
        mixed = _microseconds(server, client, passages(7, 10 * A_REQUEST), A_REQUEST)
        client.close()
    return {"lone_query_us": lone, "query_of_256_us": short, "passage_of_256_us": mixed}


def _microseconds(server: Served, client: Client, texts: list[str], a_request: int) -> int:
    client.embed(["hello"])
    before = _cpu_s(server.pid)
    for request in chunks(texts, a_request):
        client.embed(request)
    return round((_cpu_s(server.pid) - before) / len(texts) * 1e6)


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS
