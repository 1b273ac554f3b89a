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
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from conftest import Serve, client_of, distinct
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.grpc.calls import IN_FLIGHT
from vecmill.api.grpc.rpcs import SERVICES
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


async def test_keys(serve: Serve, fake: FakeEngine, events: Events, seen: list[Event], tmp_path: Path) -> None:
    """A key is wanted for every rpc, wherever HTTP takes it; health and reflection need none."""
    (tmp_path / "tenants").write_text("[search]\nkeys = ['sk-1']\n")
    keys: dict[str, Any] = {"api_key": "main", "tenants": tmp_path / "tenants"}
    async with served(registry_of(serve(fake)), events, **keys) as (_, channel):
        ask = rpc(channel, "Embed")
        for metadata in ((), (("authorization", "Bearer no"),)):
            error = await failure(ask(embed("a"), metadata=metadata))
            assert (error.code(), "API key" in error.details()) == (Code.UNAUTHENTICATED, True)
        streams = rpc(channel, "EmbedStream"), rpc(channel, "RerankStream")
        assert [(await failure(stream(iter([])))).code() for stream in streams] == [Code.UNAUTHENTICATED] * 2
        for name, value in (("authorization", "Bearer main"), ("x-api-key", "sk-1")):
            await ask(embed("a"), metadata=((name, value),))
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    told = [(event.tenant, event.status) for event in seen if isinstance(event, RequestDone)]
    assert told == [("", 401)] * 4 + [("default", 200), ("search", 200)]


async def test_a_full_queue(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A unary call is refused with the time to come back; a stream waits, and is answered."""
    model = serve(fake, max_queue_tokens=5, result_cache_mb=0)
    first, second, third, *rest = distinct(8)
    async with served(registry_of(model), events) as (_, channel):
        ask = rpc(channel, "Embed")
        fake.gate.clear()
        calls = [ask(embed(first))]
        await until(lambda: any(lane.items for lane in model.runner._lanes))
        calls.append(ask(embed(second)))
        await until(lambda: model.runner.waiting_items == 1)
        error = await failure(ask(embed(third)))
        assert error.code() == Code.RESOURCE_EXHAUSTED
        trailers = dict(error.trailing_metadata())
        assert trailers["grpc-retry-pushback-ms"] == trailers["retry-after-ms"]
        stream = asyncio.create_task(_all(rpc(channel, "EmbedStream")(iter(map(embed, rest)))))
        await asyncio.sleep(0.05)
        fake.gate.set()
        assert len(await stream) == len(rest)
        await asyncio.gather(*calls)


@pytest.mark.parametrize("terms", [{"timeout": 0.2}, {"metadata": (("x-request-timeout", "0.05"),)}])
@pytest.mark.parametrize("name", ["Embed", "EmbedStream"])
async def test_a_call_has_its_time(
    serve: Serve, fake: FakeEngine, events: Events, seen: list[Event], name: str, terms: dict[str, Any]
) -> None:
    """A call that is not done by its deadline, or by its header, ends so, and nothing of it waits any more."""
    model = serve(fake, batch_tokens=5)
    async with served(registry_of(model), events) as (server, channel):
        fake.gate.clear()
        given = embed(LONG, truncate=True) if name == "Embed" else iter(map(embed, distinct(9)))
        assert (await failure(rpc(channel, name)(given, **terms))).code() == Code.DEADLINE_EXCEEDED
        await until(lambda: not server.busy)
        assert model.runner.waiting_items == 0
    assert [event.status for event in seen if isinstance(event, RequestDone)] == [504]


async def test_a_stream_is_answered_in_order(serve: Serve, fake: FakeEngine, events: Events, seen: list[Event]) -> None:
    """Answers come in the order of the messages, each before the stream has ended, and each counts as a request."""
    model = serve(fake)
    texts = distinct(300)
    async with served(registry_of(model), events) as (_, channel):
        stream = rpc(channel, "EmbedStream")()
        await stream.write(embed("hello"))
        assert len((await stream.read()).embeddings) == 16
        replies = await _all(rpc(channel, "EmbedStream")(iter(map(embed, texts))))
        expected = await asyncio.gather(*(rpc(channel, "Embed")(embed(one)) for one in texts))
        assert [list(one.embeddings) for one in replies] == [list(one.embeddings) for one in expected]
        await stream.done_writing()
        assert await stream.read() == grpc.aio.EOF
    routes = [event.route for event in seen if isinstance(event, RequestDone) and event.inputs == 1]
    assert routes.count("/tei.v1.Embed/EmbedStream") == 301


async def test_a_stream_is_read_as_it_is_answered(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """No more messages are worked on than the bound; the others stay with the client."""
    model = serve(fake, batch_tokens=5)
    async with served(registry_of(model), events) as (_, channel):
        fake.gate.clear()
        stream = rpc(channel, "EmbedStream")(iter(map(embed, distinct(IN_FLIGHT + 50))))
        reading = asyncio.create_task(_all(stream))
        await until(lambda: model.runner.waiting_items == IN_FLIGHT - 1)
        await asyncio.sleep(0.05)
        assert model.runner.waiting_items == IN_FLIGHT - 1
        fake.gate.set()
        assert len(await reading) == IN_FLIGHT + 50


async def test_a_stream_is_one_among_others(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """All messages of a stream together weigh as much as one request: another of the tenant does not wait for them."""
    model = serve(fake, batch_tokens=5)
    async with served(registry_of(model), events) as (_, channel):
        fake.gate.clear()
        reading = asyncio.create_task(_all(rpc(channel, "EmbedStream")(iter(map(embed, distinct(100))))))
        await until(lambda: model.runner.waiting_items == 99)
        call = rpc(channel, "Embed")(embed("a b c d e f g h"))  # dearer than each of them
        await until(lambda: model.runner.waiting_items == 100)
        fake.gate.set()
        await call
        assert len(await reading) == 100
    assert fake.batches.index([10]) < 5


async def test_a_stream_ends_with_what_fails(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """What came before the message that fails is answered, what comes after it is not."""
    async with served(registry_of(serve(fake)), events) as (_, channel):
        stream = rpc(channel, "EmbedStream")(iter(map(embed, ["a", "b", "", "c"])))
        assert [len((await stream.read()).embeddings) for _ in range(2)] == [16, 16]
        assert (await failure(stream.read())).code() == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["Embed", "EmbedStream"])
async def test_a_caller_who_leaves(
    serve: Serve, fake: FakeEngine, events: Events, seen: list[Event], name: str
) -> None:
    """What waits for a call that was cancelled is dropped."""
    model = serve(fake, batch_tokens=5)
    async with served(registry_of(model), events) as (server, channel):
        fake.gate.clear()
        busy = rpc(channel, "Embed")(embed("hello"))
        await until(lambda: any(lane.items for lane in model.runner._lanes))
        call = rpc(channel, name)(embed("cat") if name == "Embed" else iter(map(embed, distinct(9))))
        await until(lambda: model.runner.waiting_items == (1 if name == "Embed" else 9))
        call.cancel()
        await until(lambda: model.runner.waiting_items == 0)
        fake.gate.set()
        await busy
        await until(lambda: not server.busy)
    assert sorted(event.status for event in seen if isinstance(event, RequestDone)) == [200, 499]


def texts(*given: str, query: str = "a", **more: Any) -> Iterator[pb.RerankStreamRequest]:
    """A stream of texts to rank."""
    return iter([pb.RerankStreamRequest(query=query, text=one, **more) for one in given])


async def test_a_stream_of_texts_is_ranked(channel: Any, seen: list[Event]) -> None:
    """Texts that come one by one get the ranks that they get together, more of them than a request may hold."""
    given = distinct(40)
    call = rpc(channel, "RerankStream")(texts(*given, return_text=True), **of("judge"))
    reply = await call
    assert sorted(one.text for one in reply.ranks) == given
    assert [given[one.index] for one in reply.ranks] == [one.text for one in reply.ranks]
    some = await rpc(channel, "Rerank")(pb.RerankRequest(query="a", texts=given[:32]), **of("judge"))
    assert [one.index for one in reply.ranks if one.index < 32] == [one.index for one in some.ranks]
    assert reply.metadata.compute_tokens == int(dict(await call.initial_metadata())["x-compute-tokens"]) > 40
    (event,) = [one for one in seen if isinstance(one, RequestDone) and one.route.endswith("Stream")]
    assert (event.model, event.inputs, event.status) == ("judge", 40, 200)


async def test_the_first_message_speaks_for_all(channel: Any) -> None:
    """`raw_scores` and `return_text` are read from the first message of a stream."""
    stream = [*texts("b", raw_scores=True), *texts("c d", return_text=True)]
    reply = await rpc(channel, "RerankStream")(iter(stream), **of("judge"))
    same = await rpc(channel, "Rerank")(pb.RerankRequest(query="a", texts=["b", "c d"], raw_scores=True), **of("judge"))
    assert reply.ranks == same.ranks


@pytest.mark.parametrize(
    ("stream", "details"),
    [
        ([], "the stream holds no text"),
        (list(texts("b", truncation_direction=7)), "truncation_direction is 7"),
        ([*texts("b"), *texts(LONG)], "texts[0] has more than 40 tokens"),
    ],
)
async def test_streams_that_cannot_be_ranked(channel: Any, stream: list[Any], details: str) -> None:
    """An empty stream and a wrong message are the caller's fault."""
    error = await failure(rpc(channel, "RerankStream")(iter(stream), **of("judge")))
    assert (error.code(), error.details()[: len(details)]) == (Code.INVALID_ARGUMENT, details)


async def test_many_callers_at_once(channel: Any) -> None:
    """However many call at once, all are answered: nobody is cancelled at random."""
    ask = rpc(channel, "Info")

    async def one() -> Any:
        return await ask(pb.InfoRequest(), **of("tiny"))

    assert {reply.model_id for reply in await asyncio.gather(*(one() for _ in range(1500)))} == {"tiny"}


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


SERVING, NOT, UNKNOWN = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
    health_pb2.HealthCheckResponse.SERVICE_UNKNOWN,
)


@pytest.mark.parametrize(
    ("name", "able"),
    [
        ("tiny", {"Embed"}),
        ("words", {"Embed"}),
        ("late", {"Embed", "Rerank"}),
        ("moods", {"Predict"}),
        ("judge", {"Predict", "Rerank"}),
    ],
)
async def test_health(serve: Serve, tiny_spec: ModelSpec, events: Events, name: str, able: set[str]) -> None:
    """A service is healthy where a model can answer it, none while the server drains or loads."""
    registry = Registry([name])
    services = ["", *(f"tei.v1.{one}" for one in ("Info", "Tokenize", "Embed", "Predict", "Rerank"))]
    healthy = [SERVING] * 3 + [SERVING if one[7:] in able else NOT for one in services[3:]]
    async with served(registry, events) as (_, channel):
        health = health_pb2_grpc.HealthStub(channel)

        async def states() -> list[int]:
            asked = [health.Check(health_pb2.HealthCheckRequest(service=one)) for one in services]
            return [reply.status for reply in await asyncio.gather(*asked)]

        watched = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watched.read()).status == NOT
        assert await states() == [NOT] * 6
        assert (await failure(rpc(channel, "Embed")(embed("a")))).code() == Code.UNAVAILABLE
        registry.add(serve(*fakes(tiny_spec, name)[0]))
        assert (await watched.read()).status == SERVING
        assert await states() == healthy
        listed = (await health.List(health_pb2.HealthListRequest())).statuses
        assert [listed[service].status for service in services] == healthy
        registry.draining = True
        assert await states() == [NOT] * 6
        assert (await watched.read()).status == NOT
        strange = health_pb2.HealthCheckRequest(service="strange")
        assert (await failure(health.Check(strange))).code() == Code.NOT_FOUND
        assert (await health.Watch(strange).read()).status == UNKNOWN


async def test_reflection(channel: Any) -> None:
    """Clients without the proto find every service and its messages."""
    ask = reflection_pb2.ServerReflectionRequest
    asked = iter([ask(list_services=""), ask(file_containing_symbol="tei.v1.Rerank")])
    listed, found = await _all(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked))
    names = {one.name for one in listed.list_services_response.service}
    assert names == {*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert list(found.file_descriptor_response.file_descriptor_proto) == [pb.DESCRIPTOR.serialized_pb]


async def test_a_server_that_takes_no_new_work(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A closed server refuses calls as unavailable, and finishes those that it has."""
    model = serve(fake)
    registry = registry_of(model)
    async with served(registry, events) as (server, channel):
        fake.gate.clear()
        accepted = rpc(channel, "Embed")(embed("hello"))
        await until(lambda: server.busy)
        registry.draining = registry.closed = True
        assert (await failure(rpc(channel, "Embed")(embed("late")))).code() == Code.UNAVAILABLE
        fake.gate.set()
        assert len((await accepted).embeddings) == 16
        await until(lambda: not server.busy)
        assert await server.stop()


async def test_what_is_cut_is_told(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Who is still not answered when the server stops is told so, in streams too."""
    async with served(registry_of(serve(fake)), events) as (server, channel):
        fake.gate.clear()
        calls = [rpc(channel, "Embed")(embed("hello")), rpc(channel, "EmbedStream")(iter([embed("cat")]))]
        ends = [asyncio.create_task(failure(call)) for call in calls]
        await until(lambda: len(server._calls._tasks) == 2)
        assert not await server.stop()
        for end in ends:
            error = await end
            assert (error.code(), "shut down" in error.details()) == (Code.UNAVAILABLE, True)


async def test_a_caller_who_does_not_read(
    serve: Serve, fake: FakeEngine, events: Events, seen: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    """Answers that nobody reads hold up their own stream alone, and not the end of the server."""
    narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536))
    async with served(registry_of(serve(fake)), events, narrow) as (server, channel):
        stream = rpc(channel, "EmbedAllStream")(pb.EmbedAllRequest(inputs=LONG, truncate=True) for _ in range(2000))
        told = -1
        while told < len(seen) or not seen:  # until nothing more is answered
            told = len(seen)
            await asyncio.sleep(0.2)
        assert 0 < told < 2000
        assert (await rpc(channel, "Embed")(embed("hello"))).metadata.compute_tokens == 3
        assert not await server.stop()
        assert (await failure(stream)).code() in {Code.UNAVAILABLE, Code.CANCELLED}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
