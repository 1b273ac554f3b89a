"""Served names in paths, and keys in bodies."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events, RequestDone

TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["hello"]}


@pytest.fixture
async def two(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that serves "org/one" and "two"."""
    models = [serve(fake, name="org/one"), serve(FakeEngine(fake.spec), name="two")]
    async with client_of(models, events) as client:
        yield client


@pytest.mark.parametrize("name", ["org/one", "two"])
@pytest.mark.parametrize("end", ["infer", "versions/1/infer"])
async def test_a_path_names_the_model(two: httpx.AsyncClient, seen: list[Any], name: str, end: str) -> None:
    """The model of the path answers, slashes and all, and metrics know it and the route."""
    reply = await two.post(f"/v2/models/{name}/{end}", json={"inputs": [TENSOR]})
    assert reply.status_code == 200
    assert reply.json()["model_name"] == name
    (done,) = [event for event in seen if isinstance(event, RequestDone)]
    assert (done.model, done.route, done.inputs) == (name, "/v2/models/{model}/infer", 1)


@pytest.mark.parametrize("path", ["/v2/models/org/one", "/v2/models/org/one/versions/1"])
async def test_a_path_names_what_is_described(two: httpx.AsyncClient, path: str) -> None:
    """So it is with a question about a model."""
    assert (await two.get(path)).json()["name"] == "org/one"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/two", "/ready", "/v2/models/org/one", "/mine"])
async def test_a_slash_at_the_end_changes_nothing(serve: Serve, events: Events, path: str) -> None:
    """The same page answers, without a detour through another URL."""
    models = [serve(name="org/one"), serve(name="two")]
    async with client_of(models, events, health_route="/mine/") as client:
        assert (await client.get(path + "/")).content == (await client.get(path)).content
        assert (await client.get(path + "/")).status_code == 200
        assert (await client.get(path + "//")).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "hello"}),
        ("/embed", {"inputs": "hello"}),
        ("/v2/models/two/infer", {"inputs": [TENSOR]}),
        ("/mine", {"instances": [{"inputs": "hello"}]}),
    ],
)
async def test_a_slash_at_the_end_keeps_the_body(serve: Serve, events: Events, path: str, body: dict[str, Any]) -> None:
    """Nobody is sent elsewhere with what should be computed, also where the model stands in the path."""
    async with client_of([serve(name="two")], events, predict_route="/mine/") as client:
        asked, without = [await client.post(one, json=body) for one in (path + "/", path)]
        assert (asked.status_code, asked.content) == (200, without.content)


async def test_the_path_counts_for_more_than_the_body(two: httpx.AsyncClient) -> None:
    """A model in the body does not matter where the path names one."""
    reply = await two.post("/weaviate/org/one/vectors", json={"text": "hello", "model": "two"})
    assert reply.status_code == 200
    assert (await two.post("/vectors", json={"text": "hello"})).status_code == 404


BODY: dict[str, Any] = {"inputs": [{"data": "hello", "data_type": "text", "model": "tiny"}], "inference": "search"}


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        ("secret", {}, 200),
        ("wrong", {}, 401),
        (None, {}, 401),
        (5, {}, 401),
        ("", {"authorization": "Bearer secret"}, 200),
        ("secret", {"authorization": "Bearer wrong"}, 401),
        ("secret", {"authorization": ""}, 200),
    ],
)
async def test_a_body_may_hold_the_key(
    serve: Serve, events: Events, token: object, headers: dict[str, str], status: int
) -> None:
    """Qdrant's token is an API key like one in a header, which counts for more."""
    async with client_of([serve()], events, api_key="secret") as client:
        reply = await client.post("/qdrant/inference", json={**BODY, "token": token}, headers=headers)
    assert reply.status_code == status
    assert list(reply.json()) == (["embeddings", "usage"] if status == 200 else ["error"])


async def test_only_its_own_body_may_hold_the_key(serve: Serve, events: Events) -> None:
    """A token in the body of another dialect opens nothing."""
    async with client_of([serve()], events, api_key="secret") as client:
        reply = await client.post("/v1/embeddings", json={"input": "hello", "token": "secret"})
    assert reply.status_code == 401
