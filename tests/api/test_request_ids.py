"""x-request-id: on every answer, the caller's where it is sane."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest
from edge import EMBEDDINGS, JSON

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

OURS = re.compile(r"req-[0-9a-f]{32}")


@pytest.fixture
async def narrow(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that takes bodies of up to 1,024 bytes."""
    async with client_of([serve(fake)], events, max_body_bytes=1024) as one:
        yield one


@pytest.mark.parametrize(
    "given", ["a", "req_123", "a-b.c:d/e+f=g@h", "0" * 128, "7b5a3c0e-1111-4222-8333-abcdefabcdef"]
)
async def test_the_callers_id_comes_back(client: httpx.AsyncClient, given: str) -> None:
    """An id of the caller is the id of the answer."""
    reply = await client.post(EMBEDDINGS, json={"input": "hello"}, headers={"x-request-id": given})
    assert reply.headers["x-request-id"] == given


@pytest.mark.parametrize(
    "given", [b"", b"a b", b"a\tb", b"0" * 129, b"<script>", b'"quoted"', b"a;b", b"caf\xe9", b"\xff", b"a\x00b"]
)
async def test_a_strange_id_is_replaced(client: httpx.AsyncClient, given: bytes) -> None:
    """An id that is empty, too long or of characters that logs or headers choke on gives way to one of ours."""
    reply = await client.post(EMBEDDINGS, json={"input": "hello"}, headers=[(b"x-request-id", given)])
    assert OURS.fullmatch(reply.headers["x-request-id"])


async def test_ids_differ(client: httpx.AsyncClient) -> None:
    """Requests without an id get one each."""
    replies = [await client.post(EMBEDDINGS, json={"input": "hello"}) for _ in range(3)]
    ids = {reply.headers["x-request-id"] for reply in replies}
    assert len(ids) == 3
    assert all(OURS.fullmatch(one) for one in ids)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", EMBEDDINGS, b"{", 400),
        ("POST", EMBEDDINGS, b'{"input": "hello", "model": "other"}', 404),
        ("POST", "/nowhere", b"{}", 404),
        ("GET", EMBEDDINGS, b"", 405),
        ("DELETE", "/health", b"", 405),
        ("POST", EMBEDDINGS, b'{"input": "' + b"x" * 2000 + b'"}', 413),
        ("GET", "/v1/models/other", b"", 404),
        ("GET", "/health", b"", 200),
        ("GET", "/docs", b"", 200),
    ],
)
async def test_every_answer_has_it(narrow: httpx.AsyncClient, method: str, path: str, body: bytes, status: int) -> None:
    """Errors and pages carry the id too."""
    reply = await narrow.request(method, path, content=body, headers={"x-request-id": "mine", **JSON})
    assert (reply.status_code, reply.headers["x-request-id"]) == (status, "mine")


async def test_the_unexpected_has_it(
    serve: Serve, fake: FakeEngine, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even an error that nobody foresaw carries the id."""
    model = serve(fake)
    monkeypatch.setattr(model, "prepare", None)
    async with client_of([model], events) as client:
        reply = await client.post(EMBEDDINGS, json={"input": "hello"}, headers={"x-request-id": "mine"})
    assert (reply.status_code, reply.headers["x-request-id"]) == (500, "mine")
