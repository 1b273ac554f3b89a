"""grpc.health.v1: which services answer, read from the models when asked."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel

WATCH_S = 0.1
"""How often is looked for who watches."""


def _gives(model: ServedModel, *outputs: str) -> bool:
    return not set(outputs).isdisjoint(model.spec.outputs)


def _ranks(model: ServedModel) -> bool:
    return model.spec.late is not None or (_gives(model, "scores") and model.spec.width("scores") == 1)


ANSWERS: dict[str, Callable[[ServedModel], bool]] = {
    "tei.v1.Info": lambda _: True,
    "tei.v1.Tokenize": lambda _: True,
    "tei.v1.Embed": lambda model: _gives(model, "dense", "sparse", "multi"),
    "tei.v1.Predict": lambda model: _gives(model, "scores"),
    "tei.v1.Rerank": _ranks,
}
"""Service to whether a model can answer its rpcs."""


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the library has no types
    """Whether the server, "", and each service answer: all models are ready, and one of them can.

    Args:
        registry: The models.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def Check(  # noqa: N802 (as the rpc)
        self, request: pb.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> pb.HealthCheckResponse:
        """The state of a service."""
        status = self._status(request.service)
        if status == pb.HealthCheckResponse.SERVICE_UNKNOWN:
            known = ", ".join(ANSWERS)
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service[:100]!r}; there are {known}")
        return pb.HealthCheckResponse(status=status)

    async def List(  # noqa: N802 (as the rpc)
        self, _: pb.HealthListRequest, __: grpc.aio.ServicerContext
    ) -> pb.HealthListResponse:
        """The state of every service."""
        states = {service: pb.HealthCheckResponse(status=self._status(service)) for service in ("", *ANSWERS)}
        return pb.HealthListResponse(statuses=states)

    async def Watch(  # noqa: N802 (as the rpc)
        self, request: pb.HealthCheckRequest, _: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.HealthCheckResponse]:
        """The state of a service, and every other that it comes to have."""
        told = None
        while True:
            status = self._status(request.service)
            if status != told:
                told = status
                yield pb.HealthCheckResponse(status=status)
            await asyncio.sleep(WATCH_S)

    def _status(self, service: str) -> int:
        states = pb.HealthCheckResponse
        if service and service not in ANSWERS:
            unknown: int = states.SERVICE_UNKNOWN
            return unknown
        can = not service or any(ANSWERS[service](model) for model in self._registry)
        status: int = states.SERVING if can and self._registry.ready else states.NOT_SERVING
        return status
