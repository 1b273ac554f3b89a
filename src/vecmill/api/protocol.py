"""A connection: uvicorn's HTTP, whose writes go out together and which never becomes another protocol."""

import asyncio
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vecmill.api.corked import Corked

MOST_HEAD = 64 * 1024
"""Bytes of a request besides its body from which on it is refused: they are kept in memory before anyone is asked for a
key. As much more may come with the packet that passes it."""


TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 37\r\n\r\nThe request's head is beyond 64 KiB.\n"
)
"""Where no head is there is no path, thus no dialect."""


class Protocol(HttpToolsProtocol):
    """A request that offers another protocol (`Upgrade: h2c`: curl --http2, Java's client) is answered in this one.

    The parser takes what follows such a request's head for the other protocol, and the body would be lost. So it is
    begun anew with the head without the offer.
    """

    _head_bytes = 0
    _offers = False  # the request at which the parser is: another protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP has no other
        """A client has connected."""
        super().connection_made(cast("asyncio.Transport", Corked(transport)))

    def data_received(self, data: bytes) -> None:
        """More has come."""
        self._unset_keepalive_if_required()
        self._head_bytes += len(data)
        rest = memoryview(data)
        try:
            while not self._read(rest):
                rest = rest[self._other_from :]
                self._begin_anew()
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._head_bytes > MOST_HEAD and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        """A part of a body is there: it has a bound of its own."""
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """A head is there; one with an offer comes once more without it."""
        self._head_bytes = 0
        # CONNECT asks for another protocol too, and is refused.
        self._offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._offers:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is there as a whole."""
        self._head_bytes = 0
        if not self._offers:
            super().on_message_complete()

    def _read(self, data: memoryview) -> bool:
        """Parse; False where a head with an offer ended at `_other_from`."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as other:
            self._other_from: int = other.args[0]
            return not self._offers
        return True

    def _begin_anew(self) -> None:
        """Parse the head that was parsed last again, on a new parser, without its offer."""
        version = self.parser.get_http_version().encode()
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self.parser.feed_data(b"".join([*head, b"\r\n"]))
