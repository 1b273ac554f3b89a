"""The queue of one model and the lanes that work on it. Every job ends: rows, an error or cancellation.

A lane is a thread that runs one batch after the other. One that dies or stalls is replaced, with new engines for all.
What it held is queued again, each input to run alone: one that kills a second lane fails, the others have answers.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from vecmill.core import DENSE, Output
from vecmill.errors import EngineFailed, EngineLost, RequestError, ShuttingDown
from vecmill.serving.admission import Limits
from vecmill.serving.cost import CostModel
from vecmill.serving.door import Door, queue_of
from vecmill.serving.engines import Engines
from vecmill.serving.events import Events
from vecmill.serving.execution import Execution, together
from vecmill.serving.job import Job, Work
from vecmill.serving.piles import Item
from vecmill.serving.priority import go_behind
from vecmill.serving.watch import Watch

log = logging.getLogger(__name__)

MOST_DEATHS = 5
DEATHS_WITHIN_S = 60.0
"""A runner that loses more threads than this in so short a time is broken, and stays it."""


class Runner:
    """The engines of one model, their queue and their lanes.

    Args:
        name: Served name, for events and the threads' names.
        engines: Owned by the runner from here on.
        widths: Output to the numbers of a value of it; 0 where they differ. What is not here is not given.
        limits: Of batches, of the queue, and of patience.
        events: Told of every batch.
        cost: What micro-batches cost, corrected from what runs; None goes by their tokens.
        renew: Makes other engines where a lane is lost; None leaves the runner broken.
    """

    def __init__(
        self,
        name: str,
        engines: Engines,
        *,
        widths: dict[Output, int],
        limits: Limits,
        events: Events,
        cost: CostModel | None = None,
        renew: Callable[[], Engines] | None = None,
    ) -> None:
        self._name = name
        self._widths = widths
        self._limits = limits
        self.cost = cost or CostModel(batch_s=math.inf)
        self._queue = queue_of(limits, self.cost, engines.lanes, engines.usual.alike, bounded=cost is not None)
        self.door = Door(self._queue, limits, self.cost.batch_s, lambda: self._engines.lanes, lambda: self._lanes)
        self._execution = Execution(name, widths, self._queue, self.cost, events)
        self._renew = renew
        self._lock = threading.RLock()
        self._wakes = self._wake, self._wake_express = threading.Condition(self._lock), threading.Condition(self._lock)
        self._refusal: RequestError | None = None
        self._lost: list[float] = []
        self._renewing = False
        self._engines = engines
        self._lanes: list[Work] = []
        self._watch = Watch(f"watch {name}", self._look, limits.stall_s / 4)
        try:
            with self._lock:
                self._start()
        except Exception:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether work is done, or will be when a new engine is there."""
        return self._refusal is None

    @property
    def ready(self) -> bool:
        """Whether work is done now."""
        return self.alive and not self._renewing

    @property
    def waiting_items(self) -> int:
        """Inputs in the queue."""
        return self._queue.waiting_items

    @property
    def waiting_tokens(self) -> int:
        """Tokens in the queue."""
        return self._queue.waiting_tokens

    def submit(
        self,
        rows: Sequence[NDArray[np.int32]],
        outputs: tuple[Output, ...] = DENSE,
        marks: Sequence[int] | None = None,
        *,
        numbers: Sequence[int] | None = None,
        tenant: str = "",
        share: float = 1.0,
        weight: float = 1.0,
        who: Hashable = None,
    ) -> Job:
        """Queue the inputs of one request, or run them at once where that is quicker. Thread-safe.

        Args:
            rows: Token ids of each, int32 [length].
            outputs: What is wanted of each.
            marks: The place in each that the model wants to know; None where it wants none.
            numbers: What the caller calls them in errors; None is their places.
            tenant: Whose request it is.
            share: The tenant's weight beside other tenants.
            weight: The request's weight beside the tenant's others.
            who: Names the request, the same when it comes back after a refusal; None is nobody that was refused.

        Raises:
            Overloaded: Too much waits already.
            ShuttingDown: The runner is closed.
            EngineFailed: The runner is broken.
        """
        job = Job(len(rows), outputs, [self._widths[output] for output in outputs], marks, numbers)
        with self._lock:
            if self._refusal is not None:
                raise type(self._refusal)(*self._refusal.args)  # a new one: a raised error keeps its traceback
            if short := self._execution.is_short(rows, engines := self._engines):
                engines.enter()
            else:
                self.admit([len(ids) for ids in rows], who)
                self._call(len(rows), self._queue.add(job, rows, tenant=tenant, share=share, weight=weight))
                job.future.at_end(lambda: self._forget(job))
        if short:
            self._execution.at_once(job, rows, engines)
        return job

    def admit(self, lengths: Sequence[int], who: Hashable = None, *, joins: bool = True) -> None:
        """Let inputs of these lengths wait, or of about these, now or when they are ready.

        Raises:
            Overloaded: Too much waits already.
        """
        with self._lock:
            self.door.admit(lengths, who, joins=joins)

    def close(self) -> None:
        """Stop after the batch that runs, or when it has stalled; what still waits ends with ShuttingDown."""
        with self._lock:
            self._refuse(ShuttingDown("the server is shutting down and takes no new work"))
        while not all(work.ended() for work in list(self._lanes)):
            pass
        self._watch.close()
        self._engines.retire()

    def _forget(self, job: Job) -> None:
        """A job has ended, whichever way: what is left of it in the queue, which keeps it, is for nobody."""
        if job.queued:
            with self._lock:
                self._queue.drop(job)

    def _refuse(self, error: RequestError) -> None:
        """Admit nothing from now on, and let lanes end. The lock is held."""
        self._refusal = self._refusal or error
        for wake in self._wakes:
            wake.notify_all()

    def _start(self) -> None:
        """Begin the lanes that the present engines want and are not there, or raise. The lock is held."""
        self._lanes = [work for work in self._lanes if not work.abandoned]
        wanted = [False] * self._engines.lanes + [True] * (self._engines.narrow is not None)
        for express in wanted:
            if sum(work.express == express for work in self._lanes) < wanted.count(express):
                work = Work(self._engines, express=express)
                work.begin(self._main, f"{'express ' if express else ''}runner {self._name}")
                self._lanes.append(work)

    def _main(self, work: Work) -> None:
        if work.engines.narrow and not work.express:
            go_behind()
        try:
            while batch := self._next(work):
                for items in together(batch):
                    work.running = items
                    self._execution.run(items, work)
                    if work.abandoned:
                        return
                    done = set(map(id, items))
                    work.items = [item for item in work.items if id(item) not in done]
        except BaseException:
            log.exception("an engine thread of %s died", self._name)
            self._lose(work, "died")
            return
        finally:
            work.engines.leave()
        if not work.abandoned:
            self._fail_all(ShuttingDown("the server shut down before this request was done"))

    def _next(self, work: Work) -> list[Item[Job]]:
        """Wait for the next batch; empty when the runner closes or the lane was given up."""
        with self._lock:
            while self._refusal is None and not work.abandoned:
                work.use(self._engines)
                if not work.express and (pause_s := self.door.pause_s) > 0.0:
                    self._wake.wait(pause_s)
                    continue
                work.hold(self.door.take(work.most(self._lanes)), self.cost)
                if work.items:
                    self._call(0)
                    alone = not self._queue.waiting_items and sum(bool(lane.items) for lane in self._lanes) == 1
                    work.engine = work.engines.of(alone=alone)
                    return list(work.items)
                (self._wake_express if work.express else self._wake).wait()
        return []

    def _call(self, inputs: int, cost: float = 0.0) -> None:
        """Wake lanes for new inputs, the express lane only for what it may take. The lock is held."""
        self._wake.notify(inputs)
        for lane in self._lanes:
            if lane.express and self._queue.waiting_items and cost <= lane.most(self._lanes) > 0.0:
                self._wake_express.notify()

    def _lose(self, work: Work, how: str) -> None:
        """A lane is lost: queue again what it held, and begin another."""
        with self._lock:
            if work.abandoned:
                return
            work.abandoned = True
            self._lost.append(now := time.monotonic())
            self._lost = [one for one in self._lost if now - one < DEATHS_WITHIN_S]
            held, work.items = work.items, []
            guilty = work.running[0] if len(work.running) == 1 else None
            for item in work.running:
                item.deaths += 1
            if guilty is not None:
                guilty.owner.fail(EngineFailed(f"input {guilty.owner.number(guilty.row)}: the engine {how} over it"))
            self._queue.put_back([item for item in held if item is not guilty and not item.owner.future.done()])
            self._call(len(held))
            if self._refusal is not None:
                self._fail_all(self._refusal)  # lanes take nothing any more
            elif not self._renewing:  # else what is on its way is for this lane too
                self._renewing = True
                self._watch.ask(self._replace)

    def _replace(self) -> None:
        """Go on with other engines; where that cannot be, the runner is broken."""
        engines, old = self._others(), self._engines
        with self._lock:
            if engines is not None and self._continues(engines):
                log.warning("the engine of %s was replaced", self._name)
            else:
                lost = EngineLost(f"the engine of {self._name!r} has stopped; restart the server")
                self._fail_all(self._refusal or lost)
            self._renewing = False
        old.retire()

    def _continues(self, engines: Engines) -> bool:
        """Whether lanes compute with these from now on. The lock is held."""
        self._engines = engines
        try:
            if self._refusal is None:
                self._start()
                for wake in self._wakes:  # idle lanes hold the old engines
                    wake.notify_all()
                return True
        except Exception:
            log.exception("no lane for %s", self._name)
        engines.retire()
        return False

    def _others(self) -> Engines | None:
        """New engines; None where there are none, or too many lanes were lost already."""
        try:
            return self._renew() if self._renew is not None and len(self._lost) <= MOST_DEATHS else None
        except BaseException:
            log.exception("no new engine for %s", self._name)
            return None

    def _look(self) -> None:
        """Give up a lane whose batch takes far too long."""
        with self._lock:
            for work in [lane for lane in self._lanes if lane.is_stalled(self._limits.stall_s)]:
                self._lose(work, "stalled")
                log.error("the engine of %s has not come back from a batch", self._name)

    def _fail_all(self, error: RequestError) -> None:
        """End every job that still waits; after this `submit` refuses and lanes end."""
        with self._lock:
            self._refuse(error)
            while left := self._queue.take():
                for item in left:
                    item.owner.fail(error)
