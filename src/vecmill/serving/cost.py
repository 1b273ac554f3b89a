"""What a micro-batch costs: measured when the model is loaded, corrected from what runs.

The time of a batch of n rows of one length is an overhead, which every batch pays, and n rows at the speed that the
engine has at that length. From it follow how large a batch is worth making, how long one has to wait, and what a row
costs those who share the engine.

A machine that does other things besides is slower at all of it: that is its pace, which changes with every batch. What
an overhead is beside a row changes little, and is learned slowly: taken for slower rows, a busy hour would make batches
smaller, thus slower a row, thus smaller still.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

PROBE = (1, 32)
"""Rows and length that say whether what is known of an engine still holds."""

PROBES = ((1, 8), PROBE, (4, 32), (1, 128), (1, 512))
"""Rows and lengths that are tried, cheapest first."""

TIMES = 3
"""Each of them so often; the fastest one counts."""

CALIBRATION_S = 0.3
"""Longest time for all of them: what a slow model does not get to is taken from what it did."""

KNEE = 12.0
"""Overheads in a batch from which a larger one is no more than 8 % faster."""

SMALL_KNEE = 24.0
"""The same where all requests in it are small: 4 %, and each batch costs the event loop something, too."""

LEAST = 4.0
"""Overheads in a batch below which a smaller one is 25 % slower, however long it takes."""

MEMORY = 0.15
"""How much of a deviation is the machine's pace."""

LEARNED = 0.02
"""How much of it is learned of the engine: of the part of a batch that its time went to."""

DOUBT = 4.0
"""A batch that takes so many times longer or shorter than expected counts as this much and no more."""

GUESSED_S = 0.0002
"""Seconds a token before anything was measured."""


@dataclass(slots=True)
class CostModel:
    """Seconds of micro-batches of one model.

    Attributes:
        batch_s: Longest time that a micro-batch should take, where it is not too small to be worth it.
        overhead_s: What every batch pays.
        lengths: Lengths that were measured, ascending.
        token_s: Seconds a token at each of them, the overhead not counted.
        pace: How many times longer all of that takes at present.
    """

    batch_s: float
    overhead_s: float = 0.0
    lengths: list[int] = field(default_factory=lambda: [1])
    token_s: list[float] = field(default_factory=lambda: [GUESSED_S])
    pace: float = 1.0
    _prices: dict[float, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def seconds(self, rows: int, length: float) -> float:
        """Time of a batch of so many rows of a length."""
        return self.pace * (self.overhead_s + rows * self.price(length))

    def price(self, length: float) -> float:
        """Time of one more row of a length in a batch that runs anyway, without the pace: queues add these up."""
        price = self._prices.get(length)
        if price is None:  # a queue asks many times between two batches
            price = self._prices[length] = length * self._token_s(length)
        return price

    def room(self, length: int) -> int:
        """Rows of a length beyond which a batch is no faster a row, or takes too long."""
        longest_s = max(self.batch_s / self.pace, LEAST * self.overhead_s)
        return self._rows(min(KNEE * self.overhead_s, longest_s), length)

    def knee(self, length: int) -> int:
        """Rows of a length, each a small request, beyond which a batch is no faster a row, however long it takes."""
        return self._rows(SMALL_KNEE * self.overhead_s, length)

    def _rows(self, seconds: float, length: int) -> int:
        longest_s = self.batch_s / self.pace
        target = max(seconds, longest_s / 2) if self.overhead_s else longest_s
        return max(1, int((target - self.overhead_s) / self.price(length)))

    def saw(self, rows: int, length: float, seconds: float) -> None:
        """A batch ran: correct the pace, and a little the overhead and the speed at its length and those beside it."""
        expected = max(self.seconds(rows, length), 1e-9)
        ratio = min(max(seconds / expected, 1 / DOUBT), DOUBT)
        shared = self.pace * self.overhead_s / expected
        self.pace *= ratio**MEMORY
        self.overhead_s *= ratio ** (LEARNED * shared)
        at = min(bisect_left(self.lengths, length), len(self.lengths) - 1)
        for place, part in ((at, 1.0), (at - 1, 0.5), (at + 1, 0.5)):
            if 0 <= place < len(self.lengths):
                self.token_s[place] *= ratio ** (LEARNED * part * (1 - shared))
        self._prices.clear()

    def _token_s(self, length: float) -> float:
        """Between measured lengths by their logarithm, beyond them as at the nearest."""
        at = bisect_left(self.lengths, length)
        if at == 0 or len(self.lengths) == 1:
            return self.token_s[0]
        if at == len(self.lengths):
            return self.token_s[-1]
        low, high = self.lengths[at - 1], self.lengths[at]
        part = math.log(length / low) / math.log(high / low)
        return self.token_s[at - 1] * (1 - part) + self.token_s[at] * part


def calibrate(
    run: Callable[[NDArray[np.int32]], object],
    *,
    batch_s: float,
    max_tokens: int,
    vocab_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> CostModel:
    """Measure an engine.

    Args:
        run: Runs ids int32 [rows, length].
        batch_s: As `CostModel`.
        max_tokens: Most tokens of an input.
        vocab_size: Ids are below it.
        clock: Seconds.
    """
    rng = np.random.default_rng(0)
    started = clock()
    seen: dict[tuple[int, int], float] = {}
    for rows, length in dict.fromkeys((rows, min(length, max_tokens)) for rows, length in PROBES):
        seen[rows, length] = _fastest(run, rng.integers(0, vocab_size, (rows, length), dtype=np.int32), clock)
        if clock() - started > CALIBRATION_S:
            break
    return fitted(seen, batch_s)


def probed(
    run: Callable[[NDArray[np.int32]], object],
    *,
    max_tokens: int,
    vocab_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[int, int, float]:
    """Rows, length and seconds of one small batch; arguments as `calibrate`."""
    rows, length = PROBE[0], min(PROBE[1], max_tokens)
    ids = np.random.default_rng(0).integers(0, vocab_size, (rows, length), dtype=np.int32)
    return rows, length, _fastest(run, ids, clock)


def fitted(seen: dict[tuple[int, int], float], batch_s: float) -> CostModel:
    """The model that explains what was seen: rows and length to seconds, at least one."""
    pairs = [(one, many) for one in seen for many in seen if one[1] == many[1] and one[0] < many[0]]
    overheads = [
        (seen[one] * many[0] - seen[many] * one[0]) / (many[0] - one[0]) for one, many in pairs
    ]  # two lines through one length meet where no row is
    least = min(seen.values())
    overhead = min(max(float(np.median(overheads)) if overheads else least / 2, 0.0), 0.9 * least)
    by_length: dict[int, list[float]] = {}
    for (rows, length), seconds in seen.items():
        by_length.setdefault(length, []).append(max(seconds - overhead, 1e-9) / (rows * length))
    lengths = sorted(by_length)
    return CostModel(batch_s, overhead, lengths, [min(by_length[length]) for length in lengths])


def _fastest(run: Callable[[NDArray[np.int32]], object], ids: NDArray[np.int32], clock: Callable[[], float]) -> float:
    run(ids)  # the first run of a shape makes its plans
    return min(_timed(run, ids, clock) for _ in range(TIMES))


def _timed(run: Callable[[NDArray[np.int32]], object], ids: NDArray[np.int32], clock: Callable[[], float]) -> float:
    started = clock()
    run(ids)
    return clock() - started
