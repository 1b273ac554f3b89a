"""The place of one worker, which one process after the other takes."""

import asyncio
import contextlib
import logging
import signal
from dataclasses import dataclass, field

from vecmill.api import pages
from vecmill.api.channel import Channel

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""What a worker gets beyond the time to drain before it is killed."""

LEAVE_S = 10.0
"""How long a worker may take to say that it leaves; one that is silent for so long hangs."""


@dataclass(slots=True, eq=False)
class Worker:
    """A place.

    Attributes:
        number: From 1.
        process: The present one.
        channel: To it.
        ready: Set while it answers.
        ready_at: When it began to; of the loop's clock.
        page: What it counted when it was last asked.
        failure: What it said that it cannot start for.
        failures: Deaths in a row.
        asked: Whether it was asked to end.
    """

    number: int
    process: asyncio.subprocess.Process | None = None
    channel: Channel | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ready_at: float = 0.0
    page: pages.Page = field(default_factory=dict)
    failure: str = ""
    failures: int = 0
    asked: bool = False

    def send(self, number: signal.Signals) -> None:
        """Send its process a signal, if there is one."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def leave(self, drain_timeout_s: float) -> None:
        """Have its process finish what it has and end; one that does not say so, or not end, in time is killed."""
        process, channel = self.process, self.channel
        if process is None or channel is None:
            return  # it has ended by itself
        self.asked = True
        self.ready.clear()
        try:
            await asyncio.wait_for(channel.ask("leave"), LEAVE_S)
            # Calls of gRPC have their time, and then requests of HTTP.
            await asyncio.wait_for(process.wait(), 2 * drain_timeout_s + GRACE_S)
        except TimeoutError:
            log.warning("worker %d does not end; it is killed", self.number)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        except ConnectionError:
            pass  # it has ended meanwhile
