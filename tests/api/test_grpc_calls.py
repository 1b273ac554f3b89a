"""What happens around calls of the gRPC service: keys, limits, deadlines, callers who leave, health, and the end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from edge import fakes, until
from grpc_edge import Code, embed, failure, registry_of, rpc, served, whole
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from conftest import Serve, distinct
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.grpc.rpcs import SERVICES
from vecmill.engine.fake import FakeEngine
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Event, Events, RequestDone
from vecmill.serving.registry import Registry

LONG = "the cat sat on the mat " * 20


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
        stream = asyncio.create_task(whole(rpc(channel, "EmbedStream")(iter(map(embed, rest)))))
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


async def test_many_callers_at_once(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """However many call at once, all are answered: nobody is cancelled at random."""
    async with served(registry_of(serve(fake)), events) as (_, channel):
        ask = rpc(channel, "Info")

        async def one() -> Any:
            return await ask(pb.InfoRequest())

        assert {reply.model_id for reply in await asyncio.gather(*(one() for _ in range(1500)))} == {"tiny"}


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


async def test_reflection(events: Events) -> None:
    """Clients without the proto find every service and its messages."""
    ask = reflection_pb2.ServerReflectionRequest
    asked = iter([ask(list_services=""), ask(file_containing_symbol="tei.v1.Rerank")])
    async with served(Registry([]), events) as (_, channel):
        listed, found = await whole(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked))
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
