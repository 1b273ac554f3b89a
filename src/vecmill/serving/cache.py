"""Answers that were given before, by the tokens that they were given for; and what a request still has to ask.

The key is the tokens themselves, with the mark, the outputs and whose answers they are: two texts of the same tokens
have the same answer, and another model or revision has another cache. Values are as the engine gave them, before any
wish of a request.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import msgspec
import numpy as np

from vecmill.core import Output, Sparse, Value
from vecmill.engine.base import Column
from vecmill.model.tokens import Tokens

Key = tuple[bytes, int, tuple[Output, ...], str]
"""Tokens, mark, outputs and tenant; "" is everybody's."""

ENTRY_BYTES = 400
"""What an entry takes beside its numbers and its key's bytes."""


class Cache:
    """A bounded memory of answers; the least recently used go first. Thread-safe.

    Args:
        max_bytes: Most bytes; 0 remembers nothing.
        ttl_s: Seconds that an answer is remembered.
        clock: Seconds.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = Lock()
        self._entries: OrderedDict[Key, tuple[float, tuple[Value, ...]]] = OrderedDict()

    def __len__(self) -> int:
        """How many answers are remembered."""
        return len(self._entries)

    def get(self, key: Key) -> tuple[Value, ...] | None:
        """The answer, a value for each output; None where there is none that is young enough."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            until, values = entry
            if self._clock() >= until:
                self._remove(key)
                return None
            self._entries.move_to_end(key)
            return values

    def put(self, key: Key, values: Sequence[Value], for_s: float = math.inf) -> tuple[Value, ...]:
        """Remember an answer; numbers are copied, so that none keeps the array alive that it is a row of.

        Args:
            key: What it answers.
            values: One for each output.
            for_s: Seconds that it holds, where that is less than answers are remembered.

        Returns:
            The copies, which nobody changes.
        """
        copies = tuple(map(_copied, values))
        size = size_bytes(key, copies)
        if size > self.max_bytes:
            return copies
        with self._lock:
            if key in self._entries:
                self._remove(key)
            self._entries[key] = self._clock() + min(for_s, self._ttl_s), copies
            self.size_bytes += size
            while self.size_bytes > self.max_bytes:
                self._remove(next(iter(self._entries)))
        return copies

    def _remove(self, key: Key) -> None:
        _, values = self._entries.pop(key)
        self.size_bytes -= size_bytes(key, values)


def size_bytes(key: Key, values: Sequence[Value]) -> int:
    """About what an answer takes in memory."""
    numbers = sum(
        value.indices.nbytes + value.values.nbytes if isinstance(value, Sparse) else value.nbytes for value in values
    )
    return ENTRY_BYTES + len(key[0]) + numbers


class Plan(msgspec.Struct, frozen=True):
    """What a request has to ask of the engine, and where its answers go.

    Attributes:
        keys: Of all inputs.
        known: Place of an input to its answer.
        asked: Places of inputs that the engine is asked about: the first of each that is not known.
    """

    keys: list[Key]
    known: dict[int, tuple[Value, ...]]
    asked: list[int]

    def learned(self, values: Mapping[Key, tuple[Value, ...]]) -> "Plan":
        """The same request where these answers are known too."""
        found = {place: values[key] for place, key in enumerate(self.keys) if key in values}
        return Plan(self.keys, {**found, **self.known}, [place for place in self.asked if place not in found])

    def columns(self, widths: Sequence[int]) -> list[Column]:
        """Columns of all inputs, every one of which is known; copies, so that nobody changes what others read.

        Args:
            widths: Numbers of a value of each output; 0 where they differ.
        """
        made: list[Column] = []
        for output, width in enumerate(widths):
            rows: list[Any] = [self.known[place][output] for place in range(len(self.keys))]
            made.append(np.stack(rows) if width else [_copied(row) for row in rows])
        return made


def plan(cache: Cache | None, tokens: Sequence[Tokens], outputs: tuple[Output, ...], tenant: str = "") -> Plan:
    """What has to be asked: nothing that is known, and nothing twice.

    Args:
        cache: What is known; None asks everything that is not asked already.
        tokens: Of all inputs.
        outputs: What is wanted of each.
        tenant: Whose answers are known; "" is everybody's.
    """
    keys = [(one.ids.tobytes(), one.mark, outputs, tenant) for one in tokens]
    known: dict[int, tuple[Value, ...]] = {}
    seen: set[Key] = set()
    asked = []
    for place, key in enumerate(keys):
        values = cache.get(key) if cache is not None else None
        if values is not None:
            known[place] = values
        elif key not in seen:
            seen.add(key)
            asked.append(place)
    return Plan(keys, known, asked)


def _copied(value: Value) -> Value:
    return Sparse(value.indices.copy(), value.values.copy()) if isinstance(value, Sparse) else value.copy()
