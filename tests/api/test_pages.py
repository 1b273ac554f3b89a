"""What operators and clients ask on GET: models, health, readiness, documentation."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from typing import Any

import httpx
import pytest
from edge import EMBEDDINGS, client_to, error_of, until
from starlette.routing import Route

from conftest import Serve, client_of
from vecmill.api import admin
from vecmill.api.app import build
from vecmill.config import Settings
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry

CARD = {
    "object": "model",
    "owned_by": "vecmill",
    "dimensions": 16,
    "max_tokens": 40,
    "max_inputs": 100,
    "vocab_size": 56,
    "architecture": "bert",
    "task": "embed",
    "outputs": ["dense", "multi"],
    "labels": [],
    "pooling": ["mean"],
    "normalized": True,
    "prompts": ["passage", "query"],
    "default_prompt": None,
    "revision": "local",
    "precision": "float32",
    "engine": "onnx",
    "backend": "onnx",
    "capabilities": ["embed", "multi"],
    "stats": {"queue_fraction": 0.0, "queue_absolute": 0, "results_pending": 0, "batch_size": 8192},
}


@pytest.fixture
async def two(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that serves "org/one" and "two"."""
    models = [serve(fake, "org/one", max_inputs=100), serve(FakeEngine(fake.spec), "two", max_inputs=100)]
    async with client_of(models, events) as one:
        yield one


@pytest.mark.parametrize(
    ("path", "owner"), [("/v1/models", "vecmill"), ("/models", "infinity"), ("/infinity/models", "infinity")]
)
async def test_models_are_listed(two: httpx.AsyncClient, path: str, owner: str) -> None:
    """The list holds every model in the order given, with OpenAI's fields and what clients need to know."""
    reply = await two.get(path)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    answer = reply.json()
    created = [card.pop("created") for card in answer["data"]]
    card = CARD | {"owned_by": owner}
    assert answer == {"object": "list", "data": [{"id": "org/one", **card}, {"id": "two", **card}]}
    assert [type(one) for one in created] == [int, int]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/models/org/one", "org/one"),
        ("/v1/models/org%2Fone", "org/one"),
        ("/models/org/one", "org/one"),
        ("/v1/models/two", "two"),
    ],
)
async def test_a_model_by_name(two: httpx.AsyncClient, path: str, name: str) -> None:
    """One model is found by its name, slashes and all."""
    reply = await two.get(path)
    assert reply.status_code == 200
    assert reply.json()["id"] == name
    assert reply.json() in (await two.get("/v1/models")).json()["data"]


@pytest.mark.parametrize("base", ["/openai/v1", "/openai", "/nvidia/v1", "/vllm/v1", "/mistral/v1"])
async def test_the_models_of_a_dialects_base_url(two: httpx.AsyncClient, base: str) -> None:
    """Clients list models, and look one up, where their base URL is; what they get is that of /v1/models."""
    for path in ("models", "models/org/one"):
        there, here = await two.get(f"{base}/{path}"), await two.get(f"/v1/{path}")
        assert (there.status_code, there.json()) == (200, here.json())


@pytest.mark.parametrize("base", ["/tei", "/vllm", "/infinity"])
async def test_the_health_of_a_dialects_base_url(two: httpx.AsyncClient, base: str) -> None:
    """So it is with their look at the server's health."""
    reply = await two.get(f"{base}/health")
    assert (reply.status_code, reply.json()["status"]) == (200, "ok")


@pytest.mark.parametrize("name", ["one", "org", "org/one//", "TWO", "two%20", "%C3%BC"])
async def test_a_model_by_a_wrong_name(two: httpx.AsyncClient, name: str) -> None:
    """A name that is not served is 404 with those that are."""
    error = error_of(await two.get(f"/v1/models/{name}"), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert error["message"].endswith("is not served here; served: org/one, two")


async def test_life_before_readiness(events: Events) -> None:
    """While models load the process is healthy but not ready, and lists none."""
    async with client_to(Registry(["org/one", "two"]), events) as client:
        health, ready = await client.get("/health"), await client.get("/ready")
        models, one = await client.get("/v1/models"), await client.get("/v1/models/two")
    states = {"org/one": "loading", "two": "loading"}
    assert (health.status_code, health.json()["status"], health.json()["models"]) == (200, "ok", states)
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "models": states})
    assert models.json() == {"object": "list", "data": []}
    assert error_of(one, 503)["code"] == "model_loading"


async def test_ready_means_all_models(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Readiness comes with the last model."""
    registry = Registry(["org/one", "two"])
    async with client_to(registry, events) as client:
        registry.add(serve(fake, "two"))
        half = await client.get("/ready")
        registry.add(serve(FakeEngine(fake.spec), "org/one"))
        whole = await client.get("/ready")
    assert (half.status_code, half.json()["models"]) == (503, {"org/one": "loading", "two": "ready"})
    assert (whole.status_code, whole.json()) == (200, {"ready": True, "models": {"org/one": "ready", "two": "ready"}})


async def test_a_dead_engine_is_seen(two: httpx.AsyncClient, fake: FakeEngine) -> None:
    """Once an engine has died, health and readiness are 503 and say whose it was."""
    fake.faults[6] = "exit"
    assert (await two.post(EMBEDDINGS, json={"input": "cat", "model": "org/one"})).status_code == 500
    await until(lambda: fake.closed)
    health, ready = await two.get("/health"), await two.get("/ready")
    states = {"org/one": "broken", "two": "ready"}
    assert (health.status_code, health.json()["status"], health.json()["models"]) == (503, "broken", states)
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "models": states})
    assert (await two.post(EMBEDDINGS, json={"input": "cat", "model": "two"})).status_code == 200


async def test_draining_ends_readiness(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """While the server drains it is healthy, not ready, and answers until it is closed."""
    registry = Registry(["tiny"])
    registry.add(serve(fake))
    registry.draining = True
    async with client_to(registry, events) as client:
        health, ready = await client.get("/health"), await client.get("/ready")
        answer = await client.post(EMBEDDINGS, json={"input": "cat"})
        registry.closed = True
        late = await client.post(EMBEDDINGS, json={"input": "cat"})
    assert (health.status_code, ready.status_code, answer.status_code) == (200, 503, 200)
    assert (late.status_code, late.json()["error"]["code"]) == (503, "shutting_down")
    assert ready.json() == {"ready": False, "models": {"tiny": "ready"}}


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/metrics", "/docs", "/openapi.json"])
async def test_head_is_get_without_a_body(two: httpx.AsyncClient, path: str) -> None:
    """HEAD, which probes use, has the status and the type of GET."""
    head, get = await two.head(path), await two.get(path)
    assert head.status_code == get.status_code == 200
    assert head.headers["content-type"] == get.headers["content-type"]


async def test_the_page_needs_nothing_from_elsewhere(two: httpx.AsyncClient) -> None:
    """/docs is one HTML page without an address in it, so that it works without a network."""
    reply = await two.get("/docs")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert reply.text == files("vecmill.api").joinpath("docs.html").read_text()
    assert [sign for sign in ("://", "src=", "@import", "url(", 'href="/', "integrity=") if sign in reply.text] == []


async def test_the_document_is_made_once(two: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often and by how many at once it is asked for, it is made once, and not on the event loop."""
    made = []

    def document(*given: Any) -> dict[str, Any]:
        made.append(threading.current_thread())
        return real(*given)

    real = admin.document  # type: ignore[attr-defined]  # no export of its
    monkeypatch.setattr(admin, "document", document)
    replies = await asyncio.gather(*(two.get("/openapi.json") for _ in range(3)), two.get("/openapi.json"))
    assert (await two.get("/openapi.json")).content == replies[0].content
    assert {reply.status_code for reply in replies} == {200}
    (thread,) = made
    assert thread is not threading.main_thread()


def routes_of(serve: Serve, fake: FakeEngine, events: Events) -> list[Route]:
    """What the application's router holds."""
    registry = Registry(["tiny"])
    registry.add(serve(fake))
    app: Any = build(registry, Settings(), events)
    return [route for route in app._app._app.routes if isinstance(route, Route)]


async def test_every_route_is_described(
    client: httpx.AsyncClient, serve: Serve, fake: FakeEngine, events: Events
) -> None:
    """/openapi.json has each route of the router, under its method, and no other."""
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    wanted: dict[str, set[str]] = {}
    for route in routes_of(serve, fake, events):
        asked = getattr(route.endpoint, "method", "GET").lower()
        wanted.setdefault(route.path.replace(":path}", "}"), set()).add(asked)
    assert {path: set(methods) for path, methods in document["paths"].items()} == wanted


async def test_the_description_holds_together(client: httpx.AsyncClient) -> None:
    """Every operation has a summary, an answer and its path's parameters, and every reference leads to a type."""
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"]
            assert operation["responses"]["200"]["content"]
            assert [one["name"] for one in operation.get("parameters", [])] == re.findall(r"{(\w+)}", path)
    references = list(found(document, "$ref"))
    assert len(references) > 5
    names = {one.removeprefix("#/components/schemas/") for one in references}
    assert names <= set(document["components"]["schemas"])


async def test_the_description_knows_the_fields(client: httpx.AsyncClient) -> None:
    """The types of a request and of an error are those of the wire."""
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    assert sorted(schemas["EmbeddingsBody"]["properties"]) == [
        *("dimensions", "encoding_format", "input", "input_type", "item_errors", "long_inputs", "model"),
        *("one_document", "prompt_name", "truncate", "user"),
    ]
    assert schemas["EmbeddingsBody"]["required"] == ["input"]
    assert sorted(schemas["ErrorDetail"]["properties"]) == ["code", "message", "param", "type"]
    kinds = {kind for kind in found(schemas, "type") if isinstance(kind, str)}
    assert kinds <= {"object", "array", "string", "integer", "number", "boolean", "null"}


def found(value: Any, key: str) -> Iterator[Any]:
    """Every value of that key, however deep."""
    if isinstance(value, dict):
        yield from (one for name, one in value.items() if name == key)
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from found(one, key)
