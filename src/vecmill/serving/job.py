"""One request in flight, and what a lane has in hand. Every job ends: columns, an error or cancellation."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecmill.core import Output
from vecmill.engine.base import Column, Engine, picked
from vecmill.errors import RequestError
from vecmill.serving.cost import CostModel
from vecmill.serving.ending import Ending
from vecmill.serving.engines import Engines
from vecmill.serving.piles import Item, tokens_of
from vecmill.serving.scheduler import Owner

EXPRESS = 3.0
"""A request need not wait for another's part of a batch that costs so many times what it costs itself: it runs beside
it. For its like it waits, as they make a batch together."""


STALLED = 30.0
"""A batch that takes so many times longer than it should, and longer than the time to stall, is stalled."""


JOIN_S = 0.05
"""Longest moment that one who closes a runner waits for a lane before looking whether it was given up."""


class Work:
    """What a lane's thread has in hand.

    Attributes:
        express: Whether it is there for small requests, while all other lanes are busy.
        engines: Those it computes with.
        engine: The one of them that its batch runs on.
        items: Taken and not yet answered.
        running: Of these, what the engine was given last.
        began: When the batch that runs began, by the monotonic clock; 0 between batches.
        held: When the batch in hand was taken, by the same clock.
        expected_s: What the batch in hand should take.
        part_s: What the largest part of it costs that is one request's.
        abandoned: The thread was given up: whatever it still does is for nobody.
        thread: The lane's; None where it is the caller's.
    """

    __slots__ = (
        "abandoned",
        "began",
        "engine",
        "engines",
        "expected_s",
        "express",
        "held",
        "items",
        "part_s",
        "running",
        "thread",
    )

    def __init__(self, engines: Engines, *, express: bool = False) -> None:
        self.express = express
        self.engines = engines
        self.engine: Engine = engines.wide
        self.items: list[Item[Job]] = []
        self.running: list[Item[Job]] = []
        self.began = 0.0
        self.held = 0.0
        self.expected_s = 0.0
        self.part_s = 0.0
        self.abandoned = False
        self.thread: threading.Thread | None = None

    def begin(self, main: "Callable[[Work], None]", name: str) -> None:
        """Start the lane's thread.

        Raises:
            RuntimeError: There are as many threads as there may be.
        """
        thread = threading.Thread(target=main, args=(self,), name=name, daemon=True)
        self.engines.enter()
        try:
            thread.start()
        except BaseException:
            self.engines.leave()
            raise
        self.thread = thread

    def ended(self) -> bool:
        """Whether its thread has ended or was given up; waits a moment for it."""
        if self.thread is not None and not self.abandoned:
            self.thread.join(JOIN_S)
        return self.thread is None or self.abandoned or not self.thread.is_alive()

    def use(self, engines: Engines) -> None:
        """Compute with these from now on."""
        if self.engines is not engines:
            engines.enter()
            self.engines.leave()
            self.engines = engines

    def hold(self, items: "list[Item[Job]]", cost: CostModel) -> None:
        """These were taken, perhaps none."""
        self.items = items
        if items:
            self.held = time.monotonic()
            length = tokens_of(items) / len(items)
            self.expected_s = cost.seconds(len(items), length)
            parts: dict[int, int] = {}
            for item in items:
                parts[id(item.owner)] = parts.get(id(item.owner), 0) + 1
            self.part_s = max(parts.values()) * cost.price(length)

    def left_s(self, now: float) -> float:
        """Predicted seconds until the batch in hand is done."""
        return max(0.0, self.held + self.expected_s - now) if self.items else 0.0

    def is_stalled(self, stall_s: float) -> bool:
        """Whether the batch that runs takes far too long, and longer than this, and was not given up."""
        began, expected_s = self.began, self.expected_s
        late = bool(began) and time.monotonic() - began > max(stall_s, STALLED * expected_s)
        return late and not self.abandoned

    def most(self, lanes: Sequence["Work"]) -> float:
        """Predicted seconds that its next batch may take beside these lanes; 0 where it has nothing to do."""
        if not self.express:
            return math.inf
        return min(lane.part_s if lane.items else 0.0 for lane in lanes if not lane.express) / EXPRESS


class Job(Owner):
    """One request in flight; several lanes may work on it.

    Args:
        inputs: How many it has.
        outputs: What is wanted of each.
        widths: Numbers of a value of each output; 0 where they differ.
        marks: The place in each input that the model wants to know; None where it wants none.
        numbers: What the caller calls its inputs in errors; None is their places.

    Attributes:
        columns: One for each output, filled as batches finish: float32 [inputs, width], or a list.
        started: When its first input ran, by `time.perf_counter`; 0 before that.
        future: Ends with `columns`, or with a RequestError. Cancelling it drops what is still queued.
    """

    __slots__ = ("_lock", "columns", "future", "marks", "missing", "numbers", "outputs", "started")

    def __init__(
        self,
        inputs: int,
        outputs: tuple[Output, ...],
        widths: Sequence[int],
        marks: Sequence[int] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self.marks = marks
        self.numbers = numbers
        self.columns: list[Any] = [
            np.empty((inputs, width), dtype=np.float32) if width else [None] * inputs for width in widths
        ]
        self.missing = set(range(inputs))
        self._lock = threading.Lock()
        self.started = 0.0
        self.future: Ending[list[Column]] = Ending()

    def number(self, row: int) -> int:
        """What the caller calls an input."""
        return row if self.numbers is None else self.numbers[row]

    def put(self, rows: list[int], columns: Sequence[Column]) -> None:
        """Some inputs are done. One that was done before stays as it is: a lost lane and the next may both have had it.

        Args:
            rows: Which.
            columns: Their values, for each output.
        """
        with self._lock:
            if not self.missing.issuperset(rows):
                places = [place for place, row in enumerate(rows) if row in self.missing]
                rows, columns = [rows[place] for place in places], [picked(column, places) for column in columns]
            for column, values in zip(self.columns, columns, strict=True):
                if isinstance(column, np.ndarray):
                    column[rows] = values
                    continue
                for row, value in zip(rows, values, strict=True):
                    column[row] = value
            self.missing.difference_update(rows)
            last = not self.missing
        if last:
            self.future.set_result(self.columns)

    def fail(self, error: RequestError) -> None:
        """The job ends with an error; the first one counts."""
        self.future.set_exception(error)
