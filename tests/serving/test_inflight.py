"""Equal texts of concurrent requests: computed once, and nobody is harmed by whom he follows."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from conftest import Serve, distinct
from vecmill.core import ANYONE, Caller, Options, Request, Result
from vecmill.engine.fake import FakeEngine
from vecmill.errors import EngineFailed, ShuttingDown
from vecmill.serving.served import ServedModel

BUSY = "hello hello hello"
"""What the engine is held up with, so that everything after it waits in the queue."""


def ask(model: ServedModel, *inputs: str, caller: Caller = ANYONE, **options: Any) -> asyncio.Task[Result]:
    """A request that is on its way."""
    request = Request(model=None, inputs=list(inputs), options=Options(**options))
    return asyncio.create_task(model.submit(request, caller))


async def until(true: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0)


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def inputs_of(fake: FakeEngine) -> int:
    """How many inputs the engine computed."""
    return sum(map(len, fake.batches))


async def busy(model: ServedModel, fake: FakeEngine) -> asyncio.Task[Result]:
    """Close the gate behind a request that runs: the queue stands still until it opens."""
    fake.gate.clear()
    running = ask(model, BUSY, no_store=True)
    await until(lambda: bool(model.runner._lanes[0].items))
    return running


@pytest.mark.parametrize("result_cache_mb", [0, 32])
async def test_a_hundred_equal_requests_are_one_input(serve: Serve, fake: FakeEngine, result_cache_mb: int) -> None:
    """Whatever is remembered, equal requests at one time ask the engine once and have equal rows of their own."""
    model = serve(fake, result_cache_mb=result_cache_mb)
    fake.gate.clear()
    asked = [ask(model, "the cat") for _ in range(100)]
    await turns()
    fake.gate.set()
    results = await asyncio.gather(*asked)
    assert inputs_of(fake) == 1
    assert sum(one.cached for one in results) == 99
    results[0].rows[:] = 0
    assert all(np.array_equal(one.rows, results[1].rows) and one.rows.any() for one in results[1:])
    assert len({id(one.rows) for one in results}) == 100
    assert len(model._asking._flights) == 0


async def test_rows_that_are_not_scaled_are_ones_own(serve: Serve, fake: FakeEngine) -> None:
    """Rows as the engine gave them are copies where others read them too."""
    model = serve(fake)
    fake.gate.clear()
    first, second = ask(model, "the cat", normalize=False), ask(model, "the cat", normalize=False)
    await turns()
    fake.gate.set()
    (leader, follower) = await asyncio.gather(first, second)
    assert not np.shares_memory(leader.rows, follower.rows)
    leader.rows[:] = 0
    assert follower.rows.any()
    assert (await ask(model, "the cat", normalize=False)).rows.any()


async def test_a_request_asks_what_nobody_else_does(serve: Serve, fake: FakeEngine) -> None:
    """What others compute is waited for, the rest is asked, and each input has its own answer."""
    model = serve(fake)
    fake.gate.clear()
    one, two = ask(model, "the cat"), ask(model, "dog", "the cat", "hello", "dog", "the cat")
    await turns()
    fake.gate.set()
    single, several = await asyncio.gather(one, two)
    assert inputs_of(fake) == 3
    assert several.cached == 2
    assert np.array_equal(several.rows[[0, 1]], several.rows[[3, 4]])
    assert np.array_equal(several.rows[1], single.rows[0])
    assert not np.array_equal(several.rows[0], several.rows[1])


async def test_a_leader_that_leaves_harms_nobody(serve: Serve, fake: FakeEngine) -> None:
    """Where the leader's client leaves before it ran, one of his followers asks, and the others follow that one."""
    model = serve(fake)
    running = await busy(model, fake)
    leader = ask(model, "the cat")
    await turns()
    others = [ask(model, "the cat") for _ in range(9)]
    await turns()
    leader.cancel()
    await asyncio.wait([leader])
    await turns()
    assert model.runner.waiting_items == 1
    fake.gate.set()
    results = await asyncio.gather(running, *others)
    assert leader.cancelled()
    assert all(one.rows.any() for one in results)
    assert inputs_of(fake) == 2
    assert len(model._asking._flights) == 0


async def test_a_leaders_deadline_is_its_own(serve: Serve, fake: FakeEngine) -> None:
    """A leader that runs out of time leaves those who have more with an answer."""
    model = serve(fake)
    running = await busy(model, fake)
    leader = asyncio.create_task(asyncio.wait_for(ask(model, "the cat"), 0.01))
    await turns()
    follower = ask(model, "the cat")
    with pytest.raises(TimeoutError):
        await leader
    fake.gate.set()
    assert (await follower).rows.any()
    await running


async def test_a_follower_that_leaves_harms_nobody(serve: Serve, fake: FakeEngine) -> None:
    """The leader's work goes on when a follower leaves."""
    model = serve(fake)
    running = await busy(model, fake)
    leader = ask(model, "the cat")
    await turns()
    follower = ask(model, "the cat", "dog")
    await turns()
    assert model.runner.waiting_items == 2
    follower.cancel()
    await asyncio.wait([follower])
    assert model.runner.waiting_items == 1
    fake.gate.set()
    assert (await leader).rows.any()
    await running


async def test_a_leaders_failure_is_its_own(serve: Serve, fake: FakeEngine) -> None:
    """Where the job that is followed fails over another input, those who followed ask for themselves."""
    model = serve(fake)
    (bad,) = model.tokenizer.encode(["dog"])
    fake.faults[int(bad.ids[1])] = "raise"
    running = await busy(model, fake)
    leader = ask(model, "the cat", "dog")
    await turns()
    followers = [ask(model, "the cat", f"hello {word}") for word in ("time", "year", "people")]
    await turns()
    assert model.runner.waiting_items == 5
    fake.gate.set()
    with pytest.raises(EngineFailed, match="input 1"):
        await leader
    assert all(one.rows.all() for one in await asyncio.gather(*followers))
    await running


async def test_a_bad_text_fails_everyone_who_asks_it(serve: Serve, fake: FakeEngine) -> None:
    """A text over which the engine fails is an error for each, with the place that it has in the own request."""
    model = serve(fake)
    (bad,) = model.tokenizer.encode(["dog"])
    fake.faults[int(bad.ids[1])] = "raise"
    fake.gate.clear()
    asked = [ask(model, "dog"), ask(model, "hello", "dog")]
    await turns()
    fake.gate.set()
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(one)[:7] for one in errors] == ["input 0", "input 1"]


async def test_a_query_does_not_wait_for_bulk(serve: Serve, fake: FakeEngine) -> None:
    """A request asks for itself what a larger one computes; a third follows the smaller of the two."""
    model = serve(fake)
    running = await busy(model, fake)
    bulk = ask(model, "the cat", *distinct(50))
    await turns()
    query = ask(model, "the cat")
    await turns()
    third = ask(model, "the cat")
    await turns()
    assert model.runner.waiting_items == 52
    fake.gate.set()
    await asyncio.gather(running, bulk, query, third)
    assert inputs_of(fake) == 53


@pytest.mark.parametrize("caller", [Caller(tenant="b"), Caller(tenant="a", weight=2), Caller(tenant="a", share=2)])
async def test_others_on_other_terms_are_not_followed(serve: Serve, fake: FakeEngine, caller: Caller) -> None:
    """A request waits for none of another tenant or weight, whose work may be far behind in the queue."""
    model = serve(fake)
    running = await busy(model, fake)
    asked = [ask(model, "the cat", caller=one) for one in (Caller(tenant="a"), caller)]
    await turns()
    assert model.runner.waiting_items == 2
    fake.gate.set()
    await asyncio.gather(running, *asked)


@pytest.mark.parametrize("first", [True, False])
async def test_no_store_neither_leads_nor_follows(serve: Serve, fake: FakeEngine, first: bool) -> None:
    """A request that wants nothing stored has nothing to do with others."""
    model = serve(fake)
    running = await busy(model, fake)
    asked = [ask(model, "the cat", no_store=no_store) for no_store in (first, not first)]
    await turns()
    assert model.runner.waiting_items == 2
    fake.gate.set()
    await asyncio.gather(running, *asked)


async def test_shutting_down_ends_followers(serve: Serve, fake: FakeEngine) -> None:
    """Those who follow end when the server stops, as those who lead do."""
    model = serve(fake)
    running = await busy(model, fake)
    asked = [ask(model, "the cat") for _ in range(5)]
    await turns()
    closing = asyncio.get_running_loop().run_in_executor(None, model.runner.close)
    await until(lambda: not model.runner.alive)
    fake.gate.set()
    ended = await asyncio.gather(running, *asked, return_exceptions=True)
    await closing
    assert [type(one) for one in ended] == [Result, *[ShuttingDown] * 5]


def test_threads_share_too(serve: Serve, fake: FakeEngine) -> None:
    """Callers on threads follow each other as those of a loop do."""
    model = serve(fake)
    fake.gate.clear()
    request = Request(model=None, inputs=["the cat"])
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(model.compute, request)]
        while not len(model._asking._flights):
            pass
        ((flight,),) = [flights.values() for flights in model._asking._flights._flights.values()]
        asked += [pool.submit(model.compute, request) for _ in range(7)]
        while len(flight.future._calls) < 8:  # the runner's own, and one a follower
            pass
        fake.gate.set()
        rows = [one.result(20).rows for one in asked]
    assert inputs_of(fake) == 1
    assert all(np.array_equal(one, rows[0]) for one in rows)
