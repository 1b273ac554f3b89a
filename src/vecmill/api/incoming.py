"""A request as bytes: its headers, its bounded body, and whether its caller is still there."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from starlette.types import Receive, Scope

from vecmill.errors import BodyTooLarge, UnsupportedMediaType

WATCH_AFTER_S = 0.25
"""Work that takes longer than this is watched for callers who left. Watching costs a task: what a busy server answers
in a tenth of a second should not pay for it."""

ANY_TYPE = "*/*"
"""Among the types that a route takes: it does not look at what a body says of itself."""


class CallerGone(Exception):
    """Nobody waits for the answer."""


class Incoming:
    """One HTTP request.

    Args:
        scope: As ASGI gives it.
        receive: As ASGI gives it.

    Attributes:
        method: In capitals.
        path: Without the query.
        query: What follows the question mark.
        headers: Values by lower-case name.
        model: The served name that the path holds; None where it holds none.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope.get("query_string", b"")
        self.headers: dict[str, str] = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        self.model: str | None = scope.get("path_params", {}).get("model")
        self.receive = receive

    async def json(self, max_bytes: int, others: Sequence[str] = ()) -> bytes:
        """The body, which is JSON by its own account, or one of the other types.

        Raises:
            UnsupportedMediaType: It is something else, or compressed.
            BodyTooLarge: It has too many bytes, by its own account or as they come.
            CallerGone: It did not come to its end.
        """
        self._check(max_bytes, others)
        parts, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise CallerGone
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > max_bytes:
                raise BodyTooLarge(f"the body has more than {max_bytes} bytes, the limit of this server")
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    def watch(self) -> "Watch":
        """A context in which the running task is cancelled, and CallerGone raised, when the caller leaves."""
        return Watch(self)

    def _check(self, max_bytes: int, others: Sequence[str]) -> None:
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower() or "application/json"
        if kind != "application/json" and not kind.endswith("+json") and not {kind, ANY_TYPE} & {*others}:
            raise UnsupportedMediaType(f"content-type is {kind!r}; send application/json")
        coding = self.headers.get("content-encoding", "").strip().lower() or "identity"
        if coding != "identity":
            raise UnsupportedMediaType(f"content-encoding is {coding!r}; send the body uncompressed")
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > max_bytes:
            raise BodyTooLarge(f"the body has {length} bytes; this server takes at most {max_bytes}")


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
        while (await self._incoming.receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._task is not None:
            self._task.cancel()
