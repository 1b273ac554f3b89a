"""One process that serves: the event loop, the loading thread and the signals."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

import uvicorn

from vecmill.api.app import build
from vecmill.api.banner import banner
from vecmill.api.callers import Callers
from vecmill.api.keys import Keys
from vecmill.api.listen import address, check_grpc, listen
from vecmill.api.metrics import Metrics
from vecmill.api.protocol import Protocol
from vecmill.config import Settings
from vecmill.errors import AddressUnavailable, StartError
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry, load, names

if TYPE_CHECKING:
    from vecmill.api.grpc.server import GrpcServer  # an extra

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

KEEP_ALIVE_S = 75
"""How long an idle connection is kept: longer than the 60 s of common load balancers, which else meet closed ones."""


print_now = partial(print, flush=True)
"""Who reads the output through a pipe sees the start when it happens."""


class Server(uvicorn.Server):
    """Uvicorn without its signal handling, which would exit by the signal after a clean drain."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to us."""
        yield


def serve(references: list[str], settings: Settings, show: Callable[[str], None] = print_now) -> bool:
    """Serve models until a signal; the loop answers /health while they load.

    Args:
        references: The models, as `vecmill.model.source.parse` takes them.
        settings: Everything else.
        show: Where the start is told.

    Returns:
        Whether accepted work was finished; False after a second signal, or when the time to drain was too short.

    Raises:
        StartError: A setting makes no sense, the address is taken or a model cannot be loaded.
    """
    registry = Registry(names(references))
    with listen(settings.host, settings.port, "--port") as listener:
        check_grpc(settings)
        serving = Serving(references, settings, registry, Metrics(registry), show)
        return run(serving.run(listener))


def run(main: Coroutine[None, None, bool]) -> bool:
    """Run this to its end, on the fastest loop that there is."""
    with asyncio.Runner(loop_factory=uvicorn.Config("", log_config=None).get_loop_factory()) as runner:
        return runner.run(main)


IDLE_S = 2.0
"""How long connections that say nothing are kept by a worker that leaves: a client may be about to ask."""

POLL_S = 0.02
"""How often a draining server looks whether it is done."""


class Serving:
    """A server with its models while it runs.

    Args:
        references: The models.
        settings: Everything else.
        registry: Knows their names; filled here.
        metrics: Counts what is answered.
        show: Told once, when all models are loaded.
        keys: What may ask, where that was read before.

    Raises:
        BadSettings: As `Callers`.
    """

    def __init__(
        self,
        references: list[str],
        settings: Settings,
        registry: Registry,
        metrics: Metrics,
        show: Callable[[str], None],
        keys: Keys | None = None,
    ) -> None:
        self._references = references
        self._settings = settings
        self._registry = registry
        self._events = Events()
        self._show = show
        self._callers = Callers(settings, keys)
        config = uvicorn.Config(
            build(registry, settings, self._events, metrics, self._callers),
            http=Protocol,
            ws="none",
            lifespan="off",
            proxy_headers=False,  # nobody asks where a request comes from
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.drain_timeout_s,  # type: ignore[arg-type]  # any number of seconds works
        )
        self._server = Server(config)
        self._loaded = asyncio.Event()
        self._failure: StartError | None = None
        self._grpc: GrpcServer | None = None
        self._drain: asyncio.Task[None] | None = None

    async def run(self, listener: socket.socket, *, quiet: bool = False) -> bool:
        """Serve until a signal or until a model cannot be loaded; whether the drain was clean.

        Args:
            listener: Where connections come from; closed in the end.
            quiet: Take none before the models are loaded: others who listen there can answer already.
        """
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop)
        threading.Thread(target=self._load, args=(loop,), name="loading", daemon=True).start()
        if quiet:
            await self._loaded.wait()
        if not self._server.should_exit:
            grpc = await self._open_grpc()
            telling = loop.create_task(self._tell(address(listener), grpc))
            await self._server.serve(sockets=[listener])
            telling.cancel()
        cut = bool(self._server.server_state.tasks)  # what uvicorn cancels when the time to drain is over
        if self._grpc is not None:
            cut |= not await self._grpc.stop()
        if self._drain is not None:
            self._drain.cancel()
        if self._failure:
            raise self._failure
        finished = not (cut or self._server.force_exit)
        if finished:
            self._registry.close()
        return finished

    def stop(self) -> None:
        """Drain at the first signal, stop at the second."""
        if self._registry.draining:
            self._server.should_exit = self._server.force_exit = True
            return
        self._registry.draining = True
        self._drain = asyncio.get_running_loop().create_task(self._finish())
        log.info("draining: accepted requests get %g s; once more stops at once", self._settings.drain_s)

    async def leave(self) -> None:
        """Take no connection from now on, answer what comes on those that are there, and end.

        Each answer is the last of its connection, which its client is told. So clients that ask all the time meet no
        connection that closes under their request; only those that have been silent for `IDLE_S` are closed unasked.
        """
        for server in self._server.servers:
            server.close()
        state, close = self._server.server_state, (b"connection", b"close")
        self._server.config.encoded_headers.append(close)  # these are made the default every second
        state.default_headers = [*state.default_headers, close]
        for connection in cast("list[Protocol]", list(state.connections)):
            asked = connection.cycle is not None  # before the first request it is, whatever its type says
            if asked and not connection.cycle.response_complete:
                connection.shutdown()  # after its answer
        for _ in range(int(IDLE_S / POLL_S)):
            if not state.connections:
                break
            await asyncio.sleep(POLL_S)
        for _ in range(int(self._settings.drain_timeout_s / POLL_S)):
            if self._grpc is None or not self._grpc.busy:
                break
            await asyncio.sleep(POLL_S)
        self._server.should_exit = True

    async def _open_grpc(self) -> str:
        """Listen for gRPC; where, or "" where that is not wanted."""
        settings = self._settings
        if settings.grpc_port is None:
            return ""
        from vecmill.api.grpc.server import GrpcServer

        self._grpc = GrpcServer(self._registry, settings, self._events, self._callers)
        try:
            return await self._grpc.start(settings.host, settings.grpc_port)
        except RuntimeError as error:  # another took the port since we looked
            raise AddressUnavailable(f"cannot listen for gRPC: {error}; choose another with --grpc-port") from error

    @property
    def _busy(self) -> bool:
        """Whether something accepted is not answered yet."""
        return bool(self._server.server_state.tasks) or (self._grpc is not None and self._grpc.busy)

    async def _finish(self) -> None:
        """Close the listener when what was accepted is done; until then probes see that the server is not ready."""
        loop, settings = asyncio.get_running_loop(), self._settings
        began = loop.time()
        while loop.time() - began < settings.drain_s:
            self._registry.closed = loop.time() - began >= settings.drain_notice_s
            if self._registry.closed and not self._busy:
                break
            await asyncio.sleep(POLL_S)
        self._registry.closed = True
        left = settings.drain_s - (loop.time() - began)
        self._server.config.timeout_graceful_shutdown = max(left, POLL_S)  # type: ignore[assignment]  # as above
        self._server.should_exit = True
        self._loaded.set()  # whoever waits for the models waits no more

    def _load(self, loop: asyncio.AbstractEventLoop) -> None:
        """Load the models, on a thread of its own."""
        try:
            for reference in self._references:
                self._registry.add(load(reference, self._settings, self._events, say=log.info))
        except Exception as error:
            self._failure = error if isinstance(error, StartError) else StartError(f"loading failed: {error!r}")
            log.debug("loading failed", exc_info=error)
            self._server.should_exit = True
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(self._loaded.set)

    async def _tell(self, url: str, grpc: str) -> None:
        """Show what is served once it is."""
        await self._loaded.wait()
        if self._registry.loaded:
            self._show(banner(url, list(self._registry), grpc, self._settings.workers))
