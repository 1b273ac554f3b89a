"""Streams of the gRPC service: in order, bounded, and one among others; and texts that are ranked as they come."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from edge import fakes, until
from grpc_edge import Code, embed, failure, registry_of, rpc, served, whole

from conftest import Serve, distinct
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.grpc.calls import IN_FLIGHT
from vecmill.engine.fake import FakeEngine
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Event, Events, RequestDone

LONG = "the cat sat on the mat " * 20


@pytest.fixture
async def judge(serve: Serve, tiny_spec: ModelSpec, events: Events) -> AsyncIterator[Any]:
    """A channel to a reranker."""
    async with served(registry_of(serve(*fakes(tiny_spec, "judge")[0], max_inputs=32)), events) as (_, one):
        yield one


async def test_a_stream_is_answered_in_order(serve: Serve, fake: FakeEngine, events: Events, seen: list[Event]) -> None:
    """Answers come in the order of the messages, each before the stream has ended, and each counts as a request."""
    model = serve(fake)
    texts = distinct(300)
    async with served(registry_of(model), events) as (_, channel):
        stream = rpc(channel, "EmbedStream")()
        await stream.write(embed("hello"))
        assert len((await stream.read()).embeddings) == 16
        replies = await whole(rpc(channel, "EmbedStream")(iter(map(embed, texts))))
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
        reading = asyncio.create_task(whole(stream))
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
        reading = asyncio.create_task(whole(rpc(channel, "EmbedStream")(iter(map(embed, distinct(100))))))
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


def texts(*given: str, query: str = "a", **more: Any) -> Iterator[pb.RerankStreamRequest]:
    """A stream of texts to rank."""
    return iter([pb.RerankStreamRequest(query=query, text=one, **more) for one in given])


async def test_a_stream_of_texts_is_ranked(judge: Any, seen: list[Event]) -> None:
    """Texts that come one by one get the ranks that they get together, more of them than a request may hold."""
    given = distinct(40)
    call = rpc(judge, "RerankStream")(texts(*given, return_text=True))
    reply = await call
    assert sorted(one.text for one in reply.ranks) == given
    assert [given[one.index] for one in reply.ranks] == [one.text for one in reply.ranks]
    some = await rpc(judge, "Rerank")(pb.RerankRequest(query="a", texts=given[:32]))
    assert [one.index for one in reply.ranks if one.index < 32] == [one.index for one in some.ranks]
    assert reply.metadata.compute_tokens == int(dict(await call.initial_metadata())["x-compute-tokens"]) > 40
    (event,) = [one for one in seen if isinstance(one, RequestDone) and one.route.endswith("Stream")]
    assert (event.model, event.inputs, event.status) == ("judge", 40, 200)


async def test_the_first_message_speaks_forwhole(judge: Any) -> None:
    """`raw_scores` and `return_text` are read from the first message of a stream."""
    stream = [*texts("b", raw_scores=True), *texts("c d", return_text=True)]
    reply = await rpc(judge, "RerankStream")(iter(stream))
    same = await rpc(judge, "Rerank")(pb.RerankRequest(query="a", texts=["b", "c d"], raw_scores=True))
    assert reply.ranks == same.ranks


@pytest.mark.parametrize(
    ("stream", "details"),
    [
        ([], "the stream holds no text"),
        (list(texts("b", truncation_direction=7)), "truncation_direction is 7"),
        ([*texts("b"), *texts(LONG)], "texts[0] has more than 40 tokens"),
    ],
)
async def test_streams_that_cannot_be_ranked(judge: Any, stream: list[Any], details: str) -> None:
    """An empty stream and a wrong message are the caller's fault."""
    error = await failure(rpc(judge, "RerankStream")(iter(stream)))
    assert (error.code(), error.details()[: len(details)]) == (Code.INVALID_ARGUMENT, details)
