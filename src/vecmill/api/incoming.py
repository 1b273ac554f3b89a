"""A request as bytes: its headers, its bounded body, and whether its caller is still there."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from starlette.types import Receive, Scope

from vecmill.api.rounds import EVERY_S, Rounds
from vecmill.errors import BodyStalled, BodyTooLarge, ShuttingDown, UnsupportedMediaType
from vecmill.serving.registry import Registry

WATCHED_FROM = 3
"""Work that is under way in so many rounds is watched for callers who left. Watching costs a task: what a busy server
answers in a tenth of a second should not pay for it."""

ANY_TYPE = "*/*"
"""Among the types that a route takes: it does not look at what a body says of itself."""


NO_MORE = "the server is shutting down and waits for no more of the body"


class CallerGone(Exception):
    """Nobody waits for the answer."""


class Incoming:
    """One HTTP request, and the context in which it is read and answered.

    The task that enters it is cancelled where the body does not come or the caller leaves, and the context raises what
    happened.

    Args:
        scope: As ASGI gives it.
        receive: As ASGI gives it.
        registry: Says whether work is still taken.
        rounds: Look at it.
        body_timeout_s: How long nothing of a body may come; 0 is as long as it takes.

    Attributes:
        method: In capitals.
        path: Without the query.
        query: What follows the question mark.
        headers: Values by lower-case name.
        model: The served name that the path holds; None where it holds none.
    """

    def __init__(
        self, scope: Scope, receive: Receive, registry: Registry, rounds: Rounds, body_timeout_s: float = 0.0
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope.get("query_string", b"")
        self.headers: dict[str, str] = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        self.model: str | None = scope.get("path_params", {}).get("model")
        self._receive = receive
        self._registry = registry
        self._rounds = rounds
        self._body_timeout_s = body_timeout_s
        self._begun = self._reading = self._working = False
        self._seen = 0
        self._failure: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._rounds.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rounds.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
        if self._failure is not None and self._task is not None and not self._task.uncancel():
            raise self._failure from error

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
            raise ShuttingDown(NO_MORE)
        self._begun = self._reading = True
        self._seen = 0
        message = await self._receive()
        self._reading = False
        if message["type"] == "http.disconnect":
            raise CallerGone
        return message.get("body", b""), message.get("more_body", False)

    def work(self) -> None:
        """It is being worked on from now on."""
        self._working, self._seen = True, 0

    def look(self) -> None:
        """End it where its body does not come, and watch for its caller where it takes long."""
        self._seen += 1
        if self._reading and self._registry.closed:
            self._fail(ShuttingDown(NO_MORE))
        elif self._reading and 0 < self._body_timeout_s <= (self._seen - 1) * EVERY_S:
            self._fail(BodyStalled(f"nothing more of the body came for {self._body_timeout_s:g} s"))
        elif self._working and self._seen == WATCHED_FROM:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

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
        coding = self.headers.get("content-encoding")
        if coding and (coding := coding.strip().lower() or "identity") != "identity":
            raise UnsupportedMediaType(f"content-encoding is {coding!r}; send the body uncompressed")

    def _check(self, max_bytes: int, others: Sequence[str]) -> None:
        kind = self.headers.get("content-type")
        if kind != "application/json":
            kind = self.content_type or "application/json"
        if kind != "application/json" and not kind.endswith("+json") and not {kind, ANY_TYPE} & {*others}:
            raise UnsupportedMediaType(f"content-type is {kind!r}; send application/json")
        self.check_coding()
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > max_bytes:
            raise BodyTooLarge(f"the body has {length} bytes; this server takes at most {max_bytes}")

    async def _watch(self) -> None:
        await self.departure()
        self._fail(CallerGone())

    def _fail(self, failure: Exception) -> None:
        self._rounds.discard(self)
        self._failure = failure
        if self._task is not None:
            self._task.cancel()
