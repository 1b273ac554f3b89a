"""How tests of the gRPC service ask: a real channel to a real server, its rpcs by their names."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.grpc.rpcs import RPCS
from vecmill.api.grpc.server import GrpcServer
from vecmill.config import Settings
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel

Code = grpc.StatusCode
Options = Sequence[tuple[str, int]]


def registry_of(*models: ServedModel) -> Registry:
    """A registry of loaded models."""
    registry = Registry([model.name for model in models])
    for model in models:
        registry.add(model)
    return registry


@asynccontextmanager
async def served(
    registry: Registry, events: Events, options: Options = (), **settings: Any
) -> AsyncIterator[tuple[GrpcServer, Any]]:
    """A server over this registry, and a channel to it with these options."""
    server = GrpcServer(registry, Settings(**settings), events)
    address = await server.start("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(address, options) as channel:
            yield server, channel
    finally:
        await server.stop()


def rpc(channel: Any, name: str) -> Any:
    """A callable for the rpc of this name, unary or streaming as it is; messages in, messages out."""
    row = next(row for row in RPCS if row.name == name)
    kind = f"{'stream' if row.many else 'unary'}_{'stream' if row.answers else 'unary'}"
    return getattr(channel, kind)(
        row.path, request_serializer=row.request.SerializeToString, response_deserializer=row.response.FromString
    )


def of(model: str) -> dict[str, Any]:
    """The metadata that names a model, for `rpc(...)(message, **of("tiny"))`."""
    return {"metadata": (("x-model", model),)}


def embed(text: str, **more: Any) -> pb.EmbedRequest:
    """A request for a vector."""
    return pb.EmbedRequest(inputs=text, **more)


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """The error that a call, or a stream, ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await whole(call) if hasattr(call, "__aiter__") else await call
    return failed.value


async def whole(call: Any) -> list[Any]:
    """All answers of a stream."""
    return [reply async for reply in call]
