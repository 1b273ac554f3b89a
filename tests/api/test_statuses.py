"""Every error that is not about the body's fields: its status, its code, its headers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from edge import EMBEDDINGS, JSON, client_to, error_of, until

from conftest import Serve, client_of, distinct
from vecmill.api.dialect import Dialect
from vecmill.api.dialects.cohere import COHERE
from vecmill.api.dialects.oip.dialect import OIP
from vecmill.api.dialects.ollama import OLLAMA
from vecmill.api.dialects.openai import OPENAI
from vecmill.api.dialects.weaviate import WEAVIATE
from vecmill.core import Result
from vecmill.engine.fake import FakeEngine
from vecmill.errors import UnknownRoute, VecmillError
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel

CAT = 6


@pytest.fixture
async def faked(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that serves "tiny" on the fake engine and takes bodies of up to 2,000 bytes."""
    async with client_of([serve(fake)], events, max_body_bytes=2000) as one:
        yield one


def busy(model: ServedModel) -> bool:
    """Whether the engine has been given a batch that it is not done with."""
    return any(lane.items for lane in model.runner._lanes)


async def chunks(size: int) -> AsyncIterator[bytes]:
    """A body of so many bytes in chunks, whose length the server is not told ahead."""
    yield b'{"input": "hello", "user": "'
    for _ in range((size - 30) // 10):
        yield b"x" * 10
    yield b" " * ((size - 30) % 10) + b'"}'


@pytest.mark.parametrize("name", ["other", "", "TINY", "tiny ", "a/b/c", "a\nb", "ü"])
async def test_an_unknown_model(faked: httpx.AsyncClient, name: str) -> None:
    """A model that is not served is 404, and the message lists those that are."""
    assert error_of(await faked.post(EMBEDDINGS, json={"input": "hello", "model": name}), 404) == {
        "message": f"model {name!r} is not served here; served: tiny",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


@pytest.mark.parametrize("body", [{"input": "hello"}, {"input": "hello", "model": None}])
async def test_no_model_named_of_several(serve: Serve, fake: FakeEngine, events: Events, body: dict[str, Any]) -> None:
    """With several models served one must be named, and the message lists them."""
    async with client_of([serve(fake, "org/one"), serve(FakeEngine(fake.spec), "two")], events) as client:
        error = error_of(await client.post(EMBEDDINGS, json=body), 404)
    assert (error["message"], error["param"]) == ("the request names no model; served: org/one, two", "model")


@pytest.mark.parametrize("path", ["/v1", "/v1/embeddings/tiny", "/v1/completions", "/%00", "//"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_path(faked: httpx.AsyncClient, method: str, path: str) -> None:
    """A path that is no route is 404, and the message says where to look."""
    error = error_of(await faked.request(method, f"http://test{path}"), 404)
    assert error.pop("message").endswith("/docs lists all")
    assert error == {"type": "invalid_request_error", "param": None, "code": "unknown_url"}


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v2/repository/index", OIP),
        ("/v2/logging", OIP),
        ("/v2/embeddings", COHERE),
        ("/cohere/v2/classify", COHERE),
        ("/api/generate", OLLAMA),
        ("/weaviate/tiny/vectorize", WEAVIATE),
        ("/v1/chat/completions", OPENAI),
    ],
)
async def test_an_unknown_path_of_a_dialect(faked: httpx.AsyncClient, path: str, dialect: Dialect) -> None:
    """Where a dialect owns the path, the error is one that its clients can read."""
    answer = await faked.post(path, json={})
    assert answer.status_code == 404
    message = f"no route {path}"
    assert message in str(msgspec.json.decode(answer.content, type=dialect.error))
    assert answer.json().keys() == msgspec.json.decode(dialect.render_error(UnknownRoute(message)).body).keys()


async def test_a_path_that_is_nearly_one(faked: httpx.AsyncClient) -> None:
    """Of a path with a slip the message names those that are near it."""
    error = error_of(await faked.post("/v1/embedings"), 404)
    assert error["message"].startswith("no route /v1/embedings; near it: /v1/embeddings")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/embeddings", "POST"),
        ("PUT", "/embeddings", "POST"),
        ("DELETE", "/v1/embeddings", "POST"),
        ("OPTIONS", "/v1/embeddings", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("DELETE", "/v1/models/tiny", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("PATCH", "/metrics", "GET, HEAD"),
    ],
)
async def test_a_wrong_method(faked: httpx.AsyncClient, method: str, path: str, allowed: str) -> None:
    """Another method than a route's own is 405, with those allowed in the header and in the message."""
    reply = await faked.request(method, path)
    assert reply.headers["allow"] == allowed
    assert error_of(reply, 405) == {
        "message": f"{method} is not allowed on {path}; allowed: {allowed}",
        "type": "invalid_request_error",
        "param": None,
        "code": "method_not_allowed",
    }


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"content-type": "text/plain"}, "content-type is 'text/plain'; send application/json"),
        ({"content-type": "application/x-www-form-urlencoded"}, "content-type is 'application/x-www-form-urlencoded'"),
        ({"content-type": "multipart/form-data; boundary=x"}, "content-type is 'multipart/form-data'"),
        ({"content-type": "application/jsonl"}, "content-type is 'application/jsonl'"),
        ({"content-encoding": "gzip"}, "content-encoding is 'gzip'; send the body uncompressed"),
        ({"content-encoding": "br"}, "content-encoding is 'br'"),
    ],
)
async def test_what_is_not_plain_json(faked: httpx.AsyncClient, headers: dict[str, str], message: str) -> None:
    """A body that is, by its headers, no JSON or compressed is 415, whatever its bytes."""
    reply = await faked.post(EMBEDDINGS, content=b'{"input": "hello"}', headers=JSON | headers)
    error = error_of(reply, 415)
    assert error.pop("message").startswith(message)
    assert error == {"type": "invalid_request_error", "param": None, "code": "unsupported_media_type"}


async def test_a_body_too_large_by_its_length(faked: httpx.AsyncClient) -> None:
    """A body whose declared length is beyond the limit is 413 with both numbers."""
    body = b'{"input": "' + b"x" * 1987 + b'"}'
    assert len(body) == 2000
    assert (await faked.post(EMBEDDINGS, content=body, headers=JSON)).status_code == 200
    assert error_of(await faked.post(EMBEDDINGS, content=body + b" ", headers=JSON), 413) == {
        "message": "the body has 2001 bytes; this server takes at most 2000",
        "type": "invalid_request_error",
        "param": None,
        "code": "request_too_large",
    }


async def test_a_body_too_large_in_chunks(faked: httpx.AsyncClient) -> None:
    """A body without a declared length is 413 once it is beyond the limit; up to it, it is read."""
    assert (await faked.post(EMBEDDINGS, content=chunks(2000), headers=JSON)).status_code == 200
    error = error_of(await faked.post(EMBEDDINGS, content=chunks(2010), headers=JSON), 413)
    assert error["message"] == "the body has more than 2000 bytes, the limit of this server"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", "input 1: the engine returned a zero vector, NaN or infinity"),
        ("zero", "input 1: the engine returned a zero vector, NaN or infinity"),
        ("raise", "input 1: the engine failed (FakeEngineError)"),
    ],
)
@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_no_vector_is_no_answer(
    faked: httpx.AsyncClient, fake: FakeEngine, fault: str, message: str, encoding: str
) -> None:
    """Where the engine fails or its numbers are no vector the answer is 500, never a 200 without sense."""
    fake.faults[CAT] = fault
    reply = await faked.post(EMBEDDINGS, json={"input": ["dog", "cat"], "encoding_format": encoding})
    assert error_of(reply, 500) == {"message": message, "type": "server_error", "param": None, "code": "engine_failed"}
    assert (await faked.post(EMBEDDINGS, json={"input": "dog"})).status_code == 200


@pytest.mark.parametrize("fault", ["nan", "zero", "raise"])
async def test_only_the_guilty_fails(serve: Serve, fake: FakeEngine, events: Events, fault: str) -> None:
    """Of two requests in one batch only the one whose input makes the engine fail gets an error."""
    fake.faults[CAT] = fault
    model = serve(fake)
    async with client_of([model], events) as client:
        fake.gate.clear()
        first = asyncio.create_task(client.post(EMBEDDINGS, json={"input": "hello world"}))
        await until(lambda: busy(model))
        guilty = asyncio.create_task(client.post(EMBEDDINGS, json={"input": "cat"}))
        mate = asyncio.create_task(client.post(EMBEDDINGS, json={"input": ["dog", "mat"]}))
        await until(lambda: model.runner.waiting_items == 3)
        fake.gate.set()
        assert error_of(await guilty, 500)["code"] == "engine_failed"
        assert (await mate).status_code == (await first).status_code == 200
    assert fake.batches[:2] == [[4], [3, 3, 3]]


async def test_a_dead_engine_fails_at_once(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """The request that kills the engine's thread is told so, and every later one is refused: nobody hangs."""
    fake.faults[CAT] = "exit"
    model = serve(fake)
    async with client_of([model], events) as client:
        assert error_of(await client.post(EMBEDDINGS, json={"input": "cat"}), 500) == {
            "message": "input 0: the engine died over it",
            "type": "server_error",
            "param": None,
            "code": "engine_failed",
        }
        await until(lambda: not model.runner.alive)
        reply = await client.post(EMBEDDINGS, json={"input": "dog"})
    assert reply.status_code in {500, 503}
    assert error_of(reply, reply.status_code)["type"] == "server_error"


async def test_overload_says_when_to_come_back(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Beyond the queue's limit the answer is 429 with the wait in seconds and milliseconds; what waited is answered."""
    model = serve(fake, max_queue_tokens=10_000)
    async with client_of([model], events) as client:
        fake.gate.clear()
        first = asyncio.create_task(client.post(EMBEDDINGS, json={"input": "hello world"}))
        await until(lambda: busy(model))
        second = asyncio.create_task(client.post(EMBEDDINGS, json={"input": distinct(2000)}))
        await until(lambda: model.runner.waiting_items == 2000)
        reply = await client.post(EMBEDDINGS, json={"input": distinct(4000)[2000:]})
        fake.gate.set()
        assert (await first).status_code == (await second).status_code == 200
    assert error_of(reply, 429) == {
        "message": "10000 tokens wait and about 4000 more would pass the limit of 10000",
        "type": "rate_limit_error",
        "param": None,
        "code": "overloaded",
    }
    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("1", "960")  # by a guess


@pytest.mark.parametrize("body", [{"input": "hello"}, {"input": "hello", "model": "tiny"}])
async def test_a_model_on_its_way(events: Events, body: dict[str, Any]) -> None:
    """A model that is still being loaded is 503, with the time after which it is worth asking again."""
    async with client_to(Registry(["tiny"]), events) as client:
        reply = await client.post(EMBEDDINGS, json=body)
    assert error_of(reply, 503) == {
        "message": "model 'tiny' is being loaded; ask again in a moment",
        "type": "server_error",
        "param": None,
        "code": "model_loading",
    }
    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("1", "1000")


async def test_a_closed_server_takes_nothing(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Once the models are closed a request is 503 and not left waiting."""
    model = serve(fake)
    async with client_of([model], events) as client:
        model.runner.close()
        error = error_of(await client.post(EMBEDDINGS, json={"input": "hello"}), 503)
    assert (error["code"], error["type"]) == ("shutting_down", "server_error")


async def test_what_waits_is_told_of_the_end(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A request that the server cancels when the time to drain is over gets a 503 of the dialect, not silence."""
    model = serve(fake)
    async with client_of([model], events) as client:
        fake.gate.clear()
        task = asyncio.create_task(client.post(EMBEDDINGS, json={"input": distinct(500)}))
        await until(lambda: busy(model))
        task.cancel()
        error = error_of(await task, 503)
        fake.gate.set()
    assert (error["code"], error["message"]) == ("shutting_down", "the server shut down before this request was done")


@pytest.mark.parametrize(
    ("unforeseen", "code"), [(RuntimeError("secret"), "engine_failed"), (VecmillError("said"), None)]
)
async def test_the_unforeseen(
    serve: Serve, fake: FakeEngine, events: Events, monkeypatch: pytest.MonkeyPatch, unforeseen: Exception, code: str
) -> None:
    """An error that nobody foresaw is 500 in the same form, and tells nothing of the server's inside."""
    model = serve(fake)

    async def fail(*_: object) -> Result:
        raise unforeseen

    monkeypatch.setattr(model, "submit", fail)
    async with client_of([model], events) as client:
        reply = await client.post(EMBEDDINGS, json={"input": "hello"})
        other = await client.post("/embed", json={"inputs": "hello"})
    error = error_of(reply, 500)
    assert (error["type"], error["param"], error["code"]) == ("server_error", None, code)
    assert other.json() == {"error": error["message"], "error_type": "Backend"}
    assert "secret" not in reply.text
