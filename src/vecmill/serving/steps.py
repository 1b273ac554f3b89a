"""Work that waits for futures, written once: an event loop or a thread does the waiting."""

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Wait:
    """What a step waits for; its result or its error is sent back into the work.

    Attributes:
        future: Whoever gives up waiting cancels it.
        timeout_s: Seconds after which the step gets TimeoutError instead; None waits as long as it takes.
    """

    future: Future[Any]
    timeout_s: float | None = None


Steps = Generator[Wait, Any, Made]


async def on_loop(steps: Steps[Made]) -> Made:
    """Do the work without blocking the event loop. Cancelling the call closes the work."""
    try:
        wait = next(steps)
        while True:
            waiting = asyncio.wrap_future(wait.future)
            try:
                got = await (waiting if wait.timeout_s is None else asyncio.wait_for(waiting, wait.timeout_s))
            except Exception as error:  # noqa: BLE001 (the work's own to handle)
                wait = steps.throw(error)
            else:
                wait = steps.send(got)
    except StopIteration as done:
        made: Made = done.value
        return made
    finally:
        steps.close()


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
