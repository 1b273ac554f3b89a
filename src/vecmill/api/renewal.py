"""Workers replaced one after the other, so that at every moment all others answer."""

import asyncio
import logging
from collections.abc import Sequence

from vecmill.api.place import Worker

log = logging.getLogger(__name__)


class Renewal:
    """Replaces workers when it is asked to, one round at a time.

    Args:
        workers: Their places; whoever keeps them starts another process where one has ended.
        drain_timeout_s: What accepted requests get to finish.
    """

    def __init__(self, workers: Sequence[Worker], drain_timeout_s: float) -> None:
        self._workers = workers
        self._drain_timeout_s = drain_timeout_s
        self._wanted = asyncio.Event()

    def ask(self) -> None:
        """Have all replaced. Asked during a round, one more follows it: the files may have changed since it began."""
        self._wanted.set()

    async def run(self) -> None:
        """Replace whenever it is asked for, until this is cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            log.info("replacing the workers, one by one")
            for worker in self._workers:
                await self._all_ready()
                await worker.leave(self._drain_timeout_s)
            await self._all_ready()
            log.info("all workers are replaced")

    async def _all_ready(self) -> None:
        """Wait until every worker answers, those too that were lost meanwhile."""
        while waiting := [worker for worker in self._workers if not worker.ready.is_set()]:
            await waiting[0].ready.wait()
