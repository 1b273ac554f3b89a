"""The one handler of every dialect: read, decode, parse, submit, render; and errors in the caller's dialect."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.api.callers import Callers, with_key
from vecmill.api.decode import decode, decode_query, keys_of
from vecmill.api.dialect import Dialect, Route
from vecmill.api.incoming import CallerGone, Incoming
from vecmill.api.replies import CLIENT_GONE, UNEXPECTED, as_told, error_headers, in_time, rendered, result_headers
from vecmill.api.rounds import Rounds
from vecmill.api.trace import Trace, trace_of
from vecmill.asks import Ask, One
from vecmill.core import Caller, Result
from vecmill.errors import InvalidRequest, MethodNotAllowed, ShuttingDown, VecmillError
from vecmill.serving.answer import answer
from vecmill.serving.registry import Registry

log = logging.getLogger(__name__)

INLINE_BYTES = 256 * 1024
"""Bodies of up to this size are decoded on the event loop: a few milliseconds at most."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A route, how its bodies are decoded, and the dialect that says its errors."""

    dialect: Dialect
    route: Route
    decoder: "msgspec.json.Decoder[Any]"


class Endpoint:
    """An ASGI application that answers one method of one path.

    Args:
        choices: What may be meant; the first whose `when` holds is, else the last.
        registry: The models.
        callers: Who may ask, and on which terms.
        max_body_bytes: Most bytes of a body.
        rounds: As `Incoming`.
        body_timeout_s: As `Incoming`.
        encoding: Where large bodies are decoded and large answers encoded.

    Attributes:
        method: How it is asked.
    """

    def __init__(
        self,
        choices: Sequence[tuple[Dialect, Route]],
        registry: Registry,
        callers: Callers,
        *,
        max_body_bytes: int,
        rounds: Rounds,
        body_timeout_s: float,
        encoding: Executor,
    ) -> None:
        self._choices = [Choice(*choice, msgspec.json.Decoder(choice[1].body)) for choice in choices]
        self._registry = registry
        self._callers = callers
        self._max_body_bytes = max_body_bytes
        self._rounds = rounds
        self._body_timeout_s = body_timeout_s
        self._encoding = encoding
        self.method = choices[0][1].method
        self._takes = [kind for _, route in choices for kind in route.takes]
        self._any_model = len(choices) == 1 and choices[0][1].any_model
        self._key = next((route.key for _, route in choices if route.key), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever befalls it is an answer too."""
        trace, choice, given = trace_of(scope), self._choices[-1], b""
        trace.route = choice.route.paths[0]
        response: ASGIApp
        try:
            with Incoming(scope, receive, self._registry, self._rounds, self._body_timeout_s) as incoming:
                caller, given = await self._open(incoming)
                trace.tenant = caller.tenant
                choice = self._choose(given, incoming)
                trace.route = choice.route.paths[0]
                response = await self._answer(choice, given, incoming, trace, caller)
        except InvalidRequest as failure:
            response = error_response(choice.dialect, failure.about(choice.route.words(keys_of(given))))
        except VecmillError as failure:
            response = error_response(choice.dialect, failure)
        except CallerGone:
            response = Response(status_code=CLIENT_GONE)
        except asyncio.CancelledError:  # the server cancels what is left when the time to drain is over
            error = ShuttingDown("the server shut down before this request was done")
            response = error_response(choice.dialect, error)
        except Exception:
            log.exception("an unexpected error at %s", trace.route)
            response = error_response(choice.dialect, UNEXPECTED)
        await response(scope, receive, send)

    async def _open(self, incoming: Incoming) -> tuple[Caller, bytes]:
        """Who asks, and the body; it is read first only where it may hold the key."""
        if self._key is None:
            caller = self._callers(incoming.headers)
            return caller, await self._read(incoming)
        given = await self._read(incoming)
        return self._callers(with_key(incoming.headers, self._key(keys_of(given)))), given

    async def _read(self, incoming: Incoming) -> bytes:
        allowed = ["GET", "HEAD"] if self.method == "GET" else ["POST"]
        if incoming.method not in allowed:
            raise MethodNotAllowed(incoming.method, incoming.path, allowed)
        return incoming.query if self.method == "GET" else await incoming.json(self._max_body_bytes, self._takes)

    def _choose(self, given: bytes, incoming: Incoming) -> Choice:
        *others, last = self._choices
        if not others:
            return last
        keys, headers = keys_of(given), incoming.headers
        for one in others:
            if one.route.when and one.route.when(keys, headers):
                return one
        return last

    def _understand(self, choice: Choice, given: bytes, headers: Mapping[str, str]) -> tuple[Any, Ask]:
        """The body and what it asks."""
        route = choice.route
        if route.read:
            body = route.read(choice.decoder, given, headers)
        else:
            body = decode_query(given, route.body) if self.method == "GET" else decode(choice.decoder, given)
        return body, route.parse(body, headers)

    async def _answer(self, choice: Choice, given: bytes, incoming: Incoming, trace: Trace, caller: Caller) -> "Reply":
        route = choice.route
        if len(given) <= INLINE_BYTES:
            body, ask = self._understand(choice, given, incoming.headers)
        else:  # on a thread, while others are answered
            understand = partial(self._understand, choice, given, incoming.headers)
            body, ask = await asyncio.get_running_loop().run_in_executor(self._encoding, understand)
        if incoming.model is not None and isinstance(ask, One):
            ask = replace(ask, model=incoming.model)
        elif self._any_model and len(self._registry.names) == 1 and isinstance(ask, One):
            ask = replace(ask, model=None)
        ask = as_told(ask, incoming.headers)
        if self._registry.closed:
            raise ShuttingDown("the server is shutting down and takes no new work")
        if isinstance(ask, One):
            trace.model = self._registry.get(ask.model).name
        incoming.work()
        result = await in_time(answer(ask, self._registry, caller), caller.timeout_s)
        headers = route.headers(body, result)
        parts = result if isinstance(result, list) else [result]
        trace.results = [part for part in parts if isinstance(part, Result)]
        trace.model = trace.model or next((part.model for part in trace.results), "")
        headers = result_headers(result) | headers
        return Reply(await rendered(route.render, body, result, self._encoding), headers)


@cache
def _name(name: str) -> bytes:
    """The name of a header as it goes out; there are few."""
    return name.lower().encode("latin-1")


class Reply:
    """An answer whose body goes out piece by piece, each when the one before it is on its way.

    Args:
        pieces: The body; at least one.
        headers: What else goes before it; JSON unless they say otherwise.
    """

    def __init__(self, pieces: list[bytes], headers: Mapping[str, str]) -> None:
        told = {"content-type": "application/json", **headers, "content-length": str(sum(map(len, pieces)))}
        self._headers = [(_name(name), value.encode("latin-1")) for name, value in told.items()]
        self._pieces = pieces

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        *first, last = self._pieces
        for piece in first:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": last})


def error_response(dialect: Dialect, error: VecmillError) -> Response:
    """The answer that says what happened, with the headers that clients act on."""
    reply = dialect.render_error(error)
    return Response(reply.body, reply.status, error_headers(error), media_type="application/json")
