"""Head and body of an answer in one packet.

Uvicorn writes them one after the other, each at the cost of a system call and of waking whoever reads.
"""

import asyncio
from typing import Any


class Corked:
    """A transport that holds what is written back until the next write, or until the loop's next turn.

    Args:
        transport: What writes; everything else is its own.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def write(self, data: bytes) -> None:
        """Write what is held and this; or hold this."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines([held, data])
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close when everything is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (the transport's own)
        return getattr(self._transport, name)
