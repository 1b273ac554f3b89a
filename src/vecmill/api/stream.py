"""Very long lists: a line of JSON for each text, answered by a line for each as soon as it is there, in order."""

import asyncio
import logging
import re
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from vecmill.api.callers import Callers
from vecmill.api.decode import decode, decode_query
from vecmill.api.dialects.openai import OPENAI, EmbeddingsBody, ErrorDetail, detail, parse
from vecmill.api.encode import encoded
from vecmill.api.endpoint import error_response
from vecmill.api.incoming import CallerGone, Incoming
from vecmill.api.openapi import Page
from vecmill.api.ordered import in_order
from vecmill.api.replies import CLIENT_GONE, UNEXPECTED, as_told, in_time, with_patience
from vecmill.api.rounds import Rounds
from vecmill.api.spool import LONGEST_LINE, Room, Spool
from vecmill.api.trace import Trace, trace_of
from vecmill.asks import Answer
from vecmill.config import Settings
from vecmill.core import Caller, Result
from vecmill.errors import BodyTooLarge, MethodNotAllowed, ShuttingDown, UnsupportedMediaType, VecmillError
from vecmill.serving.answer import answer
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry

log = logging.getLogger(__name__)

PATH = "/v1/embeddings/stream"

KIND = "application/x-ndjson"

TOGETHER = 64
"""Lines that are one request of the model, where so many are there."""

UNDER_WAY = 4
"""Requests of a stream that wait or run at once."""

STREAMS = {PATH: Page("Vectors of a list of any length, a line of JSON each", media_type=KIND, method="post")}
"""What the OpenAPI document says of it."""


class StreamQuery(msgspec.Struct):
    """What the URL says of all lines, by the names of `EmbeddingsBody`."""

    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    truncate: bool | None = None
    long_inputs: Literal["truncate", "error", "mean"] | None = None
    prompt_name: str | None = None
    input_type: str | None = None


class Line(msgspec.Struct):
    """A text, and what the caller calls it."""

    input: str
    id: Any = None


class Answered(msgspec.Struct, omit_defaults=True):
    """A line of the answer: a vector or an error."""

    index: int
    id: Any = None
    embedding: msgspec.Raw | None = None
    tokens: int | None = None
    error: ErrorDetail | None = None


_NUMBER = re.compile(r"^input(\[\d+\]| \d+)")
"""How an error calls the input of a request that is only a part of the list."""

_TEXT, _LINE = msgspec.json.Decoder(str), msgspec.json.Decoder(Line)


class Stream:
    """An ASGI application that answers `PATH`.

    Args:
        registry: The models.
        callers: Who may ask, and on which terms.
        events: Told of every request that a stream makes.
        settings: How much a request and all streams together may hold, and how long nothing of a body may come.
        rounds: As `Incoming`.

    Attributes:
        method: How it is asked.
    """

    method = "POST"

    def __init__(
        self, registry: Registry, callers: Callers, events: Events, settings: Settings, rounds: Rounds
    ) -> None:
        self._registry = registry
        self._callers = callers
        self._events = events
        self._together = min(TOGETHER, settings.max_inputs)
        self._room = Room(settings.stream_spool_mb * 1_000_000)
        self._rounds = rounds
        self._body_timeout_s = settings.body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one stream. What goes wrong with all of it is an error's status, or the last line."""
        trace = trace_of(scope)
        trace.route = PATH
        began = False

        async def begin() -> None:
            nonlocal began
            if not began:
                began = True
                head = [(b"content-type", KIND.encode())]
                await send({"type": "http.response.start", "status": 200, "headers": head})

        async def emit(made: tuple[bytes, Trace]) -> None:
            await begin()
            lines, part = made
            await send({"type": "http.response.body", "body": lines, "more_body": True})
            self._events(part.done(200))

        try:
            await self._run(Incoming(scope, receive, self._registry, self._rounds, self._body_timeout_s), trace, emit)
        except CallerGone:
            trace.status = CLIENT_GONE
            return
        except asyncio.CancelledError:  # the server cancels what is left when the time to drain is over
            failure: VecmillError = ShuttingDown("the server shut down before this stream was done")
        except VecmillError as error:
            failure = error
        except Exception:
            log.exception("an unexpected error at %s", PATH)
            failure = UNEXPECTED
        else:
            trace.route = "" if began else PATH  # what it answered is told already
            await begin()
            await send({"type": "http.response.body", "body": b""})
            return
        if not began:
            await error_response(OPENAI, failure)(scope, receive, send)
            return
        trace.status, said = detail(failure)
        last = msgspec.json.encode({"error": said}) + b"\n"
        await send({"type": "http.response.body", "body": last})

    async def _run(self, incoming: Incoming, trace: Trace, emit: Any) -> None:  # noqa: ANN401 (a function)
        if incoming.method != self.method:
            raise MethodNotAllowed(incoming.method, incoming.path, [self.method])
        if self._registry.closed:
            raise ShuttingDown("the server is shutting down and takes no new work")
        kind = incoming.content_type
        if kind not in {KIND, "application/jsonl", "application/x-jsonlines"}:
            raise UnsupportedMediaType(f"content-type is {kind!r}; send {KIND}, a line of JSON for each text")
        incoming.check_coding()
        caller = self._callers(incoming.headers)
        query = decode_query(incoming.query, StreamQuery)
        trace.tenant, trace.model = caller.tenant, self._registry.get(query.model).name
        caller = replace(caller, weight=caller.weight / UNDER_WAY)  # together they weigh as one request
        spool = Spool(self._room)
        reading = asyncio.create_task(_fill(spool, incoming))
        first = 0

        async def numbered() -> Any:  # noqa: ANN401 (an iterator)
            nonlocal first
            async for lines in spool.lines(self._together):
                yield first, lines
                first += len(lines)

        async def work(given: tuple[int, list[bytes]]) -> tuple[bytes, Trace]:
            return await self._answer(*given, query, incoming, caller, trace)

        try:
            await in_order(numbered(), work, emit, UNDER_WAY)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            spool.close()

    async def _answer(
        self, first: int, lines: Sequence[bytes], query: StreamQuery, incoming: Incoming, caller: Caller, trace: Trace
    ) -> tuple[bytes, Trace]:
        """The lines that answer some, and what is told of them."""
        answered = [Answered(first + place) for place in range(len(lines))]
        texts: dict[int, str] = {}
        for place, line in enumerate(lines):
            try:
                if len(line.rstrip(b"\r\n")) > LONGEST_LINE:
                    raise BodyTooLarge(f"the line has more than {LONGEST_LINE} bytes")
                given = Line(decode(_TEXT, line)) if line.lstrip().startswith(b'"') else decode(_LINE, line)
            except VecmillError as error:
                answered[place].error = detail(error)[1]
            else:
                texts[place], answered[place].id = given.input, given.id
        result = await self._ask(list(texts.values()), query, incoming, caller) if texts else None
        if result is not None:
            fill(answered, list(texts), result, query.encoding_format)
        reply = b"".join(msgspec.json.encode(one) + b"\n" for one in answered)
        return reply, replace(trace, results=[] if result is None else [result])

    async def _ask(self, texts: list[str], query: StreamQuery, incoming: Incoming, caller: Caller) -> Result:
        asked = {name: getattr(query, name) for name in StreamQuery.__struct_fields__}
        ask = as_told(
            parse(EmbeddingsBody(input=[*texts], item_errors=True, **asked), incoming.headers), incoming.headers
        )

        def one() -> Coroutine[Any, Any, Answer]:
            return in_time(answer(ask, self._registry, caller), caller.timeout_s)

        return cast("Result", await with_patience(one))


def fill(answered: Sequence[Answered], places: Sequence[int], result: Result, encoding: str | None) -> None:
    """Give lines their vectors or errors; `places` are the lines that were asked."""
    rows, tokens = iter(encoded(result.rows, encoding=encoding)), iter(result.tokens)
    for number, place in enumerate(places):
        one = answered[place]
        if number in result.errors:
            one.error = detail(result.errors[number])[1]
            one.error.message = _NUMBER.sub(f"line {one.index}", one.error.message, count=1)
        else:
            one.embedding, one.tokens = next(rows), next(tokens)


async def _fill(spool: Spool, incoming: Incoming) -> None:
    """Take the body in as it comes, then look out for the caller's departure."""
    try:
        with incoming:
            more = True
            while more:
                part, more = await incoming.piece()
                spool.write(part)
        spool.end()
        await incoming.departure()
        spool.give_up(CallerGone())
    except CallerGone as failure:
        spool.give_up(failure)
    except VecmillError as failure:
        spool.end(failure)
