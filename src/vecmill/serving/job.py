"""One request in flight, and what a runner's thread has in hand. Every job ends: columns, an error or cancellation."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from vecmill.core import Output, Value
from vecmill.engine.base import Column, Engine
from vecmill.errors import RequestError
from vecmill.serving.scheduler import Item, Owner


class Work:
    """What a thread has in hand.

    Attributes:
        engine: Its own.
        items: Taken and not yet answered.
        running: Of these, what the engine was given last.
        began: When the batch that runs began, by the monotonic clock; 0 between batches.
        expected_s: What that batch should take.
        abandoned: The thread was given up: whatever it still does is for nobody.
    """

    __slots__ = ("abandoned", "began", "engine", "expected_s", "items", "running")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.items: list[Item[Job]] = []
        self.running: list[Item[Job]] = []
        self.began = 0.0
        self.expected_s = 0.0
        self.abandoned = False


class Job(Owner):
    """One request in flight.

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

    __slots__ = ("__weakref__", "columns", "future", "marks", "missing", "numbers", "outputs", "started")

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
        self.missing = inputs
        self.started = 0.0
        self.future: Future[list[Column]] = Future()

    def number(self, row: int) -> int:
        """What the caller calls an input."""
        return row if self.numbers is None else self.numbers[row]

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
