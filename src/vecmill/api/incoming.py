"""A request as bytes: its headers, its bounded body, and whether its caller is still there."""

import asyncio
import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from starlette.types import Message, Receive, Scope

from vecmill.errors import BodyStalled, BodyTooLarge, ShuttingDown, UnsupportedMediaType
from vecmill.serving.registry import Registry

WATCH_AFTER_S = 0.25
"""Work that takes longer than this is watched for callers who left. Watching costs a task: what a busy server answers
in a tenth of a second should not pay for it."""

LOOK_S = 0.25
"""How often a request whose body does not come looks whether work is still taken."""

ANY_TYPE = "*/*"
"""Among the types that a route takes: it does not look at what a body says of itself."""


class CallerGone(Exception):
    """Nobody waits for the answer."""


class Incoming:
    """One HTTP request.

    Args:
        scope: As ASGI gives it.
        receive: As ASGI gives it.
        registry: Says whether work is still taken.
        body_timeout_s: How long nothing of a body may come; 0 is as long as it takes.

    Attributes:
        method: In capitals.
        path: Without the query.
        query: What follows the question mark.
        headers: Values by lower-case name.
        model: The served name that the path holds; None where it holds none.
    """

    def __init__(self, scope: Scope, receive: Receive, registry: Registry, body_timeout_s: float = 0.0) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope.get("query_string", b"")
        self.headers: dict[str, str] = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        self.model: str | None = scope.get("path_params", {}).get("model")
        self._receive = receive
        self._registry = registry
        self._body_timeout_s = body_timeout_s or math.inf
        self._begun = False

    async def json(self, max_bytes: int, others: Sequence[str] = ()) -> bytes:
        """The body, which is JSON by its own account, or one of the other types.

        Raises:
            UnsupportedMediaType: It is something else, or compressed.
            BodyTooLarge: It has too many bytes, by its own account or as they come.
            BodyStalled: As `piece`.
            ShuttingDown: As `piece`.
            CallerGone: As `piece`.
        """
        self._check(max_bytes, others)
        parts, size, more = [], 0, True
        while more:
            part, more = await self.piece()
            size += len(part)
            if size > max_bytes:
                raise BodyTooLarge(f"the body has more than {max_bytes} bytes, the limit of this server")
            parts.append(part)
        return b"".join(parts)

    async def piece(self) -> tuple[bytes, bool]:
        """What comes next of the body, and whether more follows.

        Raises:
            BodyStalled: Nothing came for too long.
            ShuttingDown: It had not come to its end when the server stopped to take work: no one waits for it.
            CallerGone: It will not come to its end.
        """
        if self._begun and self._registry.closed:
            raise ShuttingDown("the server is shutting down and waits for no more of the body")
        self._begun = True
        message = await self._patiently()
        if message["type"] == "http.disconnect":
            raise CallerGone
        return message.get("body", b""), message.get("more_body", False)

    async def departure(self) -> None:
        """Wait until the caller has left."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @property
    def content_type(self) -> str:
        """What the body is by its own account, without parameters; "" where it gives none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def check_coding(self) -> None:
        """Refuse what is compressed.

        Raises:
            UnsupportedMediaType: It is.
        """
        coding = self.headers.get("content-encoding", "").strip().lower() or "identity"
        if coding != "identity":
            raise UnsupportedMediaType(f"content-encoding is {coding!r}; send the body uncompressed")

    def watch(self) -> "Watch":
        """A context in which the running task is cancelled, and CallerGone raised, when the caller leaves."""
        return Watch(self)

    def _check(self, max_bytes: int, others: Sequence[str]) -> None:
        kind = self.content_type or "application/json"
        if kind != "application/json" and not kind.endswith("+json") and not {kind, ANY_TYPE} & {*others}:
            raise UnsupportedMediaType(f"content-type is {kind!r}; send application/json")
        self.check_coding()
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > max_bytes:
            raise BodyTooLarge(f"the body has {length} bytes; this server takes at most {max_bytes}")

    async def _patiently(self) -> Message:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._body_timeout_s
        while True:
            try:
                async with asyncio.timeout_at(min(loop.time() + LOOK_S, end)):
                    return await self._receive()
            except TimeoutError:
                if self._registry.closed:
                    raise ShuttingDown("the server is shutting down and waits for no more of the body") from None
                if loop.time() >= end:
                    raise BodyStalled(f"nothing more of the body came for {self._body_timeout_s:g} s") from None


class Watch:
    """Looks for the caller's departure once the work takes long.

    Args:
        incoming: Whose caller.
    """

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._gone = False
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(WATCH_AFTER_S, self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._gone:
            raise CallerGone from error

    def _start(self) -> None:
        self._watcher = self._loop.create_task(self._departure())

    async def _departure(self) -> None:
        await self._incoming.departure()
        self._gone = True
        if self._task is not None:
            self._task.cancel()
