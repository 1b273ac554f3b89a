"""One of several processes that serve on one port: what it is told by its parent, and what it tells.

usage: python -m vecmill.api.worker LISTENER CHANNEL       (descriptors; the rest comes through standard input)
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from dataclasses import replace

from vecmill.api.channel import Channel, Start
from vecmill.api.log import configure_logging
from vecmill.api.metrics import Metrics
from vecmill.api.server import Serving, run
from vecmill.engine.base import usable_cpus
from vecmill.errors import StartError
from vecmill.serving.registry import Registry, names

LOOK_S = 0.5
"""How often a worker looks whether a model of its own is broken."""


class Shared(Metrics):
    """Metrics of a worker: the page is everyone's."""

    channel: Channel

    async def page(self) -> bytes:
        """The sum over all workers, from the parent; this worker's own where the parent is gone."""
        try:
            return (await self.channel.ask("metrics")).encode()
        except ConnectionError:
            return self.text()


class Worker:
    """A serving process among others.

    Args:
        start: What it begins with.
        channel: To the parent.

    Raises:
        StartError: A setting makes no sense.
    """

    def __init__(self, start: Start, channel: Channel) -> None:
        settings = start.settings
        threads = settings.threads or max(1, usable_cpus() // settings.workers)
        self._channel = channel
        self._alone = start.alone
        self._broken = False
        self._registry = Registry(names(start.references))
        self._registry.held = not start.begun
        self._metrics = Shared(self._registry)
        self._metrics.channel = channel
        settings = replace(settings, threads=threads)
        self._serving = Serving(start.references, settings, self._registry, self._metrics, self._ready, keys=start.keys)

    async def run(self, listener: socket.socket) -> bool:
        """Serve until the parent says so or is gone; whether what was accepted was finished.

        Raises:
            StartError: As `vecmill.api.server.serve`.
        """
        self._hearing = asyncio.create_task(self._hear())
        looking = asyncio.create_task(self._look())
        finished = await self._serving.run(listener, quiet=not self._alone)
        looking.cancel()
        await self._say("last", self._metrics.text().decode())
        return finished and not self._broken

    async def _look(self) -> None:
        """Make room for another worker when a model is broken: a new process may well load it."""
        while True:
            await asyncio.sleep(LOOK_S)
            if broken := self._registry.broken:
                self._broken = True
                await self._say("failed", f"{', '.join(broken)} does not answer any more")
                await self._serving.leave()
                return

    async def _hear(self) -> None:
        """Answer the parent; without one, drain as after a signal."""
        await self._channel.run({"page": self._page, "begun": self._begun, "leave": self._leave})
        if not self._registry.draining:
            self._serving.stop()

    def _ready(self, banner: str) -> None:
        self._channel.tell("ready", banner)

    async def _say(self, word: str, text: str) -> None:
        with contextlib.suppress(ConnectionError):  # the parent was killed
            await self._channel.ask(word, text)

    async def _page(self, _: str) -> str:
        return self._metrics.text().decode()

    async def _begun(self, _: str) -> str:
        self._registry.held = False
        return ""

    async def _leave(self, _: str) -> str:
        self._leaving = asyncio.create_task(self._serving.leave())
        return ""


async def work(start: Start, listener: socket.socket, end: socket.socket) -> bool:
    """Serve on a listener with a channel to the parent, who is told why where it cannot be; whether it ended well."""
    channel = await Channel.open(end)
    try:
        return await Worker(start, channel).run(listener)
    except StartError as error:
        channel.tell("failed", str(error))
        await channel.close()
        return False


def main() -> None:
    """Run a worker to its end."""
    listener, end = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    start = Start.read(sys.stdin.buffer.read())
    configure_logging(start.settings.log_level, f"worker {start.number}")
    finished = run(work(start, listener, end))
    # As in the command: the engine's thread may still be inside a run.
    logging.shutdown()
    os._exit(0 if finished else 1)


if __name__ == "__main__":
    main()
