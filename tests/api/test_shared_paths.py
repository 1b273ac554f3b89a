"""Paths that several dialects answer: which one does, by the body's keys."""

from typing import Any

import httpx
import msgspec
import pytest

from vecmill.api.app import DIALECTS
from vecmill.api.decode import keys_of
from vecmill.api.dialect import by_path

SHARED = by_path(DIALECTS)

BODIES: list[tuple[str, Any, str]] = [
    ("/v1/embeddings", {"model": "m", "input": "a"}, "OpenAI"),
    ("/v1/embeddings", {"model": "m", "input": ["a"], "encoding_format": "base64", "dimensions": None}, "OpenAI"),
    ("/v1/embeddings", {"model": "m", "input": ["a"], "input_type": "query"}, "OpenAI"),
    ("/v1/embeddings", {"input": "a", "truncate": True, "prompt_name": "query"}, "OpenAI"),
    ("/v1/embeddings", {"input": ["a"], "task": "text-matching"}, "Jina"),
    ("/v1/embeddings", {"input": [{"text": "a"}]}, "Jina"),
    ("/v1/embeddings", {"input": ["a"], "embedding_type": "binary"}, "Jina"),
    ("/v1/embeddings", {"input": "a", "input_type": None, "truncation": True}, "Voyage"),
    ("/v1/embeddings", {"input": "a", "input_type": "query", "output_dtype": "int8"}, "Voyage"),
    ("/v1/embeddings", {"input": "a", "output_dtype": "int8"}, "Mistral"),
    ("/v1/embeddings", {"input": "a", "output_dimension": 2}, "Mistral"),
    ("/v1/embeddings", {"input": "a", "input_type": "passage"}, "NVIDIA"),
    ("/v1/embeddings", {"input": "a", "input_type": "query", "truncate": "END"}, "NVIDIA"),
    ("/v1/embeddings", {"input": "a", "truncate_prompt_tokens": 5}, "vLLM"),
    ("/v1/embeddings", {"messages": [], "model": "m"}, "vLLM"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "bytes_only"}, "vLLM"),
    ("/v1/embeddings", {"input": "a", "modality": "image"}, "Infinity"),
    ("/embeddings", {"input": "a", "model": "default/not-specified"}, "Infinity"),
    ("/embeddings", {"input": "a", "output_dimension": 2}, "Infinity"),
    ("/embeddings", {"input": "a", "model": "m"}, "OpenAI"),
    ("/rerank", {"query": "a", "texts": ["b"], "raw_scores": False}, "Text Embeddings Inference"),
    ("/rerank", {"query": "a", "documents": ["b"], "model": "m", "top_n": 2}, "Infinity"),
    ("/rerank", {"query": "a", "documents": ["b"], "truncate_prompt_tokens": 5}, "vLLM"),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "model": "m", "top_n": 2}, "Jina"),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "model": "m", "top_k": 2}, "Voyage"),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "rank_fields": ["text"]}, "Cohere"),
    ("/v2/rerank", {"query": "a", "documents": ["b"], "model": "m", "priority": 0}, "Cohere"),
    ("/v2/rerank", {"query": "a", "documents": ["b"], "truncation_side": "left"}, "vLLM"),
    ("/classify", {"input": ["a"]}, "Infinity"),
    ("/classify", {"input": "a", "truncate_prompt_tokens": 5}, "vLLM"),
    ("/rerank", {"query": "a", "documents": ["b"], "property": ""}, "Weaviate"),
    ("/rerank", {"query": "a", "property": "b"}, "Weaviate"),
    ("/rerank", {"query": "a", "documents": ["b"], "property": "", "model": "m"}, "Infinity"),
    ("/v1/classify", {"input": ["a"]}, "Infinity"),
    ("/v1/classify", {"input": ["a"], "labels": ["b"]}, "Jina"),
    ("/v1/classify", {"input": ["a"], "classifier_id": "b"}, "Jina"),
    ("/tokenize", {"inputs": "a"}, "Text Embeddings Inference"),
    ("/tokenize", {"prompt": "a"}, "vLLM"),
    ("/rerank", {"query": "a", "property": "b", "model": None}, "Weaviate"),
    ("/v1/embeddings", {"input": "a", "dimensions": 3, "output_dimension": None}, "OpenAI"),
    ("/invocations", {"input": ["a"], "model": "m"}, "OpenAI"),
    ("/invocations", {"inputs": "a"}, "Text Embeddings Inference"),
    ("/invocations", {"inputs": "a", "input": "a"}, "Text Embeddings Inference"),
    ("/invocations", {"query": "a", "texts": ["b"]}, "Text Embeddings Inference"),
    ("/invocations", [], "Text Embeddings Inference"),
    ("/v1/rerank", [], "Jina"),
]

FIRST: dict[str, dict[str, Any]] = {}
"""Of each path a body that the dialect answers which takes the rest."""
for _path, _body, _name in BODIES:
    if isinstance(_body, dict) and _name == SHARED[_path, "POST"][-1][0].name:
        FIRST.setdefault(_path, _body)

KEYS = sorted({key for _, body, _ in BODIES for key in body})


def chosen(path: str, body: Any, headers: dict[str, str] | None = None) -> str:
    """The name of the dialect that answers."""
    *others, last = SHARED[path, "POST"]
    keys = keys_of(msgspec.json.encode(body))
    return next((d.name for d, route in others if route.when and route.when(keys, headers or {})), last[0].name)


@pytest.mark.parametrize(("path", "body", "name"), BODIES)
def test_a_body_finds_its_dialect(path: str, body: Any, name: str) -> None:
    """A body of a dialect's own keys is that dialect's; one without goes to the path's own."""
    assert chosen(path, body) == name


@pytest.mark.parametrize("path", FIRST)
def test_null_is_absent(path: str) -> None:
    """A key whose value is null says nothing of whose body it is, wherever it stands."""
    body = FIRST[path]
    for key in set(KEYS) - body.keys():
        assert chosen(path, {**body, key: None}) == chosen(path, {key: None, **body}) == chosen(path, body), key


def test_cohere_is_known_by_its_sdk() -> None:
    """A body that could be anyone's is Cohere's where its SDK says so."""
    body = {"query": "a", "documents": ["b"], "model": "m"}
    assert chosen("/v1/rerank", body, {"x-fern-sdk-name": "cohere"}) == "Cohere"


async def test_a_null_key_changes_no_answer(client: httpx.AsyncClient) -> None:
    """So its numbers are those of the body without it."""
    body = {"model": "tiny", "input": "the cat", "dimensions": 3}
    replies = [await client.post("/v1/embeddings", json=body | more) for more in ({}, {"output_dimension": None})]
    assert replies[0].json() == replies[1].json()
    assert len(replies[0].json()["data"][0]["embedding"]) == 3


def test_mistral_is_known_by_its_sdk() -> None:
    """So is Mistral's, which cannot read an answer without an id."""
    headers = {"user-agent": "mistral-client-python/3.7.0"}
    assert chosen("/v1/embeddings", {"input": ["a"], "model": "m"}, headers) == "Mistral"


def test_one_takes_the_rest() -> None:
    """On a shared path exactly one dialect takes what no other knows, and it is asked last."""
    for (path, _), choices in SHARED.items():
        if len(choices) > 1:
            assert [route.when is None for _, route in choices] == [False] * (len(choices) - 1) + [True], path


BASES = {
    "Cohere": "/cohere",
    "Infinity": "/infinity",
    "Jina": "/jina",
    "Mistral": "/mistral",
    "NVIDIA": "/nvidia",
    "OpenAI": "/openai",
    "Text Embeddings Inference": "/tei",
    "Voyage": "/voyage",
    "vLLM": "/vllm",
    "Weaviate": "/weaviate",
}
"""What the paths of a dialect begin with that it alone answers."""


@pytest.mark.parametrize("name", BASES)
def test_a_base_url_has_all_routes_of_its_dialect(name: str) -> None:
    """A client that is given such a base URL finds everything under it that it finds without."""
    (dialect,) = [one for one in DIALECTS if one.name == name]
    for route in dialect.routes:
        bare = [path for path in route.paths if f"/{path.split('/')[1]}" not in BASES.values()]
        there = {path: SHARED.get((BASES[name] + path, route.method), []) for path in bare}
        assert [path for path, choices in there.items() if {one.name for one, _ in choices} != {name}] == []


def test_every_route_has_a_path_of_its_own() -> None:
    """Whoever does not want to be told apart by keys finds a path that no other dialect answers."""
    for dialect in DIALECTS:
        for route in dialect.routes:
            assert [path for path in route.paths if len(SHARED[path, route.method]) == 1], (dialect.name, route.paths)
