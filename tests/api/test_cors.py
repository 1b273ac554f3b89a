"""Pages from elsewhere: what a browser is told that asks for them."""

import httpx
import pytest
from edge import EMBEDDINGS

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

PAGE = "https://app.example.com"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}


@pytest.mark.parametrize("origins", [(PAGE, "http://localhost:3000"), ("*",)])
async def test_an_allowed_origin(serve: Serve, fake: FakeEngine, events: Events, origins: tuple[str, ...]) -> None:
    """Its scripts may send a key and read the answer with its headers; errors too."""
    async with client_of([serve(fake)], events, cors_origin=origins, api_key="a key") as client:
        before = await client.options(EMBEDDINGS, headers={"origin": PAGE} | ASKED)
        headers = {"origin": PAGE, "authorization": "Bearer a key"}
        answer = await client.post(EMBEDDINGS, json={"input": "the cat"}, headers=headers)
        refused = await client.post(EMBEDDINGS, json={"input": "the cat"}, headers={"origin": PAGE})
    assert before.status_code == 200
    assert "authorization" in before.headers["access-control-allow-headers"]
    assert "POST" in before.headers["access-control-allow-methods"]
    assert (answer.status_code, refused.status_code) == (200, 401)
    for reply in (before, answer, refused):
        assert reply.headers["access-control-allow-origin"] in {PAGE, "*"}
    assert answer.headers["access-control-expose-headers"] == "*"


@pytest.mark.parametrize("origins", [(), ("https://other.example.com",)])
async def test_another_origin(serve: Serve, fake: FakeEngine, events: Events, origins: tuple[str, ...]) -> None:
    """Its scripts are told nothing that a browser would let them read; who is no browser is answered as ever."""
    async with client_of([serve(fake)], events, cors_origin=origins) as client:
        before: httpx.Response = await client.options(EMBEDDINGS, headers={"origin": PAGE} | ASKED)
        answer = await client.post(EMBEDDINGS, json={"input": "the cat"}, headers={"origin": PAGE})
    assert before.status_code in {400, 405}
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in {*before.headers, *answer.headers}
