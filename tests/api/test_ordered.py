"""Streams: several things at once, the outcomes in order."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from edge import until

from vecmill.api.ordered import in_order

Failed = ZeroDivisionError


class Bench:
    """Work that is done when it is told to, and what became of it."""

    def __init__(self, count: int, *, ends: bool = True) -> None:
        self.count = count
        self.ends = ends
        self.read = 0
        self.begun: list[int] = []
        self.dropped: list[int] = []
        self.emitted: list[int] = []
        self.gates = [asyncio.Event() for _ in range(count)]
        self.fails: set[int] = set()

    async def given(self) -> AsyncIterator[int]:
        """Numbers."""
        for number in range(self.count):
            self.read += 1
            yield number
        if not self.ends:
            await asyncio.Event().wait()

    async def work(self, number: int) -> int:
        """A number, when its gate is open."""
        self.begun.append(number)
        try:
            await self.gates[number].wait()
        except asyncio.CancelledError:
            self.dropped.append(number)
            raise
        if number in self.fails:
            raise Failed
        return number

    async def emit(self, number: int) -> None:
        """Take one."""
        self.emitted.append(number)

    def start(self, most: int) -> "asyncio.Task[None]":
        """Work on all of it."""
        return asyncio.create_task(in_order(self.given(), self.work, self.emit, most))


async def test_outcomes_keep_their_order() -> None:
    """What is done early waits for what came before it."""
    bench = Bench(3)
    task = bench.start(3)
    await until(lambda: len(bench.begun) == 3)
    bench.gates[2].set()
    bench.gates[1].set()
    await asyncio.sleep(0.01)
    assert bench.emitted == []
    bench.gates[0].set()
    await task
    assert bench.emitted == [0, 1, 2]


async def test_there_is_a_bound() -> None:
    """No more are begun than there is room, whether they are done or not; one more is read."""
    bench = Bench(10)
    task = bench.start(4)
    for gate in bench.gates[1:]:
        gate.set()
    await until(lambda: bench.read == 5)
    await asyncio.sleep(0.01)
    assert (bench.begun, bench.read) == ([0, 1, 2, 3], 5)
    bench.gates[0].set()
    await task
    assert bench.emitted == list(range(10))


async def test_a_failure_ends_it() -> None:
    """What came before is emitted, what came after is dropped, also where more would come."""
    bench = Bench(4, ends=False)
    bench.fails = {1}
    task = bench.start(9)
    await until(lambda: len(bench.begun) == 4)
    bench.gates[1].set()
    bench.gates[0].set()
    with pytest.raises(Failed):
        await task
    assert (bench.emitted, sorted(bench.dropped)) == ([0], [2, 3])


async def test_cancelling_it_drops_all() -> None:
    """Nothing goes on working when nobody waits."""
    bench = Bench(3, ends=False)
    task = bench.start(9)
    await until(lambda: len(bench.begun) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(bench.dropped) == [0, 1, 2]


async def test_a_source_that_fails() -> None:
    """What was given before is emitted, then the failure is told."""

    async def given() -> AsyncIterator[int]:
        yield 0
        raise Failed

    bench = Bench(1)
    bench.gates[0].set()
    with pytest.raises(Failed):
        await in_order(given(), bench.work, bench.emit, 2)
    assert bench.emitted == [0]
