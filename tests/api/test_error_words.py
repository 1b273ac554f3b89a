"""Errors name the fields that the caller sent."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from edge import fakes

from conftest import Serve, client_of
from vecmill.api.dialects.jina.scores import JinaClassifyBody, parse_classify
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events

LONG = "the cat sat on the mat " * 200
FIELDS: list[tuple[str, dict[str, Any], str]] = [
    (
        "/vllm/v1/embeddings",
        {"model": "tiny", "input": "a", "truncate_prompt_tokens": 1},
        "truncate_prompt_tokens is 1;",
    ),
    ("/pooling", {"model": "tiny", "input": "a", "truncate_prompt_tokens": 1}, "truncate_prompt_tokens is 1;"),
    (
        "/score",
        {"model": "judge", "text_1": "a", "text_2": "b", "truncate_prompt_tokens": 1},
        "truncate_prompt_tokens is",
    ),
    ("/vllm/v1/embeddings", {"model": "tiny", "messages": [{"content": ""}]}, "messages[0] is an empty string"),
    (
        "/vllm/rerank",
        {"model": "judge", "query": "a", "documents": ["b"], "max_tokens_per_doc": -1},
        "max_tokens_per_doc is",
    ),
    (
        "/v2/rerank",
        {"model": "judge", "query": "a", "documents": ["b"], "max_tokens_per_doc": 0},
        "max_tokens_per_doc is 0;",
    ),
    (
        "/jina/v1/rerank",
        {"model": "judge", "query": "a", "documents": ["b"], "max_doc_length": -1},
        "max_doc_length is -1;",
    ),
    ("/v2/embed", {"model": "tiny", "texts": ["a"], "output_dimension": 0}, "output_dimension is 0;"),
    ("/v2/embed", {"model": "tiny", "inputs": [{"content": [{"text": ""}]}]}, "inputs[0] is an empty string"),
    ("/mistral/v1/embeddings", {"model": "tiny", "input": "a", "output_dimension": 0}, "output_dimension is 0;"),
    ("/mistral/v1/embeddings", {"model": "tiny", "input": "a", "dimensions": 0}, "dimensions is 0;"),
    ("/voyage/v1/embeddings", {"model": "tiny", "input": "a", "output_dimension": 0}, "output_dimension is 0;"),
    ("/voyage/v1/embeddings", {"model": "tiny", "input": "a", "dimensions": 0}, "dimensions is 0;"),
    ("/mistral/v1/embeddings", {"input": "a", "output_dimension": 3, "dimensions": "x"}, 'dimensions is "x";'),
    ("/infinity/embeddings", {"model": "tiny", "input": "a", "output_dimension": 99}, "output_dimension is 99;"),
    ("/weaviate/tiny/vectors", {"text": "a", "config": {"dimensions": 99}}, "config.dimensions is 99;"),
    ("/weaviate/judge/rerank", {"query": "", "property": ""}, "documents is empty"),
    ("/nvidia/v1/embeddings", {"model": "tiny", "input": "a", "dimensions": 99}, "dimensions is 99;"),
    (
        "/similarity",
        {"model": "tiny", "inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {"prompt_name": "x"}},
        "parameters.prompt_name is 'x';",
    ),
    (
        "/qdrant/inference",
        {"inputs": [{"model": "tiny", "data": "a", "options": {"dimensions": 99}}]},
        "options.dimensions is 99;",
    ),
]
PLACES: list[tuple[str, dict[str, Any], str]] = [
    ("/vllm/rerank", {"model": "tiny", "query": "", "documents": ["b"]}, "query is an empty string;"),
    ("/vllm/rerank", {"model": "tiny", "query": "a", "documents": ["b", ""]}, "documents[1] is an empty string;"),
    ("/vllm/rerank", {"model": "tiny", "query": "a", "documents": ["b", LONG]}, "documents[1] has more than 40 tokens"),
    ("/vllm/rerank", {"model": "judge", "query": "", "documents": ["b", ""]}, "documents[1] is a pair of empty texts;"),
    ("/vllm/rerank", {"model": "late", "query": LONG, "documents": ["b"]}, "query has more than 40 tokens"),
    ("/vllm/rerank", {"model": "late", "query": "a", "documents": ["b", LONG]}, "documents[1] has more than 40 tokens"),
    ("/score", {"model": "tiny", "text_1": "a", "text_2": ["b", ""]}, "text_2[1] is an empty string;"),
    ("/score", {"model": "tiny", "text_1": "", "text_2": ["b"]}, "text_1 is an empty string;"),
    ("/score", {"model": "tiny", "queries": ["a", ""], "items": ["b", "c"]}, "queries[1] is an empty string;"),
    ("/score", {"model": "judge", "data_1": "", "data_2": ["b", ""]}, "data_2[1] is a pair of empty texts;"),
    ("/score", {"model": "late", "text_1": LONG, "text_2": "b"}, "text_1 has more than 40 tokens"),
    (
        "/similarity",
        {"model": "tiny", "inputs": {"source_sentence": "a", "sentences": ["b", ""]}},
        "inputs.sentences[1] is an empty string;",
    ),
    (
        "/",
        {"model": "tiny", "inputs": {"source_sentence": "", "sentences": ["b"]}},
        "inputs.source_sentence is an empty string;",
    ),
    ("/", {"model": "judge", "query": "", "texts": ["a", ""]}, "texts[1] is a pair of empty texts;"),
    ("/", {"model": "tiny", "inputs": ["a", ""]}, "inputs[1] is an empty string;"),
    ("/weaviate/judge/rerank", {"query": "", "documents": ["a", ""]}, "documents[1] is a pair of empty texts;"),
    ("/v1/contextualizedembeddings", {"model": "tiny", "inputs": [["a"], ["b", " "]]}, "inputs[1][1] holds no token"),
    (
        "/qdrant/inference",
        {"inputs": [{"model": "late", "data": "a"}, {"model": "tiny", "data": "a"}, {"model": "tiny", "data": ""}]},
        "inputs[2] is an empty string;",
    ),
]


@pytest.fixture
async def every(serve: Serve, tiny_spec: ModelSpec, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an embedding model, a reranker and a late-interaction model."""
    models = [serve(*one) for one in fakes(tiny_spec, "tiny", "judge", "late")]
    async with client_of(models, events) as one:
        yield one


def told(value: Any) -> list[str]:
    """Every string of an error."""
    if isinstance(value, dict):
        return [one for each in value.values() for one in told(each)]
    if isinstance(value, list):
        return [one for each in value for one in told(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(("path", "body", "message"), [*FIELDS, *PLACES])
async def test_an_error_names_what_was_sent(
    every: httpx.AsyncClient, path: str, body: dict[str, Any], message: str
) -> None:
    """Its message begins with the field, and the place in it, that the caller has to mend."""
    reply = await every.post(path, json=body)
    assert reply.status_code in {400, 422}, reply.text
    assert [one for one in told(reply.json()) if one.startswith(message)], reply.text


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "tiny", "input": "a", "truncate_prompt_tokens": 1}, "truncate_prompt_tokens"),
        ({"model": "tiny", "messages": [{"content": ""}]}, "messages"),
        ({"model": "tiny", "input": ""}, "input"),
    ],
)
async def test_the_param_is_the_field(every: httpx.AsyncClient, body: dict[str, Any], param: str) -> None:
    """Where an error has a place for the field's name, it is that of the caller too."""
    assert (await every.post("/vllm/v1/embeddings", json=body)).json()["error"]["param"] == param


def test_the_places_of_labels() -> None:
    """Labels are read after the texts, and are called labels."""
    request = parse_classify(JinaClassifyBody(input=["a", "b"], labels=["c", "d"]), {}).readings["embed"]()
    assert request.place is not None
    assert [request.place(number) for number in range(4)] == ["input[0]", "input[1]", "labels[0]", "labels[1]"]


async def test_the_param_of_a_place_is_its_field(every: httpx.AsyncClient) -> None:
    """The name of a place without its number."""
    reply = await every.post("/score", json={"model": "tiny", "text_1": "a", "text_2": ["b", ""]})
    assert reply.json()["error"]["param"] == "text_2"
