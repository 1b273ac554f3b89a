"""TEI's gRPC service, over a real channel: the answers of the HTTP dialect in messages."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from edge import KINDS, fakes
from grpc_edge import Code, embed, failure, of, registry_of, rpc, served

from conftest import Serve, client_of
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.engine.fake import FakeEngine
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events
from vecmill.serving.served import ServedModel

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
        *("tiny", "Tokenize", pb.EncodeRequest(inputs="cat 😀 [SEP] on", add_special_tokens=True)),
        *("/tokenize", {"inputs": "cat 😀 [SEP] on"}, tokens),
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


@pytest.mark.parametrize("same", SAME, ids=lambda same: f"{same[1]}-{same[4]}"[:50])
async def test_answers_are_those_of_http(channel: Any, http: httpx.AsyncClient, same: tuple[Any, ...]) -> None:
    """Each rpc gives the numbers that its route gives, and counts the same characters and tokens."""
    model, name, message, path, body, shown = same
    call = rpc(channel, name)(message, **of(model))
    reply = await call
    there = await http.post(path, json=body | {"model": model})
    assert there.status_code == 200, there.text
    assert equal(shown(reply), there.json())
    heads = dict(await call.initial_metadata())
    for header in ("x-compute-characters", "x-compute-tokens"):
        assert heads.get(header) == there.headers.get(header)
    if "x-compute-tokens" in heads:
        assert reply.metadata.compute_tokens == int(heads["x-compute-tokens"])
        assert reply.metadata.compute_chars == int(heads["x-compute-characters"])
        assert reply.metadata.total_time_ns > 0


def equal(one: Any, other: Any) -> bool:
    """Whether two trees are equal, numbers as float32."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(np.float32(one) == np.float32(other)) if isinstance(one, float) else bool(one == other)


REFUSALS: list[tuple[str, str, Any, grpc.StatusCode, str]] = [
    ("tiny", "Embed", embed(""), Code.INVALID_ARGUMENT, "inputs is an empty string"),
    ("tiny", "Embed", embed(LONG), Code.INVALID_ARGUMENT, "inputs[0] has more than 40 tokens"),
    ("tiny", "Embed", embed("a", dimensions=0), Code.INVALID_ARGUMENT, "dimensions is 0"),
    ("tiny", "Embed", embed("a", prompt_name="nope"), Code.INVALID_ARGUMENT, "prompt_name is 'nope'"),
    ("tiny", "Embed", embed("a", prompt_name="é" * 9000), Code.INVALID_ARGUMENT, "prompt_name is 'é"),
    ("tiny", "Embed", embed("a", truncation_direction=2), Code.INVALID_ARGUMENT, "truncation_direction is 2"),
    ("tiny", "Predict", pb.PredictRequest(inputs="a"), Code.FAILED_PRECONDITION, "model 'tiny' gives dense"),
    ("judge", "Embed", embed("a"), Code.FAILED_PRECONDITION, "model 'judge' gives scores, not dense"),
    ("moods", "PredictPair", pb.PredictPairRequest(), Code.INVALID_ARGUMENT, "inputs holds a list of 0 strings"),
    (
        *("moods", "PredictPair", pb.PredictPairRequest(inputs=["a", "b", "c"])),
        *(Code.INVALID_ARGUMENT, "inputs holds a list of 3 strings"),
    ),
    ("judge", "Rerank", pb.RerankRequest(query="a"), Code.INVALID_ARGUMENT, "texts is empty"),
    (
        *("judge", "Rerank", pb.RerankRequest(query="a", texts=["b"] * 33)),
        *(Code.INVALID_ARGUMENT, "batch size 33 > maximum allowed batch size 32"),
    ),
    ("tiny", "Decode", pb.DecodeRequest(), Code.INVALID_ARGUMENT, "ids is an empty list"),
    ("nobody", "Embed", embed("a"), Code.NOT_FOUND, "model 'nobody' is not served here"),
]
"""Model, rpc, message, code, and how the details begin."""


@pytest.mark.parametrize(("model", "name", "message", "code", "details"), REFUSALS)
async def test_refusals(channel: Any, model: str, name: str, message: Any, code: grpc.StatusCode, details: str) -> None:
    """What HTTP refuses is refused with TEI's code for it, in words that fit into a trailer."""
    error = await failure(rpc(channel, name)(message, **of(model)))
    assert (error.code(), error.details()[: len(details)]) == (code, details)
    assert len(error.details()) <= 500


async def test_bytes_that_are_no_message(channel: Any) -> None:
    """What does not parse is the caller's fault."""
    call = channel.unary_unary("/tei.v1.Embed/Embed")
    for given in (b"\x0a\x05a", b"\x0a\x01\xff"):
        assert (await failure(call(given))).code() == Code.INVALID_ARGUMENT


async def test_an_rpc_that_there_is_not(channel: Any) -> None:
    """An unknown name is UNIMPLEMENTED."""
    assert (await failure(channel.unary_unary("/tei.v1.Embed/Imbed")(b""))).code() == Code.UNIMPLEMENTED


@pytest.mark.parametrize(("name", "kind"), [("tiny", 0), ("words", 0), ("late", 0), ("moods", 1), ("judge", 2)])
async def test_info(channel: Any, http: httpx.AsyncClient, name: str, kind: int) -> None:
    """The facts of /info, with the type of the model; what has no value is absent."""
    reply = await rpc(channel, "Info")(pb.InfoRequest(), **of(name))
    told = (await http.get("/info", params={"model": name})).json()
    assert reply.model_type == kind
    for field in reply.DESCRIPTOR.fields:
        if field.name != "model_type":
            given = getattr(reply, field.name) if not field.has_presence or reply.HasField(field.name) else None
            assert given == told[field.name], field.name


async def test_the_only_model_needs_no_name(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Where one model is served nothing names it; headers tell the request's id and what was cut and remembered."""
    async with served(registry_of(serve(fake)), events) as (_, channel):
        call = rpc(channel, "Embed")(embed("hello"), metadata=(("x-request-id", "mine"),))
        assert len((await call).embeddings) == 16
        heads = dict(await call.initial_metadata())
        assert (heads["x-request-id"], heads["x-vecmill-cached"], heads["x-compute-type"]) == ("mine", "0", "vecmill")
        for cached, metadata in (("0", (("cache-control", "no-store"),)), ("1", ())):
            call = rpc(channel, "Embed")(embed("hello"), metadata=metadata)
            assert dict(await call.initial_metadata())["x-vecmill-cached"] == cached


async def test_an_engine_that_fails(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A failure of the engine is TEI's code for its backend."""
    fake.faults[6] = "raise"
    async with served(registry_of(serve(fake)), events) as (_, channel):
        assert (await failure(rpc(channel, "Embed")(embed("cat")))).code() == Code.FAILED_PRECONDITION


async def test_metrics_are_those_of_http(channel: Any, http: httpx.AsyncClient) -> None:
    """Calls count beside HTTP's requests, under their own route, with the status that HTTP has for it."""
    await rpc(channel, "Embed")(embed("a"), **of("tiny"))
    await failure(rpc(channel, "Embed")(embed("a", dimensions=0), **of("tiny")))
    page = (await http.get("/metrics")).text
    for status in ("200", "422"):
        assert f'vecmill_requests_total{{model="tiny",route="/tei.v1.Embed/Embed",status="{status}"}} 1.0' in page
    assert 'vecmill_inputs_total{model="tiny",tenant=""} 1.0' in page
