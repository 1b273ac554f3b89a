"""Many times what the server can do, for a minute: what is answered, what is refused and how, and what is left of it.

Requests arrive at random and do not wait for each other. Each kind is measured against its own closed loop of the same
server: bulk, where computing is all, and queries, where refusing takes the same processors as answering.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from load import MODEL, TEXTS, Kind, at_once, loop
from served import Served, served
from workload import Client

from vecmill.config import DEFAULT_MODEL

SECONDS = 60.0
CAPACITY_S = 10.0
CLIENTS = {"bulk": 2, "query": 32}
TIMES = {"bulk": 10.0, "query": 3.0}
"""Of the capacity. More lone queries than that are more than the HTTP path of one process and this client can take."""

OBEY = 20
"""One of so many refused requests comes back when it was told to, until it is answered; the others never do."""

RETURNING = 300
"""No more than these at a time."""

MAX_WAIT_S = {"bulk": 1.5, "query": 0.3}
"""Of queries no more than the connections hold: else a fast server admits all of them, and is not overloaded."""

LATE_S = 2.0
"""Time after the end from which latency should be what it was before."""

CONNECTIONS = 600
SERVED = (f"{MODEL}={DEFAULT_MODEL}", "--result-cache-mb", "0")


def measure() -> dict[str, Any]:
    """Figures of each kind."""
    found: dict[str, Any] = {"seconds": SECONDS}
    for kind in CLIENTS:
        with served(*SERVED, "--max-wait-s", str(MAX_WAIT_S[kind])) as server:
            found |= {f"{kind}_{name}": value for name, value in overloaded(server, kind).items()}
    return found


def overloaded(server: Served, kind: str) -> dict[str, float]:
    """What a kind's overload does."""
    rng = random.Random(5)
    capacity = closed(server, kind, rng)
    texts = len(TEXTS[kind](rng))
    before, before_mb = lone(server, rng), server.memory_mb()
    answers = Answers(server)
    arrive(answers, kind, TIMES[kind] * capacity / texts, rng)
    after = lone(server, rng) if answers.idle_s < LATE_S else answers.idle_s
    end = min(start for _, start, _, _, _ in answers.got) + SECONDS
    answered = [texts for status, _, stop, _, texts in answers.got if status == 200 and stop <= end]
    refused = [one for one in answers.got if one[0] != 200]
    waited = sorted(stop - start for status, start, stop, _, _ in answers.got if status == 200)
    refusals = sorted(stop - start for _, start, stop, _, _ in refused)
    return {
        "max_wait_s": MAX_WAIT_S[kind],
        "capacity_texts_per_s": round(capacity, 1),
        "arrivals_of_capacity": round(len(answers.got) * texts / SECONDS / capacity, 1),
        "goodput_of_capacity": round(sum(answered) / SECONDS / capacity, 2),
        "refusal_p50_ms": milliseconds(refusals, 0.5),
        "refusal_p99_ms": milliseconds(refusals, 0.99),
        "other_than_429": sum(one[0] != 429 for one in refused),
        "answer_p50_of_max_wait": round(milliseconds(waited, 0.5) / 1000 / MAX_WAIT_S[kind], 2),
        "retry_after_p50_ms": milliseconds(sorted(one[3] for one in refused), 0.5),
        "came_back": len(answers.returns),
        "first_return_answered": round(sum(one[0] == 1 for one in answers.returns) / max(1, len(answers.returns)), 2),
        "told_p50_ms": milliseconds(sorted(one[1] for one in answers.returns), 0.5),
        "let_in_after_told_p50_ms": milliseconds(sorted(one[2] for one in answers.returns), 0.5),
        "let_in_after_told_p99_ms": milliseconds(sorted(one[2] for one in answers.returns), 0.99),
        "memory_mb_before": round(before_mb),
        "memory_mb_after": round(server.memory_mb()),
        "lone_query_p50_ms_before": before,
        "lone_query_p50_ms_after": after,
        "idle_after_s": round(answers.idle_s, 2),
    }


def closed(server: Served, kind: str, rng: random.Random) -> float:
    """Texts a second of clients that wait for their answers."""
    work = Kind()
    work.fill(TEXTS[kind], round(CAPACITY_S * 2500 / len(TEXTS[kind](rng))), rng)
    end = time.perf_counter() + CAPACITY_S
    connect = lambda: Client(server.host, server.port)  # noqa: E731 (as `loop` wants it)
    at_once([threading.Thread(target=loop, args=(work, connect, end)) for _ in range(CLIENTS[kind])], {kind: work})
    return work.figures(end, CAPACITY_S)["texts_per_s"]


def lone(server: Served, rng: random.Random) -> float:
    """Milliseconds of a query that is alone, the median of 50."""
    client = Client(server.host, server.port)
    took = []
    for _ in range(50):
        started = time.perf_counter()
        client.embed(TEXTS["query"](rng)[0])
        took.append(time.perf_counter() - started)
    client.close()
    return milliseconds(sorted(took), 0.5)


class Answers:
    """What came of requests that do not wait for each other, each on an idle connection or a new one.

    Attributes:
        got: Status, start, end, Retry-After in seconds, and texts of each.
        returns: Of each that was refused, came back when told and was answered: returns, seconds that it was told at
            first, and seconds from then to its last return.
        idle_s: Seconds from the last arrival to the last answer.
    """

    def __init__(self, server: Served) -> None:
        self._server = server
        self._idle: list[Client] = []
        self.returns: list[tuple[int, float, float]] = []
        self.over = threading.Event()
        self._refused = 0
        self._returning = ThreadPoolExecutor(RETURNING)
        self.got: list[tuple[int, float, float, float, int]] = []
        self.idle_s = 0.0

    def ask(self, body: bytes, texts: int) -> None:
        """One request."""
        status, told_s = self._send(body, texts)
        if status == 200:
            return
        self._refused += 1
        if self._refused % OBEY == 0:
            self._returning.submit(self._come_back, body, texts, time.perf_counter(), told_s)

    def end(self) -> None:
        """Nobody comes back any more."""
        self.over.set()
        self._returning.shutdown(cancel_futures=True)

    def _send(self, body: bytes, texts: int) -> tuple[int, float]:
        try:
            client = self._idle.pop()
        except IndexError:
            client = Client(self._server.host, self._server.port)
        started = time.perf_counter()
        status, _ = client.send(body)
        told_s = client.retry_after_s
        self.got.append((status, started, time.perf_counter(), told_s, texts))
        self._idle.append(client)
        return status, told_s

    def _come_back(self, body: bytes, texts: int, since: float, told_s: float) -> None:
        due, first_s, returns = since + told_s, told_s, 0
        while not self.over.wait(max(0.0, due - time.perf_counter())):
            returns, came = returns + 1, time.perf_counter()
            status, told_s = self._send(body, texts)
            if status == 200:
                self.returns.append((returns, first_s, came - since - first_s))
                return
            due = time.perf_counter() + told_s


def arrive(answers: Answers, kind: str, a_second: float, rng: random.Random) -> None:
    """Requests at random moments for `SECONDS`, no two of them equal: equal ones would be computed once."""
    made = [TEXTS[kind](rng) for _ in range(500)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        began = due = time.perf_counter()
        number = 0
        while due < began + SECONDS:
            due += rng.expovariate(a_second)
            time.sleep(max(0.0, due - time.perf_counter()))
            texts = [f"{text} {number}" for text in made[number % len(made)]]
            body = orjson.dumps({"model": MODEL, "input": texts if len(texts) > 1 else texts[0]})
            pool.submit(answers.ask, body, len(texts))
            number += 1
        ended = time.perf_counter()
        answers.end()
    answers.idle_s = max(stop for _, _, stop, _, _ in answers.got) - ended


def milliseconds(ordered: list[float], part: float) -> float:
    """A quantile of seconds; 0 of none."""
    return round(ordered[int(len(ordered) * part)] * 1000, 1) if ordered else 0.0
