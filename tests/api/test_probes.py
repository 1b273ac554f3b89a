"""Where the tools of other servers look whether this one lives and is ready."""

from collections.abc import AsyncIterator

import httpx
import pytest
from edge import client_to, until

from conftest import Serve, client_of
from vecmill import __version__
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry

LIVE = ["/v2/health/live", "/.well-known/live", "/weaviate/.well-known/live"]
READY = ["/v2/health/ready", "/.well-known/ready", "/weaviate/.well-known/ready"]
MODEL_READY = ["/v2/models/one/ready", "/weaviate/one/.well-known/ready"]


@pytest.fixture
async def one(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that wants a key and serves "org/one", a name with a slash."""
    async with client_of([serve(fake, name="org/one")], events, api_key="secret") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        *((path, {"live": True}) for path in LIVE),
        *((path, {"ready": True}) for path in READY),
        ("/v2/models/org/one/ready", {"name": "org/one", "ready": True}),
        ("/v2/models/org/one/versions/1/ready", {"name": "org/one", "ready": True}),
        ("/weaviate/org/one/.well-known/ready", {"name": "org/one", "ready": True}),
        ("/weaviate/org/one/.well-known/live", {"live": True}),
        (
            "/v2",
            {"name": "vecmill", "version": __version__, "extensions": ["binary_tensor_data", "model_configuration"]},
        ),
    ],
)
async def test_a_server_that_answers_says_so(one: httpx.AsyncClient, path: str, answer: object) -> None:
    """Each probe is 200 with its body, and needs no key."""
    reply = await one.get(path)
    assert (reply.status_code, reply.json()) == (200, answer)


async def test_life_before_readiness(events: Events) -> None:
    """While a model loads the process lives, and neither it nor the model is ready."""
    async with client_to(Registry(["one"]), events) as client:
        statuses = {path: (await client.get(path)).status_code for path in [*LIVE, *READY, *MODEL_READY]}
    assert statuses == dict.fromkeys(LIVE, 200) | dict.fromkeys([*READY, *MODEL_READY], 503)


async def test_draining_ends_readiness(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """While the server drains it lives, and nothing is ready."""
    registry = Registry(["one"])
    registry.add(serve(fake, name="one"))
    registry.draining = True
    async with client_to(registry, events) as client:
        statuses = {path: (await client.get(path)).status_code for path in [*LIVE, *READY, *MODEL_READY]}
    assert statuses == dict.fromkeys(LIVE, 200) | dict.fromkeys([*READY, *MODEL_READY], 503)


@pytest.mark.parametrize(
    "path", ["/v2/models/{}/ready", "/weaviate/{}/.well-known/ready", "/weaviate/{}/.well-known/live"]
)
async def test_an_unknown_model_is_not_there(one: httpx.AsyncClient, path: str) -> None:
    """A model that is not served is 404 in the protocol's own form."""
    reply = await one.get(path.format("two"))
    assert reply.status_code == 404
    assert reply.json() == {"error": "model 'two' is not served here; served: org/one"}


async def test_a_weaviate_of_one_model_starts(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """What an address that names a model says is of that model: it is ready before others are, and lives while they do.

    The database asks these ends of its address, and starts where each is below 300.
    """
    registry = Registry(["org/one", "two"])
    registry.add(serve(fake, name="org/one"))
    async with client_to(registry, events) as client:
        asked = ("/weaviate/{}/.well-known/ready", "/weaviate/{}/.well-known/live", "/weaviate/{}/meta")
        assert [(await client.get(path.format("org/one"))).status_code for path in asked] == [200, 200, 200]
        assert [(await client.get(path.format("two"))).status_code for path in asked] == [503, 200, 503]
        fake.faults[6] = "exit"
        assert (await client.post("/weaviate/org/one/vectors", json={"text": "cat"})).status_code == 500
        await until(lambda: fake.closed)
        assert [(await client.get(path.format("org/one"))).status_code for path in asked[:2]] == [503, 503]
        assert (await client.get(asked[1].format("two"))).status_code == 200


async def test_vertex_chooses_its_paths(serve: Serve, events: Events) -> None:
    """The paths that Vertex AI names answer its envelope and its probe."""
    routes = {"predict_route": "/v1/endpoints/1/deployedModels/2:predict", "health_route": "/v1/endpoints/1/health"}
    async with client_of([serve()], events, **routes) as client:
        asked = await client.post(routes["predict_route"], json={"instances": [{"inputs": "hello", "dimensions": 2}]})
        usual = await client.post("/vertex", json={"instances": [{"inputs": "hello", "dimensions": 2}]})
        probe = await client.get(routes["health_route"])
    assert asked.status_code == 200
    assert asked.json() == usual.json()
    assert (probe.status_code, probe.json()) == (200, {"ready": True})


async def test_a_platforms_health_is_readiness(events: Events) -> None:
    """Where the platform's path is one of ours, it still waits for the models."""
    async with client_to(Registry(["one"]), events, health_route="/health") as client:
        assert (await client.get("/health")).status_code == 503


async def test_a_platforms_path_replaces_none(serve: Serve, events: Events) -> None:
    """A predict route that is served already stays what it is."""
    async with client_of([serve()], events, predict_route="/v1/embeddings") as client:
        assert (await client.post("/v1/embeddings", json={"input": "hello"})).status_code == 200
