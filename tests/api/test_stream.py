"""Lines of JSON in, lines of JSON out: in order, each with its own error, without end to the list."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from edge import until
from starlette.types import ASGIApp, Message

from conftest import Serve, client_of, distinct
from vecmill.api.app import build
from vecmill.api.spool import LONGEST_LINE
from vecmill.api.stream import KIND, PATH, TOGETHER, UNDER_WAY
from vecmill.config import Settings
from vecmill.core import Request
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Event, Events, RequestDone
from vecmill.serving.registry import Registry

HEADERS = {"content-type": KIND}


def lines(*values: object) -> bytes:
    """A body."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


async def post(client: httpx.AsyncClient, body: bytes, **query: Any) -> list[dict[str, Any]]:
    """The lines of a good answer."""
    reply = await client.post(PATH, content=body, params=query, headers=HEADERS)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == KIND
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_vectors_are_those_of_a_list(client: httpx.AsyncClient) -> None:
    """Every line has the vector, the number and the caller's own name of its text."""
    texts = distinct(200)
    wanted = (await client.post("/v1/embeddings", json={"input": texts})).json()["data"]
    given = [text if number % 2 else {"id": f"no {number}", "input": text} for number, text in enumerate(texts)]
    answered = await post(client, lines(*given), model="tiny")
    assert [one["index"] for one in answered] == list(range(200))
    assert [one.get("id") for one in answered] == [None if n % 2 else f"no {n}" for n in range(200)]
    for one, other in zip(answered, wanted, strict=True):
        assert one["embedding"] == other["embedding"]
        assert one["tokens"] == 5


async def test_options(client: httpx.AsyncClient) -> None:
    """The URL says what the body of other requests says."""
    asked = {"input": ["the cat"], "encoding_format": "base64", "dimensions": 4}
    wanted = (await client.post("/v1/embeddings", json=asked)).json()["data"][0]["embedding"]
    (answered,) = await post(client, lines("the cat"), encoding_format="base64", dimensions=4)
    assert answered["embedding"] == wanted


async def test_a_bad_line_fails_alone(client: httpx.AsyncClient) -> None:
    """What is no text, no JSON or too long has an error in its place; empty lines are no lines."""
    long = lines("the cat", "x" * (LONGEST_LINE + 1), "a dog")
    assert [one.get("error", {}).get("code") for one in await post(client, long)] == [None, "request_too_large", None]
    body = lines("the cat") + b'{"input": 7}\n\n  \nnonsense\n' + lines("", "a dog " * 40, {"id": 5, "input": "a dog"})
    answered = await post(client, body, truncate="false")
    assert [one["index"] for one in answered] == [0, 1, 2, 3, 4, 5]
    assert ["embedding" in one for one in answered] == [True, False, False, False, False, True]
    assert "input is 7" in answered[1]["error"]["message"]
    assert "not valid JSON" in answered[2]["error"]["message"]
    assert answered[4]["error"]["code"] == "context_length_exceeded"
    assert answered[5]["id"] == 5


async def test_errors_number_the_lines_of_the_whole_list(client: httpx.AsyncClient) -> None:
    """Not those of the part that was one request of the model."""
    answered = await post(client, lines(*distinct(2 * TOGETHER), ""))
    assert answered[-1]["error"]["message"].startswith(f"line {2 * TOGETHER} is an empty string")


@pytest.mark.parametrize(
    ("query", "headers", "status", "word"),
    [
        ({"model": "other"}, HEADERS, 404, "other"),
        ({"dimensions": 99}, HEADERS, 400, "dimensions is 99"),
        ({"dimensions": "many"}, HEADERS, 400, "dimensions"),
        ({}, {"content-type": "application/json"}, 415, KIND),
        ({}, HEADERS | {"content-encoding": "gzip"}, 415, "uncompressed"),
    ],
)
async def test_what_concerns_all(
    client: httpx.AsyncClient, query: dict[str, Any], headers: dict[str, str], status: int, word: str
) -> None:
    """What is wrong with every line is the answer's status, in OpenAI's shape."""
    reply = await client.post(PATH, content=lines("the cat"), params=query, headers=headers)
    assert reply.status_code == status
    assert word in reply.json()["error"]["message"]


async def test_nothing_asked(client: httpx.AsyncClient) -> None:
    """No line, no answer; and another method is told which one it is."""
    assert await post(client, b"\n\n") == []
    assert (await client.get(PATH)).status_code == 405


async def test_a_key_is_wanted(serve: Serve, events: Events) -> None:
    """Where the server has a key, streams want it too."""
    async with client_of([serve()], events, api_key="right") as client:
        assert (await client.post(PATH, content=lines("a"), headers=HEADERS)).status_code == 401
        right = {**HEADERS, "authorization": "Bearer right"}
        assert (await client.post(PATH, content=lines("a"), headers=right)).status_code == 200


async def test_twenty_thousand_lines(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A list that nobody holds as a whole comes back whole and in order, a bounded number of requests at a time."""
    model = serve(fake, result_cache_mb=0)
    most = 0

    async def given() -> AsyncIterator[bytes]:
        nonlocal most
        for number in range(20_000):
            yield lines({"id": number, "input": f"the cat {number % 97}"})
            most = max(most, model.runner.waiting_items)

    async with client_of([model], events) as client:
        reply = await client.post(PATH, content=given(), headers=HEADERS, timeout=120)
    answered = [json.loads(line) for line in reply.text.splitlines()]
    assert [one["id"] for one in answered] == list(range(20_000))
    assert most <= TOGETHER * UNDER_WAY


class Line:
    """A caller who sends all, reads nothing, and hangs up when told to."""

    def __init__(self, body: bytes, *, more: bool = False) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": body, "more_body": more}]
        self.gone = asyncio.Event()
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        """The body, then silence, then nothing more."""
        if self._messages:
            return self._messages.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """What the server sends."""
        self.sent.append(message)

    async def ask(self, app: ASGIApp) -> None:
        """One stream."""
        await app(dict(SCOPE), self.receive, self.send)


SCOPE: dict[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": PATH,
    "query_string": b"",
    "headers": [(b"content-type", KIND.encode())],
}


async def test_who_leaves_is_not_worked_for(serve: Serve, fake: FakeEngine, events: Events, seen: list[Event]) -> None:
    """After the caller has left, at most what was under way is computed, and the queue is empty."""
    model = serve(fake, result_cache_mb=0)
    registry = Registry(["tiny"])
    registry.add(model)
    fake.gate.clear()
    caller = Line(lines(*distinct(2000)))
    app = build(registry, Settings(), events)
    running = asyncio.create_task(caller.ask(app))
    await until(lambda: model.runner.waiting_items > TOGETHER)
    caller.gone.set()
    await asyncio.sleep(0.05)
    fake.gate.set()
    await asyncio.wait_for(running, 10)
    await until(lambda: model.runner.waiting_items == 0)
    assert sum(map(len, fake.batches)) <= TOGETHER * (UNDER_WAY + 1)
    statuses = [event.status for event in seen if isinstance(event, RequestDone)]
    assert (statuses[-1], {*statuses[:-1]} <= {200}) == (499, True)


def app_of(serve: Serve, fake: FakeEngine, events: Events, **settings: object) -> tuple[ASGIApp, Registry]:
    """An application of one model, and its registry."""
    registry = Registry(["tiny"])
    registry.add(serve(fake, result_cache_mb=0))
    return build(registry, Settings(**settings), events), registry  # type: ignore[arg-type]


def last_of(caller: Line) -> dict[str, Any]:
    """The last line that a caller was sent, at the end of the answer."""
    assert not caller.sent[-1].get("more_body")
    last: dict[str, Any] = json.loads(caller.sent[-1]["body"].splitlines()[-1])
    return last


async def test_who_leaves_within_the_answer_counts_as_gone(
    serve: Serve, fake: FakeEngine, events: Events, seen: list[Event]
) -> None:
    """What was answered counts as that, and the rest as a caller who left, though the head said 200."""
    app, _ = app_of(serve, fake, events)
    caller = Line(lines("the cat"), more=True)
    running = asyncio.create_task(caller.ask(app))
    await until(lambda: len(caller.sent) == 2)
    caller.gone.set()
    await asyncio.wait_for(running, 10)
    assert [(event.status, event.inputs) for event in seen if isinstance(event, RequestDone)] == [(200, 1), (499, 0)]


async def test_a_body_that_stops_to_come(serve: Serve, fake: FakeEngine, events: Events, seen: list[Event]) -> None:
    """After the time for it what was answered stands, the last line says why no more comes, and metrics know it."""
    app, _ = app_of(serve, fake, events, body_timeout_s=0.05)
    caller = Line(lines("the cat"), more=True)
    await asyncio.wait_for(caller.ask(app), 10)
    assert caller.sent[0]["status"] == 200
    assert last_of(caller)["error"]["code"] == "request_timeout"
    assert [(event.status, event.inputs) for event in seen if isinstance(event, RequestDone)] == [(200, 1), (408, 0)]


async def test_an_idle_stream_ends_with_the_server(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A stream whose caller sends nothing more does not keep a server that takes no new work."""
    app, registry = app_of(serve, fake, events)
    caller = Line(lines("the cat"), more=True)
    running = asyncio.create_task(caller.ask(app))
    await until(lambda: len(caller.sent) == 2)
    registry.closed = True
    await asyncio.wait_for(running, 10)
    assert last_of(caller)["error"]["code"] == "shutting_down"


async def test_what_came_whole_is_answered_to_its_end(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A stream that was accepted is work that was accepted: a server that takes no new work finishes it."""
    app, registry = app_of(serve, fake, events)
    fake.gate.clear()
    caller = Line(lines(*distinct(900)))
    running = asyncio.create_task(caller.ask(app))
    await until(lambda: registry.get("tiny").runner.waiting_items > 0)
    registry.closed = True
    fake.gate.set()
    await asyncio.wait_for(running, 30)
    answered = b"".join(message["body"] for message in caller.sent[1:]).splitlines()
    assert (len(answered), b"error" in answered[-1]) == (900, False)
    late = Line(lines("the cat"))
    await late.ask(app)
    assert late.sent[0]["status"] == 503


async def test_all_streams_share_the_room(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """What one stream holds another cannot have, and is told so; when the first has ended it can."""
    app, registry = app_of(serve, fake, events, stream_spool_mb=1)
    fake.gate.clear()
    one, other, third = (Line(lines(*distinct(900) * 80)) for _ in range(3))
    running = asyncio.create_task(one.ask(app))
    await until(lambda: registry.get("tiny").runner.waiting_items > 0)
    await other.ask(app)
    assert (other.sent[0]["status"], b"retry-after" in dict(other.sent[0]["headers"])) == (429, True)
    one.gone.set()
    fake.gate.set()
    await asyncio.wait_for(running, 10)
    running = asyncio.create_task(third.ask(app))
    await until(lambda: bool(third.sent))
    assert third.sent[0]["status"] == 200
    third.gone.set()
    await running


async def test_it_waits_where_a_request_would_be_refused(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A full queue holds a stream up; nothing of it is lost."""
    model = serve(fake, result_cache_mb=0, max_queue_tokens=400)
    fake.gate.clear()
    async with client_of([model], events) as client:
        streaming = asyncio.create_task(post(client, lines(*distinct(500))))
        await until(lambda: model.runner.waiting_items > 0)
        await asyncio.sleep(0.05)
        fake.gate.set()
        answered = await asyncio.wait_for(streaming, 30)
    assert len(answered) == 500
    assert not any("error" in one for one in answered)


async def test_what_is_told(client: httpx.AsyncClient, events: Events) -> None:
    """Each request of a stream is an event with its inputs; the stream itself is none beside them."""
    told: list[Event] = []
    events.subscribers.append(told.append)
    await post(client, lines(*distinct(TOGETHER + 1)))
    done = [event for event in told if isinstance(event, RequestDone)]
    assert [(event.route, event.status, event.inputs) for event in done] == [(PATH, 200, TOGETHER), (PATH, 200, 1)]


async def test_rows_are_the_models(serve: Serve, events: Events) -> None:
    """The numbers of a line are those that the model gives in-process."""
    model = serve()
    async with client_of([model], events) as client:
        (answered,) = await post(client, lines("hello world"))
    wanted = model.compute(Request(model="tiny", inputs=["hello world"])).rows[0]
    assert np.array_equal(np.array(answered["embedding"], dtype=np.float32), wanted)
