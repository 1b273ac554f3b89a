"""A model's queue and its lanes: every job ends, and only the guilty fail."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.core import DENSE, Output
from vecmill.engine.base import Batch, Column
from vecmill.engine.fake import FakeEngine, fake_row
from vecmill.errors import EngineFailed, Overloaded, ShuttingDown
from vecmill.serving import runner as runner_module
from vecmill.serving.admission import Limits
from vecmill.serving.engines import Engines
from vecmill.serving.events import BatchDone, Event, Events
from vecmill.serving.execution import FEWEST_TOKENS
from vecmill.serving.job import Job, Work
from vecmill.serving.runner import MOST_DEATHS, Runner
from vecmill.serving.watch import Watch

DIMS = 16
BAD = 7
LIMITS = Limits(batch_tokens=64, max_queue_tokens=1000)
WAIT_S = 10.0


@pytest.fixture
def runner(fake: FakeEngine, events: Events) -> Iterator[Runner]:
    """A runner on the fake engine, with room for 1,000 tokens."""
    one = Runner("fake", Engines(fake), widths={"dense": DIMS}, limits=LIMITS, events=events)
    yield one
    fake.gate.set()
    one.close()


def ids(*values: int) -> NDArray[np.int32]:
    """Token ids of one input."""
    return np.array(values, dtype=np.int32)


def dense(job: Job) -> NDArray[np.float32]:
    """The rows of a job, once it is done."""
    (rows,) = job.future.result(WAIT_S)
    return np.asarray(rows)


def held(runner: Runner, fake: FakeEngine) -> Job:
    """Close the engine's gate and let one batch stand before it, so that what follows queues up."""
    fake.gate.clear()
    first = runner.submit([ids(1, 1)])
    while runner.waiting_items:
        threading.Event().wait(0.001)
    return first


def test_rows_come_back_in_order(runner: Runner) -> None:
    """Each row stands where its input stood, whatever order the engine saw."""
    inputs = [ids(*range(1, n)) for n in (9, 3, 5, 3, 9, 4)]
    rows = dense(runner.submit(inputs))
    assert rows.tolist() == [fake_row(row, DIMS).tolist() for row in inputs]


def test_only_the_guilty_input_fails(runner: Runner, fake: FakeEngine) -> None:
    """An input that makes the engine raise fails its own request; those that shared its batch get their rows."""
    fake.faults[BAD] = "raise"
    held(runner, fake)
    good = [runner.submit([ids(2, n)]) for n in (3, 4, 5)]
    bad = runner.submit([ids(2, 2), ids(2, BAD)])
    fake.gate.set()
    assert [dense(job).shape for job in good] == [(1, DIMS)] * 3
    with pytest.raises(EngineFailed, match="input 1: the engine failed"):
        bad.future.result(WAIT_S)


@pytest.mark.parametrize("fault", ["nan", "zero"])
def test_what_is_no_vector_is_an_error(runner: Runner, fake: FakeEngine, fault: str) -> None:
    """NaN and zero rows never leave; mates in the same batch do."""
    fake.faults[BAD] = fault
    held(runner, fake)
    good, bad = runner.submit([ids(2, 3)]), runner.submit([ids(2, BAD)])
    fake.gate.set()
    assert dense(good).shape == (1, DIMS)
    with pytest.raises(EngineFailed, match="zero vector, NaN or infinity"):
        bad.future.result(WAIT_S)


def test_a_cancelled_job_costs_nothing_more(runner: Runner, fake: FakeEngine) -> None:
    """What was still queued of a cancelled job never reaches the engine."""
    first = held(runner, fake)
    job = runner.submit([ids(5, 5, 5)] * 10)
    assert job.future.cancel()
    fake.gate.set()
    first.future.result(WAIT_S)
    runner.submit([ids(6)]).future.result(WAIT_S)
    assert fake.batches == [[2], [1]]
    assert runner.waiting_tokens == 0


def test_a_full_queue_refuses_with_a_time(runner: Runner, fake: FakeEngine) -> None:
    """Beyond the bound a request is refused at once and told when to come back; what waits is untouched."""
    first = held(runner, fake)
    waiting = runner.submit([ids(*[2] * 10)] * 100)
    with pytest.raises(Overloaded, match="1000 tokens wait and 10 more would pass the limit of 1000") as refused:
        runner.submit([ids(*[3] * 10)])
    assert 0 < refused.value.retry_after_s <= 1
    fake.gate.set()
    assert first.future.exception(WAIT_S) is waiting.future.exception(WAIT_S) is None
    assert dense(runner.submit([ids(3)])).shape == (1, DIMS)


def test_a_request_larger_than_the_queue_runs_when_nothing_waits(runner: Runner) -> None:
    """The bound is on what waits, so no request is refused for ever."""
    assert dense(runner.submit([ids(*[2] * 60)] * 50)).shape == (50, DIMS)


def test_inputs_that_are_no_batch_wait_for_others(fake: FakeEngine, events: Events) -> None:
    """Where that is wished, inputs that come one by one share a batch; a lone one goes when it has waited."""
    limits = Limits(batch_tokens=64, max_queue_tokens=1000, batch_inputs=4, batch_wait_s=60.0)
    patient = Runner("fake", Engines(fake), widths={"dense": DIMS}, limits=limits, events=events)
    jobs = [patient.submit([ids(2, number)]) for number in range(3, 7)]
    assert [len(dense(job)) for job in jobs] == [1] * 4
    assert fake.batches == [[2, 2, 2, 2]]
    patient.close()
    hasty = Limits(batch_tokens=64, max_queue_tokens=1000, batch_wait_s=0.05)
    other = Runner("fake", Engines(FakeEngine(fake.spec)), widths={"dense": DIMS}, limits=hasty, events=events)
    began = time.monotonic()
    assert len(dense(other.submit([ids(2, 3)]))) == 1
    assert time.monotonic() - began >= 0.05
    other.close()


def test_closing_ends_every_job(fake: FakeEngine, events: Events) -> None:
    """The batch that runs is finished, what still waits fails, and nothing is accepted any more."""
    runner = Runner("fake", Engines(fake), widths={"dense": DIMS}, limits=LIMITS, events=events)
    first = held(runner, fake)
    waiting = runner.submit([ids(5, 5, 5)])
    closing = threading.Thread(target=runner.close)
    closing.start()
    while runner.alive:
        threading.Event().wait(0.001)
    fake.gate.set()
    closing.join(WAIT_S)
    assert dense(first).shape == (1, DIMS)
    with pytest.raises(ShuttingDown):
        waiting.future.result(WAIT_S)
    with pytest.raises(ShuttingDown):
        runner.submit([ids(1)])
    assert fake.closed


def test_a_dead_thread_without_another_engine(runner: Runner, fake: FakeEngine) -> None:
    """Where no engine can be had, the batch and the queue end with an error, and new work is refused: nothing hangs."""
    fake.faults[BAD] = "exit"
    held(runner, fake)
    bad, waiting = runner.submit([ids(BAD, BAD)]), runner.submit([ids(5, 5, 5)])
    fake.gate.set()
    with pytest.raises(EngineFailed, match="input 0: the engine died over it"):
        bad.future.result(WAIT_S)
    with pytest.raises(EngineFailed, match="has stopped"):
        waiting.future.result(WAIT_S)
    with pytest.raises(EngineFailed, match="has stopped"):
        runner.submit([ids(1)])
    assert not runner.alive


def no_thread(*_: object) -> None:
    """As where there are as many threads as there may be."""
    raise RuntimeError("can't start new thread")


def test_a_lost_lane_where_no_thread_is_to_be_had(
    renewed: tuple[Runner, list[FakeEngine]], fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where lanes cannot begin, the model is broken and says so; nothing waits for ever, and all engines are closed."""
    runner, engines = renewed
    fake.faults[BAD] = "exit"
    held(runner, fake)
    bad, waiting = runner.submit([ids(BAD, BAD)]), runner.submit([ids(5, 5, 5)])
    monkeypatch.setattr(Work, "begin", no_thread)
    fake.gate.set()
    with pytest.raises(EngineFailed, match="died over it"):
        bad.future.result(WAIT_S)
    with pytest.raises(EngineFailed, match="has stopped"):
        waiting.future.result(WAIT_S)
    assert not runner.alive
    assert len(engines) == 1
    while not (fake.closed and engines[0].closed):
        threading.Event().wait(0.001)


def test_a_runner_that_cannot_begin(fake: FakeEngine, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the second lane cannot begin, the first one ends, and the engines are closed."""
    before, begun = set(threading.enumerate()), list[Work]()
    begin = Work.begin

    def once(work: Work, main: Callable[[Work], None], name: str) -> None:
        if begun:
            no_thread()
        begin(work, main, name)
        begun.append(work)

    monkeypatch.setattr(Work, "begin", once)
    with pytest.raises(RuntimeError, match="new thread"):
        Runner("fake", Engines(fake, lanes=2), widths={"dense": DIMS}, limits=LIMITS, events=events)
    assert fake.closed
    while set(threading.enumerate()) - before:
        threading.Event().wait(0.001)


def test_a_watch_goes_on() -> None:
    """Whatever comes of looking and of what is asked for, it is done the next time."""
    looked, asked = threading.Semaphore(0), threading.Event()

    def look() -> None:
        looked.release()
        raise ValueError("one that cannot be looked after")

    watch = Watch("watch", look, 0.001)
    assert all(looked.acquire(timeout=WAIT_S) for _ in range(3))
    watch.ask(look)
    watch.ask(asked.set)
    assert asked.wait(WAIT_S)
    watch.close()


def test_a_subscriber_that_raises_harms_nobody(runner: Runner, events: Events, seen: list[Event]) -> None:
    """Requests have their answers, and other subscribers their events."""

    def broken(_: Event) -> None:
        raise ValueError("no room for another figure")

    events.subscribers.insert(0, broken)
    assert dense(runner.submit([ids(1, 2)])).shape == (1, DIMS)
    assert [type(event) for event in seen] == [BatchDone]


@pytest.fixture
def renewed(fake: FakeEngine, events: Events) -> Iterator[tuple[Runner, list[FakeEngine]]]:
    """A runner that gets another engine, with the same faults, where one is lost; and the engines that it got."""
    engines: list[FakeEngine] = []

    def renew() -> Engines:
        engines.append(FakeEngine(fake.spec, faults=fake.faults))
        return Engines(engines[-1])

    limits = Limits(batch_tokens=64, max_queue_tokens=100_000, stall_s=0.2)
    one = Runner("fake", Engines(fake), widths={"dense": DIMS}, limits=limits, events=events, renew=renew)
    yield one, engines
    fake.gate.set()
    one.close()


def test_a_dead_thread_is_replaced(renewed: tuple[Runner, list[FakeEngine]], fake: FakeEngine) -> None:
    """Those that shared a batch with the input that kills the thread have their rows; it alone fails."""
    runner, engines = renewed
    fake.faults[BAD] = "exit"
    held(runner, fake)
    good = [runner.submit([ids(2, n)]) for n in (3, 4, 5)]
    bad, later = runner.submit([ids(2, 2), ids(2, BAD)]), runner.submit([ids(5, 5, 5)])
    fake.gate.set()
    for job, last in zip([*good, later], (3, 4, 5, 5), strict=True):
        wanted = fake_row(ids(5, 5, 5) if job is later else ids(2, last), DIMS)
        assert dense(job)[0] == pytest.approx(wanted)
    with pytest.raises(EngineFailed, match="input 1: the engine died over it"):
        bad.future.result(WAIT_S)
    assert dense(runner.submit([ids(9)])).shape == (1, DIMS)
    assert len(engines) == 2  # the first death is of a batch, the second of its guilty input alone
    assert runner.ready
    assert fake.closed


def test_a_stalled_thread_is_replaced(renewed: tuple[Runner, list[FakeEngine]], fake: FakeEngine) -> None:
    """What hangs in an engine that does not come back runs on another; what the first one says later is for nobody."""
    runner, engines = renewed
    first = held(runner, fake)
    waiting = runner.submit([ids(5, 5, 5)])
    with pytest.raises(EngineFailed, match="the engine stalled over it"):
        first.future.result(WAIT_S)
    assert dense(waiting)[0] == pytest.approx(fake_row(ids(5, 5, 5), DIMS))
    assert len(engines) == 1
    assert not fake.closed
    fake.gate.set()
    while not fake.closed:
        threading.Event().wait(0.001)
    assert runner.ready


@pytest.mark.parametrize("replaced", [True, False])
def test_closing_does_not_wait_for_a_lost_engine(fake: FakeEngine, events: Events, replaced: bool) -> None:
    """A lane that never comes back, given up before or not, keeps nobody who closes the runner, and no request."""
    limits = Limits(batch_tokens=64, max_queue_tokens=1000, stall_s=0.2)
    renew = (lambda: Engines(FakeEngine(fake.spec))) if replaced else None
    one = Runner("fake", Engines(fake), widths={"dense": DIMS}, limits=limits, events=events, renew=renew)
    lost = held(one, fake)
    if replaced:
        assert isinstance(lost.future.exception(WAIT_S), EngineFailed)
        assert dense(one.submit([ids(5, 5)])).shape == (1, DIMS)
    closing = threading.Thread(target=one.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert isinstance(lost.future.exception(0), EngineFailed)
    assert not fake.closed
    fake.gate.set()


def test_an_input_counts_once() -> None:
    """Where a lane that was given up and the one in its place both come with a row, a job still has all its rows."""
    job = Job(4, DENSE, [2])
    for rows, value in (([0, 1], 1.0), ([1, 0, 2], 2.0), ([1], 3.0)):
        job.put(rows, [np.full((len(rows), 2), value, dtype=np.float32)])
        assert not job.future.done()
    job.put([3, 0], [np.full((2, 2), 4.0, dtype=np.float32)])
    assert dense(job).tolist() == [[1, 1], [1, 1], [2, 2], [4, 4]]


def test_a_runner_that_loses_too_many_is_broken(renewed: tuple[Runner, list[FakeEngine]], fake: FakeEngine) -> None:
    """It does not go on replacing engines for ever."""
    runner, engines = renewed
    fake.faults[BAD] = "exit"
    for _ in range(20):
        try:
            job = runner.submit([ids(BAD)])
        except EngineFailed:
            break
        with pytest.raises(EngineFailed):
            job.future.result(WAIT_S)
    assert not runner.alive
    assert len(engines) == MOST_DEATHS


def test_short_memory_makes_batches_smaller(runner: Runner, fake: FakeEngine) -> None:
    """A batch that does not fit is halved, and later ones are no larger."""
    fake.faults[BAD] = "memory"
    held(runner, fake)
    job = runner.submit([ids(2, n) for n in (1, 2, 3, BAD, 4, 5)] * 4)
    fake.gate.set()
    with pytest.raises(EngineFailed):
        job.future.result(WAIT_S)
    assert runner._queue.batch_tokens == FEWEST_TOKENS


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("fault", ["raise", "nan", "zero", "exit"])
def test_a_thousand_faults(
    fake: FakeEngine, events: Events, monkeypatch: pytest.MonkeyPatch, fault: str, lanes: int
) -> None:
    """Under many faults every job ends, each with its own rows or its own error, and nothing is left."""
    fake.faults[BAD] = fault
    limits = Limits(batch_tokens=64, max_queue_tokens=10**6)
    before = threading.active_count()

    def renew() -> Engines:
        wide, narrow = (FakeEngine(fake.spec, faults=fake.faults) for _ in range(2))
        return Engines(wide, narrow, lanes)

    runner = Runner("fake", renew(), widths={"dense": DIMS}, limits=limits, events=events, renew=renew)
    monkeypatch.setattr(runner_module, "MOST_DEATHS", 10**6)
    rng = np.random.default_rng(0)
    jobs = []
    for number in range(1000):
        inputs = [rng.integers(8, 99, rng.integers(1, 6)).astype(np.int32) for _ in range(3)]
        if number % 10 == 0:
            inputs[1][0] = BAD
        jobs.append((inputs, runner.submit(inputs)))
    for number, (inputs, job) in enumerate(jobs):
        if number % 10 == 0:
            with pytest.raises(EngineFailed, match="input 1"):
                job.future.result(WAIT_S)
        else:
            assert dense(job) == pytest.approx(np.stack([fake_row(one, DIMS) for one in inputs]))
    assert (runner.waiting_items, runner.waiting_tokens, runner.door.waiting_s) == (0, 0, 0.0)
    runner.close()
    while threading.active_count() > before:
        threading.Event().wait(0.001)


def test_batches_are_told(runner: Runner, seen: list[Event]) -> None:
    """Every batch is an event with what it held."""
    runner.submit([ids(1, 2, 3)] * 4).future.result(WAIT_S)
    told = [event for event in seen if isinstance(event, BatchDone)]
    assert [(event.model, event.rows, event.tokens, event.failed) for event in told] == [("fake", 4, 12, False)]


def test_a_job_is_forgotten(runner: Runner) -> None:
    """Nothing keeps a finished job alive, not even until the garbage collector comes: its rows may be large."""
    gc.disable()
    try:
        job = runner.submit([ids(1, 2)])
        job.future.result(WAIT_S)
        runner.submit([ids(3)]).future.result(WAIT_S)
        gone = weakref.ref(job.columns[0])
        del job
        deadline = time.monotonic() + WAIT_S
        while gone() is not None and time.monotonic() < deadline:
            time.sleep(0.001)  # the lane has yet to look into its queue
        assert gone() is None
    finally:
        gc.enable()


class InstantEngine(FakeEngine):
    """One whose short requests need no lane; knows on which threads it ran, and stalls lanes alone on request."""

    instant = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names: list[str] = []
        self.lanes = threading.Event()
        self.lanes.set()

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """As the fake engine."""
        self.names.append(threading.current_thread().name)
        if self.names[-1] == "runner instant":
            self.lanes.wait()
        return super().compute(batch, outputs)


@pytest.fixture
def instant(fake: FakeEngine, events: Events) -> Iterator[tuple[Runner, InstantEngine]]:
    """A runner on an instant engine, whose batches have 40 inputs at most."""
    engine = InstantEngine(fake.spec)
    limits = Limits(batch_tokens=1000, max_queue_tokens=1000, batch_inputs=40)
    runner = Runner("instant", Engines(engine), widths={"dense": DIMS}, limits=limits, events=events)
    yield runner, engine
    engine.lanes.set()
    engine.gate.set()
    runner.close()


@pytest.mark.parametrize(
    ("inputs", "length", "at_once"),
    [(1, 7, True), (32, 7, True), (33, 7, False), (40, 2, True), (41, 2, False)],  # 32 x (1 + 7) = 256; 41 are too many
)
def test_a_short_request_of_an_instant_engine_runs_where_it_is(
    instant: tuple[Runner, InstantEngine], inputs: int, length: int, at_once: bool
) -> None:
    """It has its rows when it comes back, from the caller's own thread; a longer one waits for a lane."""
    runner, engine = instant
    rows = [ids(*range(n, n + length)) for n in range(1, inputs + 1)]
    job = runner.submit(rows)
    assert not at_once or job.future.done()
    assert dense(job).tolist() == [fake_row(row, DIMS).tolist() for row in rows]
    assert set(engine.names) == {threading.current_thread().name if at_once else "runner instant"}


def test_a_short_request_passes_what_waits_for_a_lane(instant: tuple[Runner, InstantEngine]) -> None:
    """A lane that stands still, and a queue behind it, are not its way."""
    runner, engine = instant
    long = [ids(*range(1, 200))] * 2
    engine.lanes.clear()
    first = runner.submit(long)
    while not engine.names:
        threading.Event().wait(0.001)
    second, third = runner.submit(long), runner.submit(long)
    with pytest.raises(Overloaded):
        runner.submit(long)
    short = runner.submit([ids(1, 2)])
    assert (short.future.done(), second.future.done(), third.future.done()) == (True, False, False)
    engine.lanes.set()
    assert [dense(job).shape for job in (first, second, third, short)] == [(2, DIMS)] * 3 + [(1, DIMS)]


@pytest.mark.parametrize(("fault", "words"), [("raise", "failed"), ("nan", "NaN"), ("memory", "MemoryError")])
def test_at_once_only_the_guilty_input_fails(
    instant: tuple[Runner, InstantEngine], events: Events, fault: str, words: str
) -> None:
    """What fails at once is an error of its own request, and the batch is counted as one of a lane's is."""
    runner, engine = instant
    told: list[Event] = []
    events.subscribers.append(told.append)
    engine.faults[BAD] = fault
    job = runner.submit([ids(2, 3), ids(2, BAD)])
    with pytest.raises(EngineFailed, match=f"input 1: .*{words}"):
        job.future.result(0)
    assert dense(runner.submit([ids(2, 3)])).tolist() == [fake_row(ids(2, 3), DIMS).tolist()]
    batches = [event for event in told if isinstance(event, BatchDone)]
    assert [(one.rows, one.failed) for one in batches][-1] == (1, False)
    assert any(one.failed for one in batches) == (fault != "nan")


def test_a_closed_runner_runs_nothing_at_once(instant: tuple[Runner, InstantEngine]) -> None:
    """What comes after closing is refused, and an engine that somebody runs is not closed under them."""
    runner, engine = instant
    engine.gate.clear()
    done: list[Job] = []
    running = threading.Thread(target=lambda: done.append(runner.submit([ids(1, 2)])))
    running.start()
    while not engine.names:
        threading.Event().wait(0.001)
    runner.close()
    assert not engine.closed
    with pytest.raises(ShuttingDown):
        runner.submit([ids(1)])
    engine.gate.set()
    running.join(WAIT_S)
    assert dense(done[0]).shape == (1, DIMS)
    assert engine.closed
