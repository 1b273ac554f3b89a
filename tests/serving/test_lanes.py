"""Lanes: batches of one model that run at once, and what a batch alone runs on."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.engine.base import Batch
from vecmill.engine.fake import FakeEngine, fake_row
from vecmill.errors import EngineFailed
from vecmill.serving import registry
from vecmill.serving.admission import Limits
from vecmill.serving.cost import CostModel
from vecmill.serving.engines import Engines
from vecmill.serving.events import Events
from vecmill.serving.priority import NICE, go_behind
from vecmill.serving.registry import open_engines
from vecmill.serving.runner import Runner

DIMS = 16
WAIT_S = 10.0
LIMITS = Limits(batch_tokens=100, max_queue_tokens=10_000)


@pytest.fixture
def engines(fake: FakeEngine) -> Engines:
    """Two fake engines for two lanes and the express one."""
    return Engines(fake, FakeEngine(fake.spec), lanes=2)


@pytest.fixture
def runner(engines: Engines, events: Events) -> Iterator[Runner]:
    """A runner on them, to which a token costs a second."""
    cost = ByTokens(batch_s=1e9, token_s=[1.0])
    one = Runner("fake", engines, widths={"dense": DIMS}, limits=LIMITS, events=events, cost=cost)
    yield one
    gates(engines, is_open=True)
    one.close()


class ByTokens(CostModel):
    """A token costs a second, whatever was seen."""

    def saw(self, rows: int, length: float, seconds: float) -> None:
        """Learn nothing."""


def gates(engines: Engines, *, is_open: bool) -> None:
    """Let batches through both engines, or hold them."""
    for engine in (engines.wide, engines.narrow):
        assert isinstance(engine, FakeEngine)
        (engine.gate.set if is_open else engine.gate.clear)()


def row(length: int, token: int = 1) -> NDArray[np.int32]:
    """One input."""
    return np.full(length, token, dtype=np.int32)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that comes true by itself."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


def running(runner: Runner) -> list[tuple[bool, str]]:
    """Of each lane that has a batch: whether it is the express one, and which engine it has."""
    wide = runner._engines.wide
    with runner._lock:
        return sorted(
            (lane.express, "wide" if lane.engine is wide else "narrow") for lane in runner._lanes if lane.items
        )


def fill(runner: Runner, engines: Engines) -> list[object]:
    """Give both usual lanes a batch of 50 tokens that does not end."""
    gates(engines, is_open=False)
    jobs: list[object] = []
    for number in range(2):
        jobs.append(runner.submit([row(50, number + 1)]))
        until(lambda number=number: len(running(runner)) == number + 1)  # type: ignore[misc]
    return jobs


def test_batches_run_at_once(runner: Runner, engines: Engines) -> None:
    """As many batches run as there are lanes: the first, which is alone, on all threads, its mate on one."""
    fill(runner, engines)
    assert running(runner) == [(False, "narrow"), (False, "wide")]


def test_a_batch_that_is_alone_runs_wide(runner: Runner, engines: Engines) -> None:
    """One after the other, requests have all threads."""
    for length in range(1, 6):
        runner.submit([row(length)]).future.result(WAIT_S)
    assert isinstance(engines.narrow, FakeEngine)
    assert not engines.narrow.batches


def test_batches_of_a_long_job_run_narrow(runner: Runner, engines: Engines) -> None:
    """Where more waits than one batch, each batch takes one thread."""
    lengths = [length for length in range(20, 33) for _ in range(3)]
    runner.submit([row(length, 1 + number) for number, length in enumerate(lengths)]).future.result(WAIT_S)
    assert isinstance(engines.narrow, FakeEngine)
    assert isinstance(engines.wide, FakeEngine)
    assert len(engines.wide.batches) <= 1  # the last one may be alone
    assert len(engines.narrow.batches) + len(engines.wide.batches) == 13


def test_a_small_request_takes_the_express_lane(runner: Runner, engines: Engines) -> None:
    """Beside batches of 50 s a request of 16 s runs at once, one of 17 s waits, and so does the rest of a long one."""
    fill(runner, engines)
    runner.submit([row(17)])
    runner.submit([row(1, number) for number in range(20)])
    small = runner.submit([row(16)])
    until(lambda: (True, "narrow") in running(runner))
    assert not small.queued
    assert runner.waiting_items == 21


def test_the_express_lane_sleeps_on(runner: Runner, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is woken for what it may take alone: else each query of many would take the interpreter from the loop."""
    fill(runner, engines)
    until(lambda: not runner._lanes[-1].items)
    woken = list[int]()
    monkeypatch.setattr(runner._wake_express, "notify", lambda: woken.append(runner.waiting_items))
    for _ in range(20):
        runner.submit([row(17)])
    assert not woken
    runner.submit([row(16)])
    assert woken == [21]


def test_the_express_lane_is_not_for_equals(runner: Runner, engines: Engines) -> None:
    """Beside batches of many small requests one not much smaller waits: with its like it makes a batch."""
    gates(engines, is_open=False)
    with runner._lock:  # so that no lane looks before all are there
        jobs = [runner.submit([row(12, number)]) for number in range(16)]
    until(lambda: len(running(runner)) == 2)
    assert not any(job.queued for job in jobs)
    runner.submit([row(5)])
    runner.submit([row(5)])
    assert runner.waiting_items == 2
    runner.submit([row(4)])
    until(lambda: (True, "narrow") in running(runner))
    assert runner.waiting_items == 2


def test_the_express_lane_leaves_work_to_idle_lanes(runner: Runner, engines: Engines) -> None:
    """While a usual lane is free the express lane takes nothing."""
    gates(engines, is_open=False)
    runner.submit([row(50)])
    until(lambda: len(running(runner)) == 1)
    runner.submit([row(2)])
    until(lambda: len(running(runner)) == 2)
    assert not any(express for express, _ in running(runner))


def test_every_row_is_its_own(runner: Runner) -> None:
    """Many requests from many threads over all lanes: each has its own rows, in order."""
    rng = np.random.default_rng(0)
    inputs = [[rng.integers(8, 99, rng.integers(1, 9)).astype(np.int32) for _ in range(7)] for _ in range(300)]
    answers: dict[int, object] = {}

    def ask(first: int) -> None:
        for number in range(first, 300, 6):
            (rows,) = runner.submit(inputs[number]).future.result(WAIT_S)
            answers[number] = np.asarray(rows).tolist()

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: [fake_row(one, DIMS).tolist() for one in asked] for number, asked in enumerate(inputs)}
    assert not runner.waiting_items


def test_engines_are_closed_once_all_lanes_have_left(runner: Runner, engines: Engines) -> None:
    """Closing waits for what runs; then both engines are closed."""
    (first, _) = fill(runner, engines)
    closing = threading.Thread(target=runner.close)
    closing.start()
    assert isinstance(engines.wide, FakeEngine)
    assert isinstance(engines.narrow, FakeEngine)
    assert not engines.wide.closed
    gates(engines, is_open=True)
    closing.join(WAIT_S)
    assert first.future.done()  # type: ignore[attr-defined]
    assert engines.wide.closed
    assert engines.narrow.closed


@pytest.mark.parametrize(
    ("settings", "weights", "wanted"),
    [
        (Settings(threads=4), 99, 4),
        (Settings(threads=4), 100, 1),
        (Settings(threads=1), 1, 1),
        (Settings(threads=4, lanes=2), 10**6, 2),
        (Settings(threads=4, lanes=1), 1, 1),
    ],
    ids=["fits", "too-large", "one-thread", "asked-for", "asked-not"],
)
def test_lanes_by_memory(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, settings: Settings, weights: int, wanted: int
) -> None:
    """There are as many lanes as threads where a second copy takes less than a tenth of the memory, or as asked for."""
    monkeypatch.setattr(registry, "usable_memory", lambda: 1000)
    made = []

    def one(*, threads: int) -> FakeEngine:
        engine = FakeEngine(fake.spec, threads=threads, weight_bytes=weights)
        engine.shared = True
        made.append(engine)
        return engine

    engines = open_engines(one, settings)
    assert engines.lanes == wanted
    assert [engine.threads for engine in made] == ([settings.threads] if wanted == 1 else [settings.threads, 1])


def test_no_lanes_for_an_engine_of_one_thread_at_a_time(fake: FakeEngine) -> None:
    """An engine that cannot be shared has one lane, whatever is asked for."""
    engines = open_engines(lambda **_: fake, Settings(threads=4, lanes=4))
    assert (engines.lanes, engines.narrow) == (1, None)


def test_no_second_copy_of_an_instant_engine(fake: FakeEngine) -> None:
    """A table is there once, however many lanes are asked for."""
    fake.shared = fake.instant = True
    engines = open_engines(lambda **_: fake, Settings(threads=4, lanes=4))
    assert (engines.lanes, engines.narrow) == (1, None)


def test_a_second_engine_that_fails_leaves_none(fake: FakeEngine) -> None:
    """Where the second engine cannot be made the first is closed."""
    fake.shared = True

    def one(*, threads: int) -> FakeEngine:
        if threads == 1:
            raise MemoryError
        return fake

    with pytest.raises(MemoryError):
        open_engines(one, Settings(threads=4, lanes=4))
    assert fake.closed


def test_a_batch_survives_its_engines(fake: FakeEngine) -> None:
    """Engines that are retired stay open for the lane that still computes with them."""
    engines = Engines(fake)
    engines.enter()
    engines.retire()
    assert engines.of(alone=True).compute(Batch.pack([row(2)]), ("dense",))
    assert not fake.closed
    engines.leave()
    assert fake.closed


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
def test_lanes_go_behind(runner: Runner) -> None:
    """The event loop and the express lane are served before the lanes where cores are short."""
    runner.submit([row(1)]).future.result(WAIT_S)
    until(lambda: priorities(runner) == [("express runner fake", 0), ("runner fake", NICE), ("runner fake", NICE)])


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
def test_lanes_that_replace_others_go_behind(engines: Engines, events: Events) -> None:
    """After a lane was lost priorities are what they were, and no thread that is behind makes the other engines."""
    fake = engines.wide
    assert isinstance(fake, FakeEngine)
    fake.faults[7] = "exit"
    own, found = os.getpriority(os.PRIO_PROCESS, os.getpid()), list[int]()

    def renew() -> Engines:
        found.append(os.getpriority(os.PRIO_PROCESS, 0))
        wide, narrow = (FakeEngine(fake.spec) for _ in range(2))
        return Engines(wide, narrow, lanes=2)

    one = Runner("fake", engines, widths={"dense": DIMS}, limits=LIMITS, events=events, renew=renew)
    first = {lane.thread for lane in one._lanes}
    with pytest.raises(EngineFailed):
        one.submit([row(1, 7)]).future.result(WAIT_S)
    until(lambda: [lane.thread in first for lane in one._lanes].count(True) == 2 and len(one._lanes) == 3)
    until(lambda: fake.closed)  # idle lanes have left them
    until(lambda: priorities(one) == [("express runner fake", 0), ("runner fake", NICE), ("runner fake", NICE)])
    assert found == [own]
    one.close()


def priorities(runner: Runner) -> list[tuple[str, int]]:
    """How far behind its process each of its threads is."""
    own = os.getpriority(os.PRIO_PROCESS, os.getpid())
    threads = [lane.thread for lane in runner._lanes if lane.thread is not None and lane.thread.is_alive()]
    return sorted((one.name, os.getpriority(os.PRIO_PROCESS, one.native_id or 0) - own) for one in threads)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
def test_who_begins_behind_goes_no_further_behind() -> None:
    """A thread that one begins which is behind itself is no further behind; a sandbox's refusal harms nobody."""
    own, found = os.getpriority(os.PRIO_PROCESS, os.getpid()), list[int]()

    def begin(*others: Callable[[], None]) -> None:
        go_behind()
        found.append(os.getpriority(os.PRIO_PROCESS, 0))
        for other in others:
            in_a_thread(other)

    in_a_thread(lambda: begin(begin))
    with pytest.MonkeyPatch.context() as sandbox:
        sandbox.setattr(os, "setpriority", forbidden)
        in_a_thread(begin)
    assert found == [own + NICE, own + NICE, own]


def in_a_thread(work: Callable[[], None]) -> None:
    """Run it to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def forbidden(*_: int) -> None:
    """No priorities here."""
    raise PermissionError(1, "Operation not permitted")
