"""Bodies that nobody meant, to every route of every dialect: an answer or that dialect's own error, never a 5xx."""

import json
import random
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from edge import JSON, fakes
from mutants import mutant

from conftest import Serve, client_of
from vecmill.api.app import DIALECTS
from vecmill.api.dialect import Dialect, Route, by_path
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events

GOLDEN = Path(__file__).parent / "golden"
ROUNDS = 60
SHARED = by_path(DIALECTS)
ROUTES = [
    pytest.param(dialect, route, id=f"{dialect.name} {route.paths[0]}")
    for dialect in DIALECTS
    for route in dialect.routes
    if route.method == "POST"
]


def own_path(route: Route) -> str:
    """A path that no other dialect answers."""
    return next(path for path in route.paths if len(SHARED[path, "POST"]) == 1)


def meant(route: Route) -> list[dict[str, Any]]:
    """Bodies that the golden files send to a route, and the models that they ask."""
    files = [json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/*.json"))]
    asked = [one for one in files if one.get("ask", "POST /v1/embeddings").removeprefix("POST ") in route.paths]
    fitting = [one for one in asked if fits(route, one["request"])]
    return [one for one in fitting if one["status"] == 200] or fitting


def fits(route: Route, body: dict[str, Any]) -> bool:
    """Whether a body is of a route's type."""
    try:
        msgspec.convert(body, route.body)
    except msgspec.ValidationError:
        return False
    return True


def check(dialect: Dialect, body: bytes, reply: httpx.Response) -> None:
    """Whether a reply is an answer, or an error of the caller in the dialect's own form."""
    assert reply.status_code in {200, 400, 404, 422, 424}, (body, reply.text)
    if reply.status_code == 200 and reply.headers["content-type"] == "application/octet-stream":
        return
    given = reply.json()
    if reply.status_code != 200:
        msgspec.convert(given, dialect.error)
        assert set(given) <= set(dialect.error.__struct_fields__), body


@pytest.mark.parametrize(("dialect", "route"), ROUTES)
async def test_no_body_breaks_a_route(
    serve: Serve, tiny_spec: ModelSpec, events: Events, dialect: Dialect, route: Route
) -> None:
    """Broken bodies give whole answers or errors of the caller in the form of the dialect whose path it is."""
    rng = random.Random(route.paths[0])
    golden = meant(route)
    assert golden, "no golden file asks this route"
    models = [serve(*one, token_ids="native") for one in fakes(tiny_spec, *golden[0].get("serves", ["tiny"]))]
    statuses = set()
    async with client_of(models, events) as client:
        for number in range(ROUNDS):
            body = mutant(rng, golden[number % len(golden)]["request"])
            reply = await client.post(own_path(route).format(model=models[0].name), content=body, headers=JSON)
            check(dialect, body, reply)
            statuses.add(reply.status_code)
    assert len(statuses) > 1


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"5", b'"a"', b"\xff", b"{}", b"[" * 100_000])
async def test_what_is_no_body(
    serve: Serve, tiny_spec: ModelSpec, events: Events, dialect: Dialect, content: bytes
) -> None:
    """What is no JSON, or none of the type, is the caller's error in each dialect's form."""
    (one,) = fakes(tiny_spec, "tiny")
    async with client_of([serve(*one)], events) as client:
        for route in dialect.routes:
            if route.method == "POST":
                reply = await client.post(own_path(route).format(model=one[1]), content=content, headers=JSON)
                check(dialect, content, reply)
                assert reply.status_code != 200 or content == b"{}"
