"""Workers are replaced one by one, and none leaves while another is away."""

import asyncio
import signal
import socket
import sys

import pytest

from vecmill.api import place
from vecmill.api.channel import Channel
from vecmill.api.place import Worker
from vecmill.api.renewal import Renewal

LEAVING = """
import socket, sys
end = socket.socket(fileno=int(sys.argv[1])).makefile("rw")
for line in end:
    end.write('[0,"","",false]\\n')
    end.flush()
    if sys.argv[2] == "ends":
        break
"""
"""A process that answers on its channel, and then ends or stays."""


async def in_place(how: str) -> tuple[Worker, asyncio.Task[None]]:
    """A worker whose process is to leave so, and what reads its channel."""
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = ("-c", LEAVING, str(theirs.fileno()), how)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, pass_fds=[theirs.fileno()])
    worker = Worker(1, process, await Channel.open(ours))
    worker.ready.set()
    assert worker.channel
    return worker, asyncio.create_task(worker.channel.run({}))


@pytest.mark.parametrize(("how", "code"), [("ends", 0), ("stays", -signal.SIGKILL), ("stopped", -signal.SIGKILL)])
async def test_a_worker_that_does_not_leave_is_killed(monkeypatch: pytest.MonkeyPatch, how: str, code: int) -> None:
    """One that ends does so by itself; one that hangs, before it says that it leaves or after, is killed."""
    worker, reading = await in_place(how)
    assert worker.process
    if how == "stopped":
        monkeypatch.setattr(place, "LEAVE_S", 0.2)
        worker.send(signal.SIGSTOP)
    monkeypatch.setattr(place, "GRACE_S", 30.0 if how == "ends" else 0.2)
    async with asyncio.timeout(60):
        await worker.leave(0.0)
        assert await worker.process.wait() == code
        await reading
    assert (worker.asked, worker.ready.is_set()) == (True, False)


class Played(Worker):
    """A worker whose process ends at once when it is asked to, and that says who was ready then."""

    others: list[Worker]
    left: list[tuple[int, bool]]

    async def leave(self, _: float) -> None:
        """Say so, and be away until somebody sets `ready`."""
        self.left.append((self.number, all(other.ready.is_set() for other in self.others)))
        self.ready.clear()


def of(number: int) -> tuple[list[Played], list[tuple[int, bool]]]:
    """So many workers, all ready, and who of them has left, with whether all were ready."""
    workers, left = [Played(one) for one in range(1, number + 1)], list[tuple[int, bool]]()
    for worker in workers:
        worker.others, worker.left = list(workers), left
        worker.ready.set()
    return workers, left


async def settle() -> None:
    """Let all go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_round_at_a_time() -> None:
    """Asked twice within a round, one more follows it; in each every worker leaves once, and none while one is away."""
    workers, left = of(3)
    renewal = Renewal(workers, 0.0)
    running = asyncio.create_task(renewal.run())
    renewal.ask()
    await settle()
    assert left == [(1, True)]
    renewal.ask()
    renewal.ask()
    for _ in range(20):
        await settle()
        for worker in workers:
            worker.ready.set()
    assert left == [(number, True) for number in (1, 2, 3)] * 2
    running.cancel()


async def test_nobody_leaves_while_another_is_lost() -> None:
    """A round waits for a worker that was lost, before it and within it."""
    workers, left = of(2)
    renewal = Renewal(workers, 0.0)
    running = asyncio.create_task(renewal.run())
    workers[1].ready.clear()
    renewal.ask()
    await settle()
    assert left == []
    workers[1].ready.set()
    await settle()
    workers[1].ready.clear()
    workers[0].ready.set()
    await settle()
    assert left == [(1, True)]
    workers[1].ready.set()
    await settle()
    assert left == [(1, True), (2, True)]
    running.cancel()
