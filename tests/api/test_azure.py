"""Azure's paths: the deployment is the served name."""

import pytest
from edge import error_of

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

VERSION = {"api-version": "2024-02-01"}


@pytest.mark.parametrize("body", [{}, {"model": "text-embedding-3-small"}, {"model": None}])
async def test_the_path_names_the_model(
    serve: Serve, fake: FakeEngine, events: Events, body: dict[str, str | None]
) -> None:
    """The model is the path's, slashes included, whether the body names none or another."""
    async with client_of([serve(fake, "org/one"), serve(FakeEngine(fake.spec), "two")], events) as client:
        for name in ("org/one", "two"):
            path = f"/openai/deployments/{name}/embeddings"
            reply = await client.post(path, json={"input": "hello", **body}, params=VERSION)
            assert reply.status_code == 200, reply.text
            assert reply.json()["model"] == name
        reply = await client.post("/openai/deployments/three/embeddings", json={"input": "hello"})
        assert error_of(reply, 404)["code"] == "model_not_found"
