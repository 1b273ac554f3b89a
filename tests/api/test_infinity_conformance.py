"""What Infinity's own end-to-end tests ask of a server, but for what is left out on purpose.

Left out: its limit of 122,880 characters (long texts are cut to the model's limit here), pictures and sounds. Equality
with sentence-transformers is in tests/reference, its client and OpenAI's in tests/clients.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from itertools import permutations
from typing import Any

import httpx
import numpy as np
import pytest
from edge import fakes

from conftest import Serve, client_of, distinct
from vecmill.api.dialects.infinity import UNNAMED
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events

KEY = "a secret"
COMMON = {"model", "usage", "id", "created", "object"}


@pytest.fixture
async def infinity(serve: Serve, tiny_spec: ModelSpec, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application with an embedding model, a reranker and a classifier, under Infinity's prefix."""
    models = [serve(), *(serve(engine, name) for engine, name in fakes(tiny_spec, "judge", "moods"))]
    async with client_of(models, events) as one:
        one.base_url = httpx.URL("http://test/infinity")
        yield one


async def vectors(client: httpx.AsyncClient, texts: str | list[str], **more: Any) -> list[Any]:
    """The vectors of an answer whose form is right."""
    reply = await client.post("/embeddings", json={"model": "tiny", "input": texts, **more})
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    assert answer.keys() == COMMON | {"data"}
    assert answer["model"] == "tiny"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] > 0
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return [one["embedding"] for one in answer["data"]]


async def test_the_models(infinity: httpx.AsyncClient) -> None:
    """The models in the order in which they were named, each with its queue; /health tells the time."""
    models = (await infinity.get("/models")).json()["data"]
    assert [one["id"] for one in models] == ["tiny", "judge", "moods"]
    assert [type(one["stats"]) for one in models] == [dict] * 3
    assert (await infinity.get("http://test/health")).json()["unix"] > 1.7e9


async def test_base64_holds_the_same_numbers(infinity: httpx.AsyncClient) -> None:
    """Base64 is of exactly the numbers that the other form shows."""
    numbers = await vectors(infinity, ["the cat", "a dog"])
    packed = await vectors(infinity, ["the cat", "a dog"], encoding_format="base64")
    found = [np.frombuffer(base64.b64decode(one), "<f4") for one in packed]
    assert np.array_equal(np.array(numbers, np.float32), found)


async def test_one_text_and_two(infinity: httpx.AsyncClient) -> None:
    """A string is one input; each of a list has its own vector, the one that it has alone."""
    (alone,) = await vectors(infinity, "hello world")
    both = await vectors(infinity, ["hello world", "the cat"])
    assert len(both) == 2
    assert both[0] == alone != both[1]


async def test_many_at_once(infinity: httpx.AsyncClient) -> None:
    """Requests at the same time are all answered, each with its own vectors."""
    texts = distinct(256)
    parts = [texts[start : start + 8] for start in range(0, len(texts), 8)]
    answers = await asyncio.gather(*(vectors(infinity, part) for part in parts))
    assert [one for answer in answers for one in answer] == await vectors(infinity, texts)


async def test_leading_numbers(infinity: httpx.AsyncClient) -> None:
    """`dimensions` leaves the first numbers as they are."""
    (whole,), (cut,) = await vectors(infinity, "the cat"), await vectors(infinity, "the cat", dimensions=10)
    assert cut == whole[:10]


async def test_the_paths_are_documented(infinity: httpx.AsyncClient) -> None:
    """The OpenAPI document has what Infinity's has, but for /health's and /models' place."""
    paths = (await infinity.get("http://test/openapi.json")).json()["paths"]
    assert paths.keys() >= {"/embeddings", "/rerank", "/classify", "/models", "/health", "/metrics"}


ASKED = [
    ("GET", "/models", None),
    ("POST", "/embeddings", {"model": "tiny", "input": "the cat"}),
    ("POST", "/rerank", {"model": "judge", "query": "the cat", "documents": ["a dog"]}),
    ("POST", "/classify", {"model": "moods", "input": ["the cat"]}),
]


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
async def test_the_key(
    serve: Serve, tiny_spec: ModelSpec, events: Events, method: str, path: str, body: dict[str, Any] | None
) -> None:
    """Without the key, or with another, it is 401; with it 200."""
    models = [serve(), *(serve(engine, name) for engine, name in fakes(tiny_spec, "judge", "moods"))]
    async with client_of(models, events, api_key=KEY) as client:
        for key, status in ((None, 401), ("another", 401), (KEY, 200)):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            for prefix in ("", "/infinity"):
                reply = await client.request(method, prefix + path, json=body, headers=headers)
                assert reply.status_code == status, reply.text


DOCUMENTS = ["a dog", "the cat sat", "hello world"]


@pytest.mark.parametrize("top", [1, 2, 8000, None])
@pytest.mark.parametrize("returned", [True, False])
async def test_rankings(infinity: httpx.AsyncClient, top: int | None, *, returned: bool) -> None:
    """However the documents stand, the best come first, as many as are wanted, with their places and texts."""
    best: set[str] = set()
    for documents in permutations(DOCUMENTS):
        body = {"model": "judge", "query": "the cat", "documents": documents, "return_documents": returned}
        answer = (await infinity.post("/rerank", json=body | ({"top_n": top} if top else {}))).json()
        assert answer.keys() == COMMON | {"results"}
        assert answer["usage"]["total_tokens"] > 0
        ranks = answer["results"]
        assert len(ranks) == min(top or 3, 3)
        scores = [one["relevance_score"] for one in ranks]
        assert scores == sorted(scores, reverse=True)
        assert [one["document"] for one in ranks] == [documents[one["index"]] if returned else None for one in ranks]
        best.add(documents[ranks[0]["index"]])
    assert len(best) == 1


async def test_labels(infinity: httpx.AsyncClient) -> None:
    """Each text has all labels, the likeliest first."""
    answer = (await infinity.post("/classify", json={"model": "moods", "input": ["the cat", "a dog"]})).json()
    assert answer.keys() == COMMON | {"data"}
    assert (answer["model"], answer["object"]) == ("moods", "classify")
    for row in answer["data"]:
        assert {one["label"] for one in row} == {"bad", "fair", "good"}
        assert [one["score"] for one in row] == sorted((one["score"] for one in row), reverse=True)
        assert sum(one["score"] for one in row) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/rerank", {"model": "judge", "query": "a", "documents": ["b"], "top_n": 0}, 422),
        ("/rerank", {"model": "judge", "query": "a", "documents": ["b"], "top_n": -1}, 422),
        ("/rerank", {"model": "judge", "query": "a", "documents": []}, 422),
        ("/embeddings", {"model": "tiny", "input": []}, 422),
        ("/embeddings", {"model": "tiny", "input": "a", "modality": "smell"}, 422),
        ("/embeddings", {"model": "tiny", "input": "a", "encoding_format": "gif"}, 422),
        ("/embeddings", {"model": "judge", "input": "a"}, 400),
        ("/classify", {"model": "judge", "input": ["a"]}, 200),  # a reranker's one label is its score
        ("/classify", {"model": "tiny", "input": ["a"]}, 400),
        ("/rerank", {"model": "tiny", "query": "a", "documents": ["b"]}, 400),
        ("/embeddings", {"model": "tiny", "input": "a", "dimensions": 99999}, 400),
        ("/embeddings", {"model": "unheard-of", "input": "a"}, 400),
    ],
)
async def test_refusals(infinity: httpx.AsyncClient, path: str, body: dict[str, Any], status: int) -> None:
    """What Infinity refuses is refused with its status: `detail` where the body is wrong, else `error`."""
    reply = await infinity.post(path, json=body)
    assert reply.status_code == status, reply.text
    if status != 200:
        assert list(reply.json()) == ["detail" if status == 422 else "error"]


async def test_a_client_that_names_no_model(serve: Serve, events: Events) -> None:
    """What Infinity's client sends for a model where it was told none is the only one."""
    async with client_of([serve()], events) as client:
        reply = await client.post("/embeddings", json={"model": UNNAMED, "input": "the cat"})
        assert (reply.status_code, reply.json()["model"]) == (200, "tiny")
        assert reply.json()["id"].startswith("infinity-")


async def test_any_name_is_that_of_the_only_model(serve: Serve, events: Events) -> None:
    """Where one model is served it answers to any name, under its own; on a path of several dialects it does not."""
    body = {"model": "text-embedding-3-small", "input": ["the cat"], "modality": "text"}
    async with client_of([serve()], events) as client:
        reply = await client.post("/infinity/embeddings", json=body)
        assert (reply.status_code, reply.json()["model"]) == (200, "tiny")
        assert (await client.post("/infinity/classify", json=body)).status_code == 400  # of another kind
        assert (await client.post("/embeddings", json=body)).status_code == 400
