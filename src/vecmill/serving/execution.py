"""Running a micro-batch: each input gets its answer or its own error, and what was learned is kept."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vecmill.core import Output
from vecmill.engine.base import Batch, Column, Ids, picked
from vecmill.errors import EngineFailed
from vecmill.serving.cost import CostModel
from vecmill.serving.engines import Engines
from vecmill.serving.events import BatchDone, Events
from vecmill.serving.finish import sound
from vecmill.serving.job import Job, Work
from vecmill.serving.piles import Item
from vecmill.serving.scheduler import Scheduler

log = logging.getLogger(__name__)

FEWEST_TOKENS = 64
"""The bound on a micro-batch is not lowered below this, however short memory is."""

SHORT = 256
"""Inputs and tokens together of a request that needs no lane where the engine is instant."""

SHORT_OF_MEMORY = ("out of memory", "bad_alloc", "failed to allocate")
"""Words by which engines say that memory is short."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How one runner's batches run.

    Attributes:
        name: Served name.
        widths: Output to the numbers of a value of it; 0 where they differ.
        queue: Whose batches become smaller where memory is short.
        cost: Told what each batch took.
        events: Told of every batch.
    """

    name: str
    widths: dict[Output, int]
    queue: Scheduler[Job]
    cost: CostModel
    events: Events

    def is_short(self, rows: Sequence[Ids], engines: Engines) -> bool:
        """Whether to run these at once, on the caller's thread, takes less than to wake a lane for them."""
        if not engines.wide.instant or len(rows) > self.queue.batch_inputs:
            return False
        return len(rows) + sum(map(len, rows)) <= min(SHORT, self.queue.batch_tokens)

    def at_once(self, job: Job, rows: Sequence[Ids], engines: Engines) -> None:
        """Run all inputs of a job on this thread, with engines that were entered for it and are left."""
        try:
            self.run([Item(ids, job, row) for row, ids in enumerate(rows)], Work(engines))
        finally:
            engines.leave()

    def run(self, items: list[Item[Job]], work: Work) -> None:
        """Run a batch; one that fails is halved until the guilty input is alone."""
        try:
            columns = self._compute(items, work)
        except Exception as error:
            self._lower(error, items)
            if len(items) > 1:
                middle = len(items) // 2
                self.run(items[:middle], work)
                self.run(items[middle:], work)
                return
            log.exception("the engine of %s failed on one input of %d tokens", self.name, len(items[0].ids))
            items[0].owner.fail(
                EngineFailed(f"input {items[0].owner.number(items[0].row)}: the engine failed ({type(error).__name__})")
            )
            return
        if work.abandoned:
            return
        good, *more = (sound(*pair) for pair in zip(items[0].owner.outputs, columns, strict=True))
        for also in more:
            good = good & also
        done: dict[int, list[int]] = {}
        for place, (item, fine) in enumerate(zip(items, good.tolist(), strict=True)):
            if fine:
                done.setdefault(id(item.owner), []).append(place)
                continue
            log.error("the engine of %s returned no vector for %d tokens", self.name, len(item.ids))
            where = f"input {item.owner.number(item.row)}"
            item.owner.fail(EngineFailed(f"{where}: the engine returned a zero vector, NaN or infinity"))
        for places in done.values():
            parts = columns if len(places) == len(items) else [picked(column, places) for column in columns]
            items[places[0]].owner.put([items[place].row for place in places], parts)

    def _lower(self, error: Exception, items: list[Item[Job]]) -> None:
        """Where memory was short, make smaller batches from now on."""
        if isinstance(error, MemoryError) or any(word in str(error).lower() for word in SHORT_OF_MEMORY):
            tokens = sum(len(item.ids) for item in items)
            self.queue.batch_tokens = max(FEWEST_TOKENS, min(self.queue.batch_tokens, tokens // 2))
            log.warning("out of memory: batches of %s are bounded by %d tokens", self.name, self.queue.batch_tokens)

    def _compute(self, items: list[Item[Job]], work: Work) -> list[Column]:
        marked = [item.owner.marks[item.row] for item in items if item.owner.marks is not None]
        batch, outputs = Batch.pack([item.ids for item in items], marked or None), items[0].owner.outputs
        length = len(batch.ids) / len(items)
        work.expected_s = self.cost.seconds(len(items), length)
        started, failed = time.perf_counter(), True
        work.began = time.monotonic()
        for item in items:
            item.owner.started = item.owner.started or started
        try:
            columns = work.engine.compute(batch, outputs)
            failed = False
        finally:
            work.began = 0.0
            seconds = time.perf_counter() - started
            self.events(BatchDone(self.name, len(items), len(batch.ids), seconds, failed))
        for output, column in zip(outputs, columns, strict=True):
            self._check(output, column, len(items))
        if work.engine is work.engines.usual:
            self.cost.saw(len(items), length, seconds)
        return columns

    def _check(self, output: Output, column: Column, count: int) -> None:
        width = self.widths[output]
        shape = column.shape if width and isinstance(column, np.ndarray) else (len(column), width)
        if shape != (count, width):
            raise ValueError(f"the engine returned {shape} of {output}, wanted {(count, width)}")


def together(items: list[Item[Job]]) -> list[list[Item[Job]]]:
    """Items that run together: those that want the same outputs; each alone over which a thread was lost before."""
    groups: dict[object, list[Item[Job]]] = {}
    for number, item in enumerate(items):
        groups.setdefault(number if item.deaths else item.owner.outputs, []).append(item)
    return list(groups.values())
