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


def app_of(model: ServedModel, events: Events) -> ASGIApp:
    """The application over one model."""
    registry = Registry([model.name])
    registry.add(model)
    return build(registry, Settings(), events)


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
