"""Work that waits for futures, written once: an event loop or a thread does the waiting."""

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from vecmill.serving.ending import Ending

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Wait:
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
        future.at_end(partial(_tell, loop, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise
    return future.result()


def _tell(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended before
        loop.call_soon_threadsafe(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


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
