"""TEI's gRPC service, over a real channel: the answers of the HTTP dialect in messages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from edge import KINDS, fakes, until
from grpc_edge import registry_of, rpc, served
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from conftest import Serve, client_of, distinct
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.grpc.calls import IN_FLIGHT
from vecmill.engine.fake import FakeEngine
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Event, Events, RequestDone
from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel

Code = grpc.StatusCode
LONG = "the cat sat on the mat " * 20
LEFT = {"truncation_direction": "left"}


@pytest.fixture
def models(serve: Serve, tiny_spec: ModelSpec) -> list[ServedModel]:
    """A model of each kind."""
    return [serve(*one, max_inputs=32) for one in fakes(tiny_spec, *KINDS)]


@pytest.fixture
async def channel(models: list[ServedModel], events: Events) -> AsyncIterator[Any]:
    """A channel to a server of all of them."""
    async with served(registry_of(*models), events) as (_, one):
        yield one


@pytest.fixture
async def http(models: list[ServedModel], events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the same models."""
    async with client_of(models, events) as one:
        yield one


def of(model: str, **more: str) -> dict[str, Any]:
    """The metadata that names a model, for `rpc(...)(message, **of("tiny"))`."""
    return {
        "metadata": tuple(
            ({"x-model": model} | {name.replace("_", "-"): value for name, value in more.items()}).items()
        )
    }


def embed(text: str, **more: Any) -> pb.EmbedRequest:
    """A request for a vector."""
    return pb.EmbedRequest(inputs=text, **more)


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """The error that a call, or a stream, ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await _all(call) if hasattr(call, "__aiter__") else await call
    return failed.value


async def _all(call: Any) -> list[Any]:
    return [reply async for reply in call]


def vectors(reply: Any) -> Any:
    """As JSON has them."""
    return [list(reply.embeddings)]


def sparse(reply: Any) -> Any:
    """As JSON has them."""
    return [[{"index": one.index, "value": one.value} for one in reply.sparse_embeddings]]


def token_vectors(reply: Any) -> Any:
    """As JSON has them."""
    return [[list(one.embeddings) for one in reply.token_embeddings]]


def predictions(reply: Any) -> Any:
    """As JSON has them."""
    return [{"score": one.score, "label": one.label} for one in reply.predictions]


def ranks(reply: Any) -> Any:
    """As JSON has them."""
    texts = [{"text": one.text} if one.HasField("text") else {} for one in reply.ranks]
    return [{"index": one.index} | text | {"score": one.score} for one, text in zip(reply.ranks, texts, strict=True)]


def tokens(reply: Any) -> Any:
    """As JSON has them."""
    return [
        [
            {"id": one.id, "text": one.text, "special": one.special}
            | {name: getattr(one, name) if one.HasField(name) else None for name in ("start", "stop")}
            for one in reply.tokens
        ]
    ]


def text(reply: Any) -> Any:
    """As JSON has it."""
    return [reply.text]


SAME: list[tuple[str, str, Any, str, dict[str, Any], Callable[[Any], Any]]] = [
    ("tiny", "Embed", embed("hello world"), "/embed", {"inputs": "hello world"}, vectors),
    ("tiny", "Embed", embed("a", normalize=False), "/embed", {"inputs": "a", "normalize": False}, vectors),
    ("tiny", "Embed", embed("a", dimensions=4), "/embed", {"inputs": "a", "dimensions": 4}, vectors),
    ("tiny", "Embed", embed("a", prompt_name="query"), "/embed", {"inputs": "a", "prompt_name": "query"}, vectors),
    ("tiny", "Embed", embed(LONG, truncate=True), "/embed", {"inputs": LONG}, vectors),
    (
        *("tiny", "Embed", embed(LONG, truncate=True, truncation_direction=1)),
        *("/embed", {"inputs": LONG, **LEFT}, vectors),
    ),
    ("words", "EmbedSparse", pb.EmbedSparseRequest(inputs="a b a"), "/embed_sparse", {"inputs": "a b a"}, sparse),
    ("late", "EmbedAll", pb.EmbedAllRequest(inputs="hello cat"), "/embed_all", {"inputs": "hello cat"}, token_vectors),
    ("moods", "Predict", pb.PredictRequest(inputs="a cat"), "/predict", {"inputs": "a cat"}, predictions),
    (
        *("moods", "Predict", pb.PredictRequest(inputs="a cat", raw_scores=True)),
        *("/predict", {"inputs": "a cat", "raw_scores": True}, predictions),
    ),
    ("moods", "PredictPair", pb.PredictPairRequest(inputs=["a", "b"]), "/predict", {"inputs": ["a", "b"]}, predictions),
    ("moods", "PredictPair", pb.PredictPairRequest(inputs=["a"]), "/predict", {"inputs": ["a"]}, predictions),
    (
        *("judge", "Rerank", pb.RerankRequest(query="a", texts=["b", "c d", "e"], return_text=True)),
        *("/rerank", {"query": "a", "texts": ["b", "c d", "e"], "return_text": True}, ranks),
    ),
    (
        *("judge", "Rerank", pb.RerankRequest(query="a", texts=["b", "c d"], raw_scores=True)),
        *("/rerank", {"query": "a", "texts": ["b", "c d"], "raw_scores": True}, ranks),
    ),
    (
        *("tiny", "Tokenize", pb.EncodeRequest(inputs="é cat")),
        *("/tokenize", {"inputs": "é cat", "add_special_tokens": False}, tokens),
    ),
    (
        *("tiny", "Tokenize", pb.EncodeRequest(inputs="a", add_special_tokens=True, prompt_name="query")),
        *("/tokenize", {"inputs": "a", "prompt_name": "query"}, tokens),
    ),
    (
        "tiny",
        "Decode",
        pb.DecodeRequest(ids=[2, 6, 3]),
        "/decode",
        {"ids": [2, 6, 3], "skip_special_tokens": False},
        text,
    ),
    ("tiny", "Decode", pb.DecodeRequest(ids=[2, 6], skip_special_tokens=True), "/decode", {"ids": [2, 6]}, text),
]
"""Model, rpc, message, and the path and body that ask the same over HTTP; and what makes the message's JSON."""


@pytest.mark.parametrize(("model", "name", "message", "path", "body", "shown"), SAME)
async def test_answers_are_those_of_http(
    channel: Any, http: httpx.AsyncClient, model: str, name: str, message: Any, path: str, body: Any, shown: Any
) -> None:
    """Each rpc gives the numbers that its route gives, and counts the same characters and tokens."""
    call = rpc(channel, name)(message, **of(model))
    reply = await call
    same = await http.post(path, json=body | {"model": model})
    assert same.status_code == 200, same.text
    assert (
        shown(reply) == pytest.approx(np.float32(same.json()))
        if shown is vectors
        else _close(shown(reply), same.json())
    )
    heads = dict(await call.initial_metadata())
    for header in ("x-compute-characters", "x-compute-tokens"):
        assert heads.get(header) == same.headers.get(header)
    if "x-compute-tokens" in heads:
        assert reply.metadata.compute_tokens == int(heads["x-compute-tokens"])
        assert reply.metadata.compute_chars == int(heads["x-compute-characters"])
        assert reply.metadata.total_time_ns > 0


def _close(one: Any, other: Any) -> bool:
    """Whether two trees are equal, numbers as float32."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(np.float32(one) == np.float32(other)) if isinstance(one, float) else bool(one == other)
