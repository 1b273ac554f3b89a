"""The gRPC server: its port, its services, and its end."""

from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from vecmill.api.callers import Callers
from vecmill.api.grpc.calls import Calls
from vecmill.api.grpc.health import Health
from vecmill.api.grpc.rpcs import SERVICES
from vecmill.config import Settings
from vecmill.serving.events import Events
from vecmill.serving.priority import go_behind
from vecmill.serving.registry import Registry

MOST_PENDING = 1_000_000
"""Calls not looked at yet. Beyond 1,000 the library cancels some at random; our queue refuses, and says until when."""


class GrpcServer:
    """Serves the models over gRPC; made and used in a running event loop.

    Args:
        registry: The models; they may still be loading.
        settings: Limits, and who may ask.
        events: Told of answers.
        callers: Who may ask, where that was read before.

    Raises:
        BadSettings: As `Callers`.
    """

    def __init__(self, registry: Registry, settings: Settings, events: Events, callers: Callers | None = None) -> None:
        encoding = ThreadPoolExecutor(2, "encoder", initializer=go_behind)
        self._calls = Calls(registry, callers or Callers(settings), events, encoding)
        options = [
            ("grpc.so_reuseport", int(settings.workers > 1)),  # else two servers could share a port unknowingly
            ("grpc.max_receive_message_length", settings.max_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.server.max_pending_requests", MOST_PENDING),
            ("grpc.server.max_pending_requests_hard_limit", MOST_PENDING),
        ]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers(self._calls.handlers())
        health_pb2_grpc.add_HealthServicer_to_server(Health(registry), self._server)
        reflection.enable_server_reflection([*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)

    @property
    def busy(self) -> bool:
        """Whether a call is under way; those of health and reflection do not count."""
        return self._calls.busy

    async def start(self, host: str, port: int) -> str:
        """Listen; the address, with the port that was taken where `port` is 0.

        Raises:
            RuntimeError: The port is taken.
        """
        host = f"[{host}]" if ":" in host else host
        taken = self._server.add_insecure_port(f"{host}:{port}")
        await self._server.start()
        return f"{host}:{taken}"

    async def stop(self) -> bool:
        """Stop at once, and tell the callers of what is under way; whether nothing was."""
        idle = not self._calls.busy
        await self._calls.cut()
        await self._server.stop(None)
        return idle
