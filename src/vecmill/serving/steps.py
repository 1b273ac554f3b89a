"""Work that waits for futures, written once: an event loop or a thread does the waiting."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

import msgspec

from vecmill.serving.ending import Ending

log = logging.getLogger(__name__)

Made = TypeVar("Made")


class Wait(msgspec.Struct, frozen=True):
    """What a step waits for; its result or its error is sent back into the work.

    Attributes:
        future: Whoever gives up waiting cancels it.
        timeout_s: Seconds after which the step gets TimeoutError instead; None waits as long as it takes.
    """

    future: Ending[Any]
    timeout_s: float | None = None


Steps = Generator[Wait, Any, Made]


async def on_loop(steps: Steps[Made]) -> Made:
    """Do the work without blocking the event loop. Cancelling the call closes the work."""
    try:
        wait = next(steps)
        while True:
            ended = _ended(wait.future)
            try:
                got = await (ended if wait.timeout_s is None else asyncio.wait_for(ended, wait.timeout_s))
            except Exception as error:  # noqa: BLE001 (the work's own to handle)
                wait = steps.throw(error)
            else:
                wait = steps.send(got)
    except StopIteration as done:
        made: Made = done.value
        return made
    finally:
        steps.close()


async def _ended(future: Ending[Made]) -> Made:
    """What it ends with; cancelling the call cancels it."""
    if not future.done():
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        future.at_end(partial(_bell_of(loop).ring, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise
    return future.result()


class Bell:
    """Wakes those who wait on an event loop, from other threads: as many as a batch answers at once.

    Args:
        loop: Where they wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._rung = False

    def ring(self, waiter: asyncio.Future[None]) -> None:
        """Wake this one, with those that were rung for and are not awake yet."""
        self._waiters.append(waiter)
        if not self._rung:
            self._rung = True
            try:
                self.loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                log.debug("the loop has ended before what it waited for")

    def _wake(self) -> None:
        self._rung = False  # before anyone is looked for: who comes meanwhile rings again
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


_here = threading.local()


def _bell_of(loop: asyncio.AbstractEventLoop) -> Bell:
    """The bell of the loop that runs on this thread."""
    bell: Bell | None = getattr(_here, "bell", None)
    if bell is None or bell.loop is not loop:
        bell = _here.bell = Bell(loop)
    return bell


async def together(*calls: Coroutine[Any, Any, Made]) -> list[Made]:
    """What all of them return; where one fails, or the call is cancelled, the others are cancelled too."""
    tasks = [asyncio.ensure_future(one) for one in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def on_thread(steps: Steps[Made]) -> Made:
    """Do the work on this thread, which waits."""
    try:
        wait = next(steps)
        while True:
            try:
                got = wait.future.result(wait.timeout_s)
            except Exception as error:  # noqa: BLE001 (the work's own to handle)
                wait = steps.throw(error)
            else:
                wait = steps.send(got)
    except StopIteration as done:
        made: Made = done.value
        return made
    finally:
        steps.close()
