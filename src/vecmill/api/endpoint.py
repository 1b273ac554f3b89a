"""The one handler of every dialect: read, decode, parse, submit, render; and errors in the caller's dialect."""

import asyncio
import math
from concurrent.futures import Executor

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vecmill.api.decode import decode
from vecmill.api.dialect import Dialect, Route
from vecmill.api.incoming import CallerGone, Incoming
from vecmill.api.trace import Trace, trace_of
from vecmill.core import Result
from vecmill.errors import MethodNotAllowed, ShuttingDown, VecmillError
from vecmill.serving.registry import Registry

INLINE_NUMBERS = 64 * 1024
"""Answers of up to this many numbers are encoded on the event loop: a few milliseconds at most."""

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
            response = await self._answer(Incoming(scope, receive), trace)
        except VecmillError as failure:
            response = error_response(self._dialect, failure)
        except CallerGone:
            response = Response(status_code=CLIENT_GONE)
        except asyncio.CancelledError:  # the server cancels what is left when the time to drain is over
            error = ShuttingDown("the server shut down before this request was done")
            response = error_response(self._dialect, error)
        await response(scope, receive, send)

    async def _answer(self, incoming: Incoming, trace: Trace) -> Response:
        if incoming.method != "POST":
            raise MethodNotAllowed(incoming.method, incoming.path, ["POST"])
        body = decode(self._decoder, await incoming.json(self._max_body_bytes))
        wanted = self._route.parse(body, incoming.headers)
        model = self._registry.get(wanted.model)
        trace.model = model.name
        with incoming.watch():
            trace.result = result = await model.submit(wanted)
        content = await self._render(body, result)
        return Response(content, media_type="application/json", headers=_result_headers(result))

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
