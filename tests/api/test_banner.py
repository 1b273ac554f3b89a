"""What the command prints when it is ready."""

import json
import re

import pytest
from edge import KINDS, fakes

from conftest import Serve, client_of
from vecmill.api import banner as banners
from vecmill.api import listen, server
from vecmill.api.banner import banner
from vecmill.config import Settings
from vecmill.errors import BadSettings
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import TASKS
from vecmill.serving.events import Events

FACTS = {
    "tiny": "16 dimensions, up to 40 tokens, mean, normalized, float32",
    "judge": "a reranker, up to 40 tokens, float32",
    "moods": "a classifier, up to 40 tokens, labels bad, fair, good, float32",
    "late": "vectors of tokens, up to 40 tokens, float32",
    "words": "sparse vectors, up to 40 tokens, float32",
}


@pytest.mark.parametrize("name", KINDS)
async def test_the_first_request_works(serve: Serve, tiny_spec: ModelSpec, events: Events, name: str) -> None:
    """Whatever the model is for, the line to copy asks for that and is answered."""
    models = [serve(*one) for one in fakes(tiny_spec, name)]
    text = banner("http://test", models)
    assert f"{name}: {FACTS[name]}" in text
    found = re.search(r"curl (\S+) .* -d '(.*)'", text)
    assert found
    async with client_of(models, events) as client:
        assert (await client.post(found[1], json=json.loads(found[2]))).status_code == 200


def test_grpc_has_its_line(serve: Serve) -> None:
    """Where gRPC is served too, the banner says where."""
    lines = banner("http://test", [serve()], "127.0.0.1:50051").splitlines()
    assert lines[1:3] == ["gRPC (tei.v1) is ready on 127.0.0.1:50051", ""]


def test_workers_have_their_line(serve: Serve) -> None:
    """Where several processes serve, the banner says how many."""
    lines = banner("http://test", [serve()], workers=3).splitlines()
    assert lines[1:3] == ["3 workers share the port", ""]


def test_grpc_without_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are not installed the start says how to get them."""
    monkeypatch.setattr(listen, "GRPC", ("grpc", "a_library_that_there_is_not"))
    with pytest.raises(
        BadSettings, match=re.escape("grpc_port is 0; gRPC needs more libraries: pip install 'vecmill[grpc]'")
    ):
        server.serve(["./nothing"], Settings(port=0, grpc_port=0))


def test_every_task_has_its_words() -> None:
    """Each task of a model has a name, a first request and an answer to what the model is."""
    assert (
        set(banners.TASKS)
        == set(banners.EXAMPLES)
        == set(TASKS)
        == {spec.get("task", "embed") for spec in KINDS.values()}
    )
