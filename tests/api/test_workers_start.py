"""A parent whose machine has no process to spare."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from vecmill.api import workers
from vecmill.api.workers import MOST_STARTS, Workers
from vecmill.config import Settings
from vecmill.errors import StartError

FULL = OSError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Workers:
    """A parent of two workers that waits for nothing before it tries again."""
    monkeypatch.setattr(workers, "FIRST_DELAY_S", 0.0)
    with socket.socket() as listener:
        return Workers(["nothing"], Settings(workers=2), {}, listener)


def failing(times: int, then: Callable[[], None] = lambda: None) -> tuple[list[int], Any]:
    """A start of processes that fails so many times, then does something and fails for good; and its calls."""
    calls: list[int] = []

    async def spawn(*_: object) -> NoReturn:
        calls.append(len(calls))
        if len(calls) == times:
            then()
        raise FULL

    return calls, spawn


async def test_it_is_tried_again(parent: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another worker answers, a process that cannot be started is tried again until it can."""
    calls, spawn = failing(3 * MOST_STARTS, parent._stop)
    monkeypatch.setattr(workers, "spawn", spawn)
    first, second = parent._workers
    first.ready.set()
    await asyncio.wait_for(parent._keep(second), 10)
    assert len(calls) == 3 * MOST_STARTS
    assert parent._failure is None
    assert parent._lost == 0


async def test_it_is_given_up_where_nobody_answers(parent: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no worker is, a few tries are enough, and the line says what was missing."""
    calls, spawn = failing(0)
    monkeypatch.setattr(workers, "spawn", spawn)
    with pytest.raises(StartError, match=r"5 times .* could not start: Resource temporarily unavailable"):
        await asyncio.wait_for(parent.run(), 10)
    assert len(calls) == MOST_STARTS
