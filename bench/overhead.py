"""The server's own CPU time, with an engine that answers at once: of a lone query, and of a text in a large request.

Beside it what of that is not the server's: uvicorn alone, and the tokenizers library alone. And a lone query of a
static table: it runs in the thread in which it comes, where the other engine's query wakes a lane.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import tokenizers
from served import Served, served
from workers import table
from workload import Client, chunks, passages, queries

from vecmill.config import DEFAULT_MODEL
from vecmill.model.source import resolve

CONSTANT, FLOOR = (Path(__file__).with_name(name) for name in ("constant.py", "floor.py"))
LONE = 6000
LARGE, A_REQUEST = 60, 256
ROUNDS = 5
"""The machine's pace changes within seconds: the median of so many parts is told."""


def measure() -> dict[str, Any]:
    """Microseconds of CPU, all threads together, a lone query and a text of a 256-text request."""
    uncached = ("--result-cache-mb", "0")
    with served(*uncached, script=CONSTANT) as server:
        lone = _microseconds(server, queries(5, LONE), 1)
        short = _microseconds(server, queries(6, LARGE * A_REQUEST), A_REQUEST)
        mixed = _microseconds(server, passages(7, 20 * A_REQUEST), A_REQUEST)
    with served(script=FLOOR) as server:
        floor = _microseconds(server, queries(5, LONE), 1)
    with tempfile.TemporaryDirectory() as folder, served(table(Path(folder)), *uncached) as server:
        static = _microseconds(server, queries(5, LONE), 1)
    return {
        "lone_query_us": lone,
        "lone_query_of_a_table_us": static,
        "lone_query_uvicorn_alone_us": floor,
        "lone_query_tokenizer_alone_us": _tokenizing(queries(5, LONE), 1),
        "query_of_256_us": short,
        "query_of_256_tokenizer_alone_us": _tokenizing(queries(6, LARGE * A_REQUEST), A_REQUEST),
        "passage_of_256_us": mixed,
        "passage_of_256_tokenizer_alone_us": _tokenizing(passages(7, 20 * A_REQUEST), A_REQUEST),
    }


def _tokenizing(texts: list[str], a_request: int) -> int:
    native = tokenizers.Tokenizer.from_file(str(resolve(DEFAULT_MODEL).folder / "tokenizer.json"))
    native.no_truncation()
    native.no_padding()
    before = time.process_time()
    for request in chunks(texts, a_request):
        native.encode_batch_fast(request, add_special_tokens=False)
    return round((time.process_time() - before) / len(texts) * 1e6)


def _microseconds(server: Served, texts: list[str], a_request: int) -> int:
    client = Client(server.host, server.port)
    client.embed(["hello"])
    spent = []
    for part in chunks(texts, len(texts) // ROUNDS):
        before = server.cpu_s()
        for request in chunks(part, a_request):
            client.embed(request)
        spent.append((server.cpu_s() - before) / len(part))
    client.close()
    return round(statistics.median(spent) * 1e6)
