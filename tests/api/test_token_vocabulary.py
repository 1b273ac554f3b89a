"""The header that says whose token ids come, wherever ids may be given."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from edge import fakes

from conftest import Serve, client_of
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events

HEADER = "x-token-vocabulary"
IDS = [5, 6]
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"model": "tiny", "input": IDS}),
    ("/embed", {"model": "tiny", "inputs": IDS}),
    ("/embed_all", {"model": "tiny", "inputs": IDS}),
    ("/embed_sparse", {"model": "words", "inputs": IDS}),
    ("/", {"model": "tiny", "inputs": IDS}),
    ("/vllm/v1/embeddings", {"model": "tiny", "input": IDS}),
    ("/pooling", {"model": "tiny", "input": IDS}),
    ("/vllm/classify", {"model": "moods", "input": IDS}),
]
POSTS = pytest.mark.parametrize(("path", "body"), ROUTES)


@pytest.fixture
async def all_kinds(serve: Serve, tiny_spec: ModelSpec, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of models of several kinds that read ids by evidence, of which two ids hold none."""
    models = [serve(*one) for one in fakes(tiny_spec, "tiny", "words", "moods")]
    async with client_of(models, events) as one:
        yield one


@POSTS
async def test_the_header_declares_ids(all_kinds: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """Ids in doubt are read as declared, and the answer says so."""
    reply = await all_kinds.post(path, json=body, headers={HEADER: "native"})
    assert (reply.status_code, reply.headers.get(HEADER)) == (200, "native"), reply.text


@POSTS
async def test_the_header_counts(all_kinds: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """Where it refuses ids they are refused, and a value that it has not is the caller's error."""
    for value, message in (("reject", "token ids are not taken here"), ("gpt2", f"the header {HEADER} is 'gpt2'")):
        reply = await all_kinds.post(path, json=body, headers={HEADER: value})
        assert reply.status_code in {400, 422}
        assert message in reply.text


@POSTS
async def test_without_the_header(all_kinds: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """Ids of vLLM's clients are then the model's own, as there; others are refused where they are in doubt."""
    reply = await all_kinds.post(path, json=body)
    is_vllm = "vllm" in path or path == "/pooling"
    assert (reply.status_code == 200) == is_vllm
    assert is_vllm or f"{HEADER}: native or cl100k_base" in reply.text
