"""The thread that owns one engine, and the jobs that it works on. Every job ends: rows, an error or cancellation."""

import logging
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.core import DENSE, Output, Value
from vecmill.engine.base import Batch, Column, Engine
from vecmill.errors import EngineFailed, Overloaded, RequestError, ShuttingDown
from vecmill.serving.events import BatchDone, Events
from vecmill.serving.finish import sound
from vecmill.serving.scheduler import Item, Owner, Scheduler

log = logging.getLogger(__name__)

GUESSED_TOKENS_PER_S = 5000.0
"""Speed assumed until the first batch has run."""


class Job(Owner):
    """One request in flight.

    Args:
        inputs: How many it has.
        outputs: What is wanted of each.
        widths: Numbers of a value of each output; 0 where they differ.
        marks: The place in each input that the model wants to know; None where it wants none.

    Attributes:
        columns: One for each output, filled as batches finish: float32 [inputs, width], or a list.
        started: When its first input ran, by `time.perf_counter`; 0 before that.
        future: Ends with `columns`, or with a RequestError. Cancelling it drops what is still queued.
    """

    __slots__ = ("__weakref__", "columns", "future", "marks", "missing", "outputs", "started")

    def __init__(
        self, inputs: int, outputs: tuple[Output, ...], widths: Sequence[int], marks: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self.marks = marks
        self.columns: list[Any] = [
            np.empty((inputs, width), dtype=np.float32) if width else [None] * inputs for width in widths
        ]
        self.missing = inputs
        self.started = 0.0
        self.future: Future[list[Column]] = Future()

    def put(self, row: int, values: Sequence[Value]) -> None:
        """One input is done."""
        for column, value in zip(self.columns, values, strict=True):
            column[row] = value
        self.missing -= 1
        if not self.missing and self.future.set_running_or_notify_cancel():
            self.future.set_result(self.columns)

    def fail(self, error: RequestError) -> None:
        """The job ends with an error; the first one counts."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Runner:
    """One engine, its queue and its thread.

    Args:
        name: Served name, for events and the thread's name.
        engine: Owned by the runner from here on.
        widths: Output to the numbers of a value of it; 0 where they differ. What is not here is not given.
        batch_tokens: Most tokens of a micro-batch.
        max_queue_tokens: Most tokens that may wait.
        events: Told of every batch.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        widths: dict[Output, int],
        batch_tokens: int,
        max_queue_tokens: int,
        events: Events,
    ) -> None:
        self._name = name
        self._engine = engine
        self._widths = widths
        self._max_queue_tokens = max_queue_tokens
        self._events = events
        self._queue: Scheduler[Job] = Scheduler(batch_tokens)
        self._wake = threading.Condition()
        self._refusal: RequestError | None = None
        self._running: list[Item[Job]] = []
        self._tokens_per_s = GUESSED_TOKENS_PER_S
        self._thread = threading.Thread(target=self._main, name=f"runner {name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive() and self._refusal is None

    @property
    def waiting_items(self) -> int:
        """Inputs in the queue."""
        return self._queue.waiting_items

    @property
    def waiting_tokens(self) -> int:
        """Tokens in the queue."""
        return self._queue.waiting_tokens

    def submit(
        self, rows: Sequence[NDArray[np.int32]], outputs: tuple[Output, ...] = DENSE, marks: Sequence[int] | None = None
    ) -> Job:
        """Queue the inputs of one request. Thread-safe.

        Args:
            rows: Token ids of each, int32 [length].
            outputs: What is wanted of each.
            marks: The place in each that the model wants to know; None where it wants none.

        Raises:
            Overloaded: Too many tokens wait already.
            ShuttingDown: The runner is closed.
            EngineFailed: The thread is dead.
        """
        job = Job(len(rows), outputs, [self._widths[output] for output in outputs], marks)
        with self._wake:
            self._admit(sum(map(len, rows)))
            self._queue.add(job, rows)
            self._wake.notify()
        weakly = weakref.ref(job)  # a future keeps its callbacks: the job's rows would wait for the garbage collector
        job.future.add_done_callback(lambda _: self._forget(weakly()))
        return job

    def close(self) -> None:
        """Stop after the batch that runs; what still waits ends with ShuttingDown."""
        with self._wake:
            self._refusal = self._refusal or ShuttingDown("the server is shutting down and takes no new work")
            self._wake.notify()
        self._thread.join()

    def _forget(self, job: Job | None) -> None:
        """A job has ended, whichever way: what is left of it in the queue, which keeps it, is for nobody."""
        if job is not None and job.queued:
            with self._wake:
                self._queue.drop(job)

    def _admit(self, tokens: int) -> None:
        if self._refusal is not None:
            raise type(self._refusal)(*self._refusal.args)  # a new one: a raised error keeps its traceback
        waiting = self._queue.waiting_tokens
        if waiting and waiting + tokens > self._max_queue_tokens:
            excess = waiting + tokens - self._max_queue_tokens
            message = f"{waiting} tokens wait and {tokens} more would pass the limit of {self._max_queue_tokens}"
            raise Overloaded(message, retry_after_s=min(excess, waiting) / self._tokens_per_s)

    def _main(self) -> None:
        error: RequestError = EngineFailed(f"the engine of {self._name!r} has stopped; restart the server")
        try:
            while batch := self._next():
                for items in _by_outputs(batch):
                    self._run(items)
            error = ShuttingDown("the server shut down before this request was done")
        except BaseException:
            log.exception("the engine thread of %s died", self._name)
        finally:
            self._fail_all(error)
            self._engine.close()

    def _next(self) -> list[Item[Job]]:
        """Wait for the next batch; empty when the runner closes."""
        with self._wake:
            while self._refusal is None:
                self._running = self._queue.take()
                if self._running:
                    return self._running
                self._wake.wait()
        return []

    def _run(self, items: list[Item[Job]]) -> None:
        """Run a batch; one that fails is halved until the guilty input is alone."""
        try:
            columns = self._compute(items)
        except Exception as error:
            if len(items) > 1:
                middle = len(items) // 2
                self._run(items[:middle])
                self._run(items[middle:])
                return
            log.exception("the engine of %s failed on one input of %d tokens", self._name, len(items[0].ids))
            items[0].owner.fail(EngineFailed(f"input {items[0].row}: the engine failed ({type(error).__name__})"))
            return
        good = np.logical_and.reduce([sound(*pair) for pair in zip(items[0].owner.outputs, columns, strict=True)])
        for item, fine, *values in zip(items, good, *columns, strict=True):
            if fine:
                item.owner.put(item.row, values)
            else:
                log.error("the engine of %s returned no vector for %d tokens", self._name, len(item.ids))
                item.owner.fail(EngineFailed(f"input {item.row}: the engine returned a zero vector, NaN or infinity"))

    def _compute(self, items: list[Item[Job]]) -> list[Column]:
        marked = [item.owner.marks[item.row] for item in items if item.owner.marks is not None]
        batch, outputs = Batch.pack([item.ids for item in items], marked or None), items[0].owner.outputs
        started, failed = time.perf_counter(), True
        for item in items:
            item.owner.started = item.owner.started or started
        try:
            columns = self._engine.compute(batch, outputs)
            failed = False
        finally:
            seconds = time.perf_counter() - started
            self._events(BatchDone(self._name, len(items), len(batch.ids), seconds, failed))
        for output, column in zip(outputs, columns, strict=True):
            self._check(output, column, len(items))
        self._tokens_per_s += 0.1 * (len(batch.ids) / max(seconds, 1e-6) - self._tokens_per_s)
        return columns

    def _check(self, output: Output, column: Column, count: int) -> None:
        width = self._widths[output]
        shape = column.shape if width and isinstance(column, np.ndarray) else (len(column), width)
        if shape != (count, width):
            raise ValueError(f"the engine returned {shape} of {output}, wanted {(count, width)}")

    def _fail_all(self, error: RequestError) -> None:
        """End every job that still waits; after this `submit` refuses."""
        with self._wake:
            self._refusal = self._refusal or error
            left, self._running = self._running, []
            while left:
                for item in left:
                    item.owner.fail(error)
                left = self._queue.take()


def _by_outputs(items: list[Item[Job]]) -> list[list[Item[Job]]]:
    """Items that want the same outputs run together."""
    groups: dict[tuple[Output, ...], list[Item[Job]]] = {}
    for item in items:
        groups.setdefault(item.owner.outputs, []).append(item)
    return list(groups.values())
