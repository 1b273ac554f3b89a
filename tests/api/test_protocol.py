"""A connection: offers of another protocol, as `curl --http2` and Java's client make them, and heads without end."""

import asyncio
from typing import Any

import pytest
import uvicorn
from edge import until
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from vecmill.api.protocol import MOST_HEAD, Protocol

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"


class Wire(asyncio.Transport):
    """What the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        """Some bytes."""
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        """Whether it is over."""
        return self.closed

    def close(self) -> None:
        """It is over."""
        self.closed = True

    def pause_reading(self) -> None:
        """Nothing more is given."""

    def resume_reading(self) -> None:
        """More may be given."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer method, path and body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    said = b"<%s %s %s>" % (scope["method"].encode(), scope["path"].encode(), body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


def post(body: bytes, *headers: bytes, path: bytes = b"/a") -> bytes:
    """A request of a known length."""
    head = [b"POST ", path, b" HTTP/1.1\r\nHost: x\r\nContent-Length: ", b"%d" % len(body), b"\r\n", *headers, b"\r\n"]
    return b"".join(head) + body


CHUNKED = (
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + OFFER + b"\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
)


def connected() -> tuple[Protocol, Wire]:
    """A new connection to `echo`, and its other end."""
    config = uvicorn.Config(echo, http=Protocol, ws="none", lifespan="off", log_config=None)
    protocol, wire = Protocol(config, ServerState(), {}), Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def asked(protocol: Protocol, wire: Wire, *parts: bytes, answers: list[bytes]) -> None:
    """The connection says these answers to what comes in these parts."""
    for part in parts:
        protocol.data_received(part)
        await asyncio.sleep(0)
    await until(lambda: wire.sent.count(b">") == len(answers))
    said = [part.partition(b"<")[2] for part in wire.sent.split(b">")[:-1]]
    assert said == answers
    assert wire.sent.count(b"HTTP/1.1 200") == len(answers)


@pytest.mark.parametrize("asking", [post(b"hello", OFFER), CHUNKED], ids=["length", "chunked"])
async def test_the_body_is_read_wherever_it_is_cut(asking: bytes) -> None:
    """In the head's segment or in later ones, of a known length or not: the body is the request's."""
    for cut in range(1, len(asking), 7):
        protocol, wire = connected()
        await asked(protocol, wire, asking[:cut], asking[cut:], answers=[b"POST /a hello"])
        assert not wire.closed


async def test_requests_one_after_the_other() -> None:
    """What follows in the same segment is answered too, whichever of them has the offer."""
    protocol, wire = connected()
    parts = [post(b"1", path=b"/plain"), post(b"2", OFFER), post(b"3", OFFER), CHUNKED, post(b"5")]
    answers = [b"POST /plain 1", b"POST /a 2", b"POST /a 3", b"POST /a hello", b"POST /a 5"]
    await asked(protocol, wire, b"".join(parts), answers=answers)
    await asyncio.sleep(0)
    wire.sent = b""
    await asked(protocol, wire, post(b"6", OFFER), answers=[b"POST /a 6"])


async def test_thousands_in_one_segment() -> None:
    """However many offers a segment holds, all are answered."""
    protocol, wire = connected()
    await asked(protocol, wire, post(b"x", OFFER) * 3000, answers=[b"POST /a x"] * 3000)


async def test_the_end_that_was_asked_for() -> None:
    """Who wants the connection closed beside the offer, or speaks 1.0, has it closed."""
    closing = post(b"x", OFFER.replace(b"Upgrade,", b"close, Upgrade,"))
    for request in (closing, post(b"x", OFFER).replace(b"HTTP/1.1", b"HTTP/1.0")):
        protocol, wire = connected()
        await asked(protocol, wire, request, answers=[b"POST /a x"])
        assert wire.closed


async def test_another_protocol_is_never_begun() -> None:
    """A websocket's request is one like others."""
    protocol, wire = connected()
    offer = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
    await asked(protocol, wire, b"GET /a HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n", answers=[b"GET /a "])


async def test_a_tunnel_is_refused() -> None:
    """CONNECT asks for what is not there."""
    protocol, wire = connected()
    protocol.data_received(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\nrest")
    await asyncio.sleep(0)
    assert wire.sent.startswith(b"HTTP/1.1 400 ")
    assert wire.closed


HEAD = b"POST /a HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a" * 1000),
        (HEAD + b"X-A: ", b"a" * 1000),
        (HEAD, b"X-A: a\r\n" * 100),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-A: a\r\n" * 100),
    ],
    ids=["path", "header", "headers", "trailers"],
)
async def test_a_head_without_end_is_refused(begin: bytes, more: bytes) -> None:
    """What may be kept of a request before anyone asks who sends it has a bound, wherever it stands."""
    protocol, wire = connected()
    protocol.data_received(post(b"x" * 3 * MOST_HEAD) + begin)
    given = 0
    while not wire.closed and given <= 2 * MOST_HEAD:
        protocol.data_received(more)
        given += len(more)
    assert MOST_HEAD - 1000 < given <= MOST_HEAD + 1000
    assert wire.sent.startswith(b"HTTP/1.1 431 ")


async def test_a_body_is_no_head() -> None:
    """Bodies have a bound of their own, in however many pieces they come."""
    protocol, wire = connected()
    body = b"x" * 4 * MOST_HEAD
    parts = [post(body)[start : start + 9000] for start in range(0, len(post(body)), 9000)]
    await asked(protocol, wire, *parts, answers=[b"POST /a " + body])
