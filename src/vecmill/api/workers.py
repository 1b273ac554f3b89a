"""Several processes on one port: a parent that starts them, replaces those that die, and adds up what they count."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from dataclasses import replace

from vecmill.api import pages
from vecmill.api.channel import Start, spawn
from vecmill.api.keys import Keys, read_keys
from vecmill.api.listen import listen, share_grpc
from vecmill.api.place import GRACE_S, Worker
from vecmill.api.renewal import Renewal
from vecmill.config import Settings
from vecmill.errors import BadSettings, StartError

log = logging.getLogger(__name__)

FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 30.0
"""Before a worker is started again that has died twice, and what that doubles to."""

STEADY_S = 60.0
"""A worker that was ready for so long begins with a clean record."""

MOST_STARTS = 5
"""So many starts in a row may fail while no worker answers; then the server ends."""

PAGE_S = 2.0
"""How long a worker may take to say what it counted; then what it said before stands."""

COUNTS = """\
# HELP vecmill_workers_ready Workers that answer
# TYPE vecmill_workers_ready gauge
vecmill_workers_ready {ready}
# HELP vecmill_workers_lost_total Workers that ended unasked
# TYPE vecmill_workers_lost_total counter
vecmill_workers_lost_total {lost}
"""
"""What only the parent knows."""


def serve(references: list[str], settings: Settings) -> bool:
    """Serve models in `settings.workers` processes until a signal.

    Args:
        references: The models, as `vecmill.model.source.parse` takes them.
        settings: Everything else.

    Returns:
        Whether accepted work was finished by every worker.

    Raises:
        StartError: The address is taken, or no worker can start: then it is what the worker said.
    """
    if os.name != "posix":
        raise BadSettings(f"workers is {settings.workers}; on {sys.platform} there can be 1")
    keys = read_keys(settings)
    settings = replace(settings, api_key="", tenants=None)  # no worker reads them again
    with listen(settings.host, settings.port, "--port") as listener:
        grpc = share_grpc(settings)
        if grpc is not None:
            settings = replace(settings, grpc_port=grpc.getsockname()[1])
        try:
            return asyncio.run(Workers(references, settings, keys, listener).run())
        finally:
            if grpc is not None:
                grpc.close()


class Workers:
    """The parent of the processes that serve.

    Args:
        references: The models.
        settings: Everything else.
        keys: Whose requests are answered.
        listener: Where all of them take connections from.
    """

    def __init__(self, references: list[str], settings: Settings, keys: Keys, listener: socket.socket) -> None:
        self._references = references
        self._settings = settings
        self._keys = keys
        self._listener = listener
        self._workers = [Worker(number) for number in range(1, settings.workers + 1)]
        self._stopping = asyncio.Event()
        self._begun = False
        self._clean = True
        self._failure: StartError | None = None
        self._kept: pages.Page = {}
        self._lost = 0
        self._renewal = Renewal(self._workers, settings.drain_timeout_s)

    async def run(self) -> bool:
        """Keep all of them running until a signal; whether each ended well.

        Raises:
            StartError: None can start.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._renewal.ask)
        renewing = loop.create_task(self._renewal.run())
        first, *others = self._workers
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(first))  # fetches and prepares the models: the others find them
            await _either(first.ready, self._stopping)
            for worker in others:
                group.create_task(self._keep(worker))
            await self._stopping.wait()
            renewing.cancel()  # who leaves now drains as the others do
        if self._failure:
            raise self._failure
        return self._clean

    def _stop(self) -> None:
        """Let all drain, or at the second signal stop; each worker knows which."""
        self._listener.close()  # each worker has it too; when the last closes it, connections are refused
        if not self._stopping.is_set():
            bound = self._settings.drain_s + GRACE_S
            asyncio.get_running_loop().call_later(bound, self._kill)
        self._stopping.set()
        for worker in self._workers:
            worker.send(signal.SIGTERM)

    def _kill(self) -> None:
        """End what did not end in its time."""
        for worker in self._workers:
            worker.send(signal.SIGKILL)

    async def _keep(self, worker: Worker) -> None:
        """Keep a process in a worker's place."""
        while not self._stopping.is_set():
            try:
                code = await self._one(worker)
            except OSError as error:  # too many processes or files, or too little memory, for now
                await self._again(worker, f"could not start: {error.strerror or error}")
                continue
            if self._stopping.is_set():
                self._clean &= code == 0 or (code == -signal.SIGTERM and not worker.ready_at)
            elif worker.asked:
                worker.asked = False
            else:
                self._lost += 1
                await self._again(worker, f"ended with {f'signal {-code}' if code < 0 else f'status {code}'}")

    async def _again(self, worker: Worker, how: str) -> None:
        """Wait before a lost process is replaced, or give up where none can be."""
        steady = worker.ready_at and asyncio.get_running_loop().time() - worker.ready_at > STEADY_S
        worker.failures = 1 if steady else worker.failures + 1
        alone = not any(other.ready.is_set() for other in self._workers)
        if alone and ((worker.failure and not self._begun) or worker.failures >= MOST_STARTS):
            lost = f"worker {worker.number} failed {worker.failures} times in a row; the last time it {how}"
            self._failure = self._failure or StartError(worker.failure or lost)
            self._stop()
            return
        delay = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (worker.failures - 2)) if worker.failures > 1 else 0.0
        why = f": {worker.failure}" if worker.failure else ""
        log.warning("worker %d %s%s; another starts in %g s", worker.number, how, why, delay)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay)

    async def _one(self, worker: Worker) -> int:
        """Run one process to its end; its exit status.

        Raises:
            OSError: There can be no process now.
        """
        worker.failure, worker.ready_at = "", 0.0
        process, channel = await spawn("vecmill.api.worker", self._listener)
        worker.process, worker.channel = process, channel
        alone = not any(other.ready.is_set() for other in self._workers)
        start = Start(worker.number, self._references, self._settings, self._keys, alone=alone, begun=self._begun)
        assert process.stdin is not None  # noqa: S101 (a pipe)
        process.stdin.write(start.written())
        process.stdin.close()
        if self._stopping.is_set():
            worker.send(signal.SIGTERM)

        async def ready(banner: str) -> str:
            await self._ready(worker, banner)
            return ""

        async def failed(line: str) -> str:
            worker.failure = line
            worker.ready.clear()
            return ""

        async def last(page: str) -> str:
            worker.page = pages.read(page)
            return ""

        await channel.run({"ready": ready, "failed": failed, "last": last, "metrics": self._metrics})
        worker.ready.clear()
        code = await self._end(process)
        worker.process = worker.channel = None
        self._kept = pages.add([self._kept, pages.kept(worker.page)])
        worker.page = {}
        return code

    async def _end(self, process: asyncio.subprocess.Process) -> int:
        """The exit status of a process that has closed its channel, or hangs at that."""
        try:
            return await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            process.kill()
            return await process.wait()

    async def _ready(self, worker: Worker, banner: str) -> None:
        """A worker answers; when all do the server is ready, and says so once."""
        worker.ready_at = asyncio.get_running_loop().time()
        worker.ready.set()
        log.info("worker %d is ready, process %d", worker.number, worker.process.pid if worker.process else 0)
        if not self._begun and all(one.ready.is_set() for one in self._workers):
            self._begun = True
            channels = [one.channel for one in self._workers if one.channel]
            await asyncio.gather(*(channel.ask("begun") for channel in channels), return_exceptions=True)
            print(banner, flush=True)  # noqa: T201 (the command's own output)

    async def _metrics(self, _: str) -> str:
        """What all count together, and counted that are no more."""
        await asyncio.gather(*(self._ask_page(worker) for worker in self._workers))
        ready = sum(worker.ready.is_set() for worker in self._workers)
        own = pages.read(COUNTS.format(ready=ready, lost=self._lost))
        return pages.write(pages.add([*(worker.page for worker in self._workers), self._kept, own]))

    async def _ask_page(self, worker: Worker) -> None:
        if worker.channel is None:
            return
        with contextlib.suppress(ConnectionError, TimeoutError):
            worker.page = pages.read(await asyncio.wait_for(worker.channel.ask("page"), PAGE_S))


async def _either(*events: asyncio.Event) -> None:
    """Wait for the first of these."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
