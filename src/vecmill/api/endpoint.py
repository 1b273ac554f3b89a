"""The one handler of every dialect: read, decode, parse, submit, render; and errors in the caller's dialect."""

import asyncio
import math
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vecmill.api.decode import decode
from vecmill.api.dialect import Dialect, Route
from vecmill.api.trace import Trace, trace_of
from vecmill.core import Result
from vecmill.errors import BodyTooLarge, MethodNotAllowed, ShuttingDown, UnsupportedMediaType, VecmillError
from vecmill.serving.registry import Registry

INLINE_NUMBERS = 64 * 1024
"""Answers of up to this many numbers are encoded on the event loop: a few milliseconds at most."""

DISCONNECT_CHECK_S = 0.05
"""Work that takes longer than this is watched for callers who left; watching costs a task."""

CLIENT_GONE = 499


class Endpoint:
    """An ASGI application that answers one route of a dialect.

    Args:
        dialect: How errors are said.
        route: What is answered.
        registry: The models.
        max_body_bytes: Most bytes of a body.
        encoding: Where large answers are encoded.
    """

    def __init__(
        self, dialect: Dialect, route: Route, registry: Registry, *, max_body_bytes: int, encoding: Executor
    ) -> None:
        self._dialect = dialect
        self._route = route
        self._registry = registry
        self._max_body_bytes = max_body_bytes
        self._encoding = encoding
        self._decoder = msgspec.json.Decoder(route.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever befalls it is an answer too."""
        trace = trace_of(scope)
        trace.route = self._route.paths[0]
        try:
            response = await self._answer(Request(scope, receive), trace)
        except VecmillError as failure:
            response = error_response(self._dialect, failure)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_GONE)
        except asyncio.CancelledError:  # the server cancels what is left when the time to drain is over
            error = ShuttingDown("the server shut down before this request was done")
            response = error_response(self._dialect, error)
        await response(scope, receive, send)

    async def _answer(self, request: Request, trace: Trace) -> Response:
        if request.method != "POST":
            raise MethodNotAllowed(request.method, request.url.path, ["POST"])
        body = decode(self._decoder, await self._read(request))
        wanted = self._route.parse(body, request.headers)
        model = self._registry.get(wanted.model)
        trace.model = model.name
        result = await _unless_gone(model.submit(wanted), request)
        trace.result = result
        content = await self._render(body, result)
        return Response(content, media_type="application/json", headers=_result_headers(result))

    async def _read(self, request: Request) -> bytes:
        _check_headers(request, self._max_body_bytes)
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._max_body_bytes:
                raise BodyTooLarge(f"the body has more than {self._max_body_bytes} bytes, the limit of this server")
            parts.append(part)
        return b"".join(parts)

    async def _render(self, body: object, result: Result) -> bytes:
        if result.rows.size <= INLINE_NUMBERS:
            return self._route.render(body, result)
        return await asyncio.get_running_loop().run_in_executor(self._encoding, self._route.render, body, result)


def error_response(dialect: Dialect, error: VecmillError) -> Response:
    """The answer that says what happened, with the headers that clients act on."""
    reply = dialect.render_error(error)
    headers = {}
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))
        headers["retry-after-ms"] = str(max(1, round(retry_after_s * 1000)))
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.allowed)
    return Response(reply.body, reply.status, headers, media_type="application/json")


def _result_headers(result: Result) -> dict[str, str]:
    headers = {"x-vecmill-truncated": str(result.truncated)}
    if result.token_vocabulary:
        headers["x-token-vocabulary"] = result.token_vocabulary
    return headers


def _check_headers(request: Request, max_body_bytes: int) -> None:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType(f"content-type is {kind!r}; send application/json")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise UnsupportedMediaType(f"content-encoding is {coding!r}; send the body uncompressed")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_body_bytes:
        raise BodyTooLarge(f"the body has {length} bytes; this server takes at most {max_body_bytes}")


async def _unless_gone(work: Coroutine[None, None, Result], request: Request) -> Result:
    """The result of the work, which is cancelled when the caller leaves.

    Raises:
        ClientDisconnect: The caller left.
    """
    task = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=DISCONNECT_CHECK_S)
        if not done:
            await _until_done_or_gone(task, request)
        return task.result()
    finally:
        task.cancel()


async def _until_done_or_gone(task: asyncio.Task[Result], request: Request) -> None:
    gone = asyncio.create_task(_departure(request))
    either: set[asyncio.Task[Any]] = {task, gone}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
    finally:
        gone.cancel()


async def _departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
