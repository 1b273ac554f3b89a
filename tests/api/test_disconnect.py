"""Callers who leave: what they asked for is no longer worked on."""

import asyncio
import json
from typing import Any

import pytest
from edge import EMBEDDINGS, until
from starlette.types import ASGIApp, Message

from conftest import Serve, distinct
from vecmill.api.app import build
from vecmill.config import Settings
from vecmill.core import Request
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Event, Events, RequestDone
from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel

SCOPE: dict[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": EMBEDDINGS,
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
}


class Caller:
    """A connection that sends some of a body and then hangs up when told to."""

    def __init__(self, *parts: Message) -> None:
        self._parts = list(parts)
        self.gone = asyncio.Event()
        self.watched = False
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        """What the caller sends: its parts, then silence, then nothing more."""
        if self._parts:
            return self._parts.pop(0)
        self.watched = True
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """What the server sends."""
        self.sent.append(message)

    async def ask(self, app: ASGIApp) -> None:
        """One request."""
        await app(dict(SCOPE), self.receive, self.send)


def body(value: object, *, more: bool = False) -> Message:
    """A part of a body, the last one unless there is more."""
    return {"type": "http.request", "body": json.dumps(value).encode(), "more_body": more}


def app_of(model: ServedModel, events: Events, **settings: object) -> ASGIApp:
    """The application over one model."""
    registry = Registry([model.name])
    registry.add(model)
    return build(registry, Settings(**settings), events)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [10, 2000])
async def test_work_of_a_caller_who_left_is_dropped(
    serve: Serve, fake: FakeEngine, events: Events, seen: list[Event], count: int
) -> None:
    """When the caller leaves, the queue forgets its inputs; the engine sees no more than the batch that ran."""
    model = serve(fake, batch_tokens=8)
    caller = Caller(body({"input": distinct(count)}))
    fake.gate.clear()
    task = asyncio.create_task(caller.ask(app_of(model, events)))
    await until(lambda: model.runner.waiting_items == count - 1)
    caller.gone.set()
    await asyncio.wait_for(task, 10)
    await until(lambda: model.runner.waiting_items == 0)
    fake.gate.set()
    assert (await model.submit(Request(model=None, inputs=["hello"]))).tokens == [3]
    assert fake.batches == [[5], [3]]
    assert [event.status for event in seen if isinstance(event, RequestDone)] == [499]


async def test_a_caller_who_waits_is_answered(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A request that takes so long that its caller is watched is answered when it is done."""
    model = serve(fake)
    caller = Caller(body({"input": ["the cat sat"]}))
    fake.gate.clear()
    task = asyncio.create_task(caller.ask(app_of(model, events)))
    await until(lambda: caller.watched)
    fake.gate.set()
    await asyncio.wait_for(task, 10)
    assert caller.sent[0]["status"] == 200


async def test_a_caller_who_leaves_while_sending(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Half a body is never worked on."""
    caller = Caller(body({"input": "the cat"}, more=True))
    caller.gone.set()
    await caller.ask(app_of(serve(fake), events))
    assert caller.sent[0]["status"] == 499
    assert fake.batches == []


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize(("path", "code"), [(EMBEDDINGS, b'"code":"request_timeout"'), ("/embed", b'"Validation"')])
async def test_a_body_that_does_not_come(
    serve: Serve, fake: FakeEngine, events: Events, path: str, code: bytes, *, begun: bool
) -> None:
    """A request whose body stops to come, or never begins, is 408 after a time, in its dialect; the connection ends."""
    caller = Caller(*[body({"input": "the cat"}, more=True)] * begun)
    app = app_of(serve(fake), events, body_timeout_s=0.05)
    await asyncio.wait_for(app(SCOPE | {"path": path}, caller.receive, caller.send), 10)
    start, answer = caller.sent
    assert (start["status"], dict(start["headers"])[b"connection"]) == (408, b"close")
    assert code in answer["body"]
    assert fake.batches == []


async def test_a_slow_body_is_read(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """What comes piece by piece has its time for each."""
    parts = [json.dumps({"input": "the cat"}).encode()[at : at + 1] for at in range(20)]

    async def receive() -> Message:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    caller = Caller()
    await app_of(serve(fake), events, body_timeout_s=0.2)(dict(SCOPE), receive, caller.send)
    assert caller.sent[0]["status"] == 200


async def test_a_body_is_not_waited_for_in_the_end(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Who has not sent all when the server takes no new work is told so: what comes would be refused anyway."""
    registry = Registry(["tiny"])
    registry.add(serve(fake))
    app = build(registry, Settings(), events)
    for parts in ([], [body({}, more=True)], [body({}, more=True)] * 1_000):
        caller = Caller(*parts)
        registry.closed = False
        task = asyncio.create_task(caller.ask(app))
        await asyncio.sleep(0)
        registry.closed = True
        await asyncio.wait_for(task, 10)
        assert caller.sent[0]["status"] == 503
        assert b"shutting_down" in caller.sent[1]["body"]


async def test_a_large_answer_goes_out_in_pieces(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Its length is told first; then it is sent piece by piece, and together they are the answer."""
    model = serve(fake, max_inputs=10_000)
    caller = Caller(body({"input": ["the cat"] * 10_000}))
    await caller.ask(app_of(model, events))
    start, *pieces = caller.sent
    assert start["status"] == 200
    assert len(pieces) > 1
    assert [piece.get("more_body", False) for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    content = b"".join(piece["body"] for piece in pieces)
    assert dict(start["headers"])[b"content-length"] == str(len(content)).encode()
    assert [one["index"] for one in json.loads(content)["data"]] == list(range(10_000))
