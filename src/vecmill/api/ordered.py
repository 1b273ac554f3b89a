"""Work on a stream: several things at once, the outcomes in order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


async def in_order(
    given: AsyncIterator[Given],
    work: Callable[[Given], Coroutine[Any, Any, Made]],
    emit: Callable[[Made], Awaitable[None]],
    most: int,
) -> None:
    """Emit what comes of each thing in the order in which they came, as soon as it is there.

    What fails ends it, once all before it is emitted. However it ends, nothing goes on working.

    Args:
        given: What comes; read on while there is room.
        work: Makes something of one.
        emit: Takes it.
        most: How many may be worked on or wait to be emitted.
    """
    room = asyncio.Semaphore(most)
    begun: asyncio.Queue[asyncio.Task[Made] | None] = asyncio.Queue()
    tasks: set[asyncio.Task[Any]] = set()

    def begin(doing: Coroutine[Any, Any, Made]) -> asyncio.Task[Made]:
        task = asyncio.create_task(doing)
        tasks.add(task)
        return task

    async def read() -> None:
        try:
            async for one in given:
                await room.acquire()
                begun.put_nowait(begin(work(one)))
        finally:
            begun.put_nowait(None)

    reader = asyncio.create_task(read())
    try:
        while (task := await begun.get()) is not None:
            await emit(await task)
            tasks.discard(task)
            room.release()
        await reader
    finally:
        for left in (reader, *tasks):
            left.cancel()
        await asyncio.gather(reader, *tasks, return_exceptions=True)
