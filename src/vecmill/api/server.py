"""One process: the socket, the event loop, the loading thread and the signals."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import uvicorn

from vecmill import __version__
from vecmill.api.app import build
from vecmill.config import Settings
from vecmill.errors import AddressUnavailable, BadSettings, StartError
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry, load, names
from vecmill.serving.served import ServedModel

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
    registry, events = Registry(names(references)), Events()
    with _listen(settings.host, settings.port, "--port") as listener:
        _check_grpc(settings)
        app = build(registry, settings, events)
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.drain_timeout_s,  # type: ignore[arg-type]  # any number of seconds works
        )
        serving = Serving(Server(config), registry, references, settings, events, show)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            return runner.run(serving.run(listener))


POLL_S = 0.02
"""How often a draining server looks whether it is done."""


class Serving:
    """A server with its models while it runs."""

    def __init__(
        self,
        server: Server,
        registry: Registry,
        references: list[str],
        settings: Settings,
        events: Events,
        show: Callable[[str], None],
    ) -> None:
        self._server = server
        self._registry = registry
        self._references = references
        self._settings = settings
        self._events = events
        self._show = show
        self._failure: StartError | None = None
        self._grpc: GrpcServer | None = None
        self._drain: asyncio.Task[None] | None = None

    async def run(self, listener: socket.socket) -> bool:
        """Serve until a signal or until a model cannot be loaded; whether the drain was clean."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop)
        grpc = await self._open_grpc()
        load = partial(self._load, loop, address(listener), grpc)
        threading.Thread(target=load, name="loading", daemon=True).start()
        await self._server.serve(sockets=[listener])
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

    async def _open_grpc(self) -> str:
        """Listen for gRPC; where, or "" where that is not wanted."""
        settings = self._settings
        if settings.grpc_port is None:
            return ""
        from vecmill.api.grpc.server import GrpcServer

        self._grpc = GrpcServer(self._registry, settings, self._events)
        try:
            return await self._grpc.start(settings.host, settings.grpc_port)
        except RuntimeError as error:  # another took the port since we looked
            raise AddressUnavailable(f"cannot listen for gRPC: {error}; choose another with --grpc-port") from error

    @property
    def _busy(self) -> bool:
        """Whether something accepted is not answered yet."""
        return bool(self._server.server_state.tasks) or (self._grpc is not None and self._grpc.busy)

    def _stop(self) -> None:
        """Drain at the first signal, stop at the second."""
        if self._registry.draining:
            self._server.should_exit = self._server.force_exit = True
            return
        self._registry.draining = True
        self._drain = asyncio.get_running_loop().create_task(self._finish())
        log.info("draining: accepted requests get %g s; once more stops at once", self._settings.drain_timeout_s)

    async def _finish(self) -> None:
        """Close the listener when what was accepted is done; until then probes see that the server is not ready."""
        loop, settings = asyncio.get_running_loop(), self._settings
        began = loop.time()
        while loop.time() - began < settings.drain_timeout_s:
            self._registry.closed = loop.time() - began >= settings.drain_notice_s
            if self._registry.closed and not self._busy:
                break
            await asyncio.sleep(POLL_S)
        left = settings.drain_timeout_s - (loop.time() - began)
        self._server.config.timeout_graceful_shutdown = max(left, POLL_S)  # type: ignore[assignment]  # as above
        self._server.should_exit = True

    def _load(self, loop: asyncio.AbstractEventLoop, url: str, grpc: str) -> None:
        """Load the models, on a thread of its own."""
        try:
            for reference in self._references:
                self._registry.add(load(reference, self._settings, self._events, say=log.info))
        except Exception as error:
            self._failure = error if isinstance(error, StartError) else StartError(f"loading failed: {error!r}")
            log.debug("loading failed", exc_info=error)
            loop.call_soon_threadsafe(setattr, self._server, "should_exit", True)  # noqa: FBT003
        else:
            self._show(banner(url, list(self._registry), grpc))


def address(listener: socket.socket) -> str:
    """The URL under which a listening socket is reached from this machine."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


def banner(url: str, models: list[ServedModel], grpc: str = "") -> str:
    """What is served and how to ask it."""
    lines = [f"vecmill {__version__} is ready on {url} (documentation: {url}/docs)"]
    lines += [f"gRPC (tei.v1) is ready on {grpc}", ""] if grpc else [""]
    for model in models:
        spec = model.spec
        facts = [f"{spec.dims} dimensions" if spec.dims else TASKS[spec.task], f"up to {spec.max_tokens} tokens"]
        facts += [f"labels {', '.join(spec.scores.labels)}"] if spec.task == "classify" and spec.scores else []
        facts += ["+".join(spec.pooling)] if spec.pooling else []
        facts += ["normalized"] if spec.normalized else []
        lines.append(f"  {model.name}: {', '.join([*facts, model.precision])}")
    path, fields = EXAMPLES[models[0].spec.task]
    body = f'{{"model": "{models[0].name}", {fields}}}'
    lines += ["", f"  curl {url}{path} -H 'content-type: application/json' -d '{body}'", ""]
    return "\n".join(lines)


TASKS = {
    "embed": "vectors",
    "rerank": "a reranker",
    "classify": "a classifier",
    "sparse": "sparse vectors",
    "multi": "vectors of tokens",
}
"""Task in words."""

EXAMPLES = {
    "embed": ("/v1/embeddings", '"input": "hello world"'),
    "rerank": ("/v1/rerank", '"query": "hello", "documents": ["hello world", "goodbye"]'),
    "classify": ("/classify", '"input": ["hello world"]'),
    "sparse": ("/embed_sparse", '"inputs": "hello world"'),
    "multi": ("/embed_all", '"inputs": "hello world"'),
}
"""Task to a first request."""


GRPC = ("grpc", "grpc_health", "grpc_reflection")
"""What the gRPC service needs, which only vecmill[grpc] installs."""


def _check_grpc(settings: Settings) -> None:
    """Refuse what gRPC's own library would tell late, or in many lines.

    Raises:
        BadSettings: The service is wanted and its libraries are not installed.
        AddressUnavailable: Its port is taken.
    """
    if settings.grpc_port is None:
        return
    if not all(find_spec(library) for library in GRPC):
        raise BadSettings(f"grpc_port is {settings.grpc_port}; gRPC needs more libraries: pip install 'vecmill[grpc]'")
    _listen(settings.host, settings.grpc_port, "--grpc-port").close()


def _listen(host: str, port: int, flag: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise AddressUnavailable(
            f"cannot listen on {host} port {port}: {error}; choose another with --host or {flag}"
        ) from error


def configure_logging(level: str) -> None:
    """One line an event on standard error."""
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for noisy in ("httpx", "httpcore", "filelock", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings tell of bytes that are no request, one by one
