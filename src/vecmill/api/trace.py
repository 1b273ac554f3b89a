"""What is known of a request while it is answered; and the middleware around every answer: its id and its event."""

import os
import re
from itertools import count

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vecmill.core import Result
from vecmill.serving.events import Events, RequestDone

_GOOD_ID = re.compile(r"[\w.:/+=@-]{1,128}", re.ASCII)
_PROCESS = os.urandom(10).hex()
_NUMBERS = count(1)


class Trace(msgspec.Struct):
    """One request's story.

    Attributes:
        request_id: The caller's x-request-id, or one of ours.
        route: Canonical path of the route; "" where none was found.
        model: Served name; "" where the request named none that is served.
        tenant: Whose request it is; "" where no keys are asked for, or none was right.
        status: What counts in place of the answer's own status, which was sent before it was known; 0 is none.
        results: The answers with numbers; none where there is none, several where one request held several.
    """

    request_id: str
    route: str = ""
    model: str = ""
    tenant: str = ""
    status: int = 0
    results: list[Result] = msgspec.field(default_factory=list)

    def done(self, status: int) -> RequestDone:
        """The event of a request answered with this status."""
        if not self.results:
            return RequestDone(self.model, self.route, status, self.tenant)
        inputs = tokens = truncated = cached = 0
        slowest = self.results[0].timings
        for one in self.results:
            inputs += len(one.tokens)
            tokens += sum(one.tokens)
            truncated += one.truncated
            cached += one.cached
            if one.timings.total_s > slowest.total_s:
                slowest = one.timings
        return RequestDone(self.model, self.route, status, self.tenant, inputs, tokens, truncated, cached, slowest)


def trace_of(scope: Scope) -> Trace:
    """The trace that `Traced` laid into the scope."""
    trace: Trace = scope["vecmill.trace"]
    return trace


class Traced:
    """Middleware: every answer carries x-request-id, and every answer to a dialect's route is an event.

    Args:
        app: What answers.
        events: Told of answers.
    """

    def __init__(self, app: ASGIApp, events: Events) -> None:
        self._app = app
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = ""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value.decode("latin-1")
                break
        trace = Trace(request_id(given))
        scope["vecmill.trace"] = trace
        header = (b"x-request-id", trace.request_id.encode())
        status = 0

        async def send_traced(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], header]
            await send(message)

        try:
            await self._app(scope, receive, send_traced)
        finally:  # told after the answer is out, so that nobody waits for it
            if trace.route and (counted := trace.status or status):
                self._events(trace.done(counted))


def request_id(given: str) -> str:
    """The caller's own where it is one, else one of ours."""
    return given if given and _GOOD_ID.fullmatch(given) else f"req-{_PROCESS}{next(_NUMBERS):012x}"
