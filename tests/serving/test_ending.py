"""What is waited for: it ends once, whoever is first, and whoever waits on a thread or a loop is told."""

import asyncio
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest

from vecmill.serving.ending import Ending
from vecmill.serving.steps import Steps, Wait, on_loop, on_thread

WAIT_S = 10.0
ERROR = ValueError("no")


def waits(ending: Ending[int]) -> Steps[int]:
    """Work that waits for one thing."""
    got: int = yield Wait(ending)
    return got


def test_it_ends_once() -> None:
    """The first of several ends counts, and they are told whether they were it."""
    by_value, by_error, by_nobody = Ending[int](), Ending[int](), Ending[int]()
    assert by_value.set_result(1)
    assert by_error.set_exception(ERROR)
    assert by_nobody.cancel()
    for one in (by_value, by_error, by_nobody):
        assert [one.set_result(2), one.set_exception(KeyError()), one.cancel()] == [False] * 3
        assert one.done()
    assert by_value.result() == 1
    assert by_value.exception() is None
    assert by_error.exception() is ERROR
    with pytest.raises(ValueError, match="no"):
        by_error.result()
    with pytest.raises(CancelledError):
        by_nobody.result()
    assert [one.cancelled() for one in (by_value, by_error, by_nobody)] == [False, False, True]


def test_what_was_to_happen_at_the_end_happens_once() -> None:
    """In the order in which it was said; at once where it has ended, and nothing of it is kept."""
    one, told = Ending[int](), list[str]()
    one.at_end(lambda: told.append("first"))
    one.at_end(lambda: told.append("second"))
    assert not told
    one.set_result(1)
    one.cancel()
    one.at_end(lambda: told.append("late"))
    assert told == ["first", "second", "late"]
    assert not one._calls


def test_one_who_fails_when_told_harms_nobody() -> None:
    """Those who wait behind it are told all the same, and whoever ended it goes on."""
    one, told = Ending[int](), list[int]()
    one.at_end(lambda: 1 // 0)
    one.at_end(lambda: told.append(one.result()))
    assert one.set_result(1)
    assert told == [1]


def test_work_settles_it() -> None:
    """With what it returns or raises; work that nobody waits for is not begun."""
    done, failed, dropped = Ending[int](), Ending[int](), Ending[int]()
    done.settle(lambda: 3)
    failed.settle(lambda: 1 // 0)
    dropped.cancel()
    dropped.settle(lambda: pytest.fail("nobody waits"))
    assert done.result() == 3
    assert isinstance(failed.exception(), ZeroDivisionError)


def test_a_thread_waits() -> None:
    """Until it has ended, or for as long as it has patience."""
    one = Ending[int]()
    with pytest.raises(TimeoutError):
        one.result(0.001)
    with pytest.raises(TimeoutError):
        one.exception(0)
    with ThreadPoolExecutor(3) as pool:
        asked = pool.submit(one.result, WAIT_S), pool.submit(on_thread, waits(one))
        failed = pool.submit(one.exception)
        one.set_result(7)
        assert [each.result(WAIT_S) for each in asked] == [7, 7]
        assert failed.result(WAIT_S) is None


async def test_a_batch_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as end before the loop looks are told in one call, each its own."""
    endings = [Ending[int]() for _ in range(50)]
    asked = [asyncio.create_task(on_loop(waits(one))) for one in endings]
    await asyncio.sleep(0)
    loop, rung = asyncio.get_running_loop(), list[object]()
    call = loop.call_soon_threadsafe

    def counted(*what: Any) -> object:
        rung.append(what)
        return call(*what)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    thread = threading.Thread(target=lambda: [one.set_result(number) for number, one in enumerate(endings)])
    thread.start()
    thread.join()
    assert await asyncio.wait_for(asyncio.gather(*asked), WAIT_S) == list(range(50))
    assert len(rung) == 1


async def test_no_wake_is_lost() -> None:
    """Threads that end things in the moment in which the loop wakes up leave nobody waiting."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(200):
                endings = [Ending[int]() for _ in range(20)]
                asked = [asyncio.create_task(on_loop(waits(one))) for one in endings]
                await asyncio.sleep(0)
                for number, one in enumerate(endings):
                    pool.submit(one.set_result, number)
                assert await asyncio.wait_for(asyncio.gather(*asked), WAIT_S) == list(range(20))
    finally:
        sys.setswitchinterval(usual)


async def test_who_gives_up_waiting_cancels() -> None:
    """Nobody waits any more: that is how it ends."""
    one = Ending[int]()
    asked = asyncio.create_task(on_loop(waits(one)))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert one.cancelled()
