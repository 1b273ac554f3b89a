"""The cost of micro-batches: recovered from a known engine, corrected from what runs."""

import random
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.serving.cost import CALIBRATION_S, TIMES, CostModel, calibrate, fitted

OVERHEAD_S = 0.002
BATCH_S = 0.025


class Engine:
    """An engine with a known cost and a clock of its own."""

    def __init__(self, token_s: float = 0.0001, overhead_s: float = OVERHEAD_S) -> None:
        self.token_s = token_s
        self.overhead_s = overhead_s
        self.now = 0.0
        self.shapes: list[tuple[int, int]] = []

    def clock(self) -> float:
        """Seconds."""
        return self.now

    def seconds(self, rows: int, length: int) -> float:
        """What a batch truly takes; long inputs are slower a token."""
        return self.overhead_s + rows * length * self.token_s * (1 + length / 1000)

    def run(self, ids: NDArray[np.int32]) -> None:
        """Let the time pass."""
        rows, length = ids.shape
        self.shapes.append((rows, length))
        self.now += self.seconds(rows, length)


def measured(engine: Engine, max_tokens: int = 512) -> CostModel:
    """The model that calibration makes of an engine."""
    return calibrate(engine.run, batch_s=BATCH_S, max_tokens=max_tokens, vocab_size=100, clock=engine.clock)


@pytest.mark.parametrize(("rows", "length"), [(1, 8), (1, 20), (8, 32), (3, 100), (1, 300), (1, 512)])
def test_a_known_engine_is_recovered(rows: int, length: int) -> None:
    """Predictions are within 12 %, also between and beside the lengths that were measured."""
    engine = Engine()
    assert measured(engine).seconds(rows, length) == pytest.approx(engine.seconds(rows, length), rel=0.12)


def test_the_overhead_is_recovered() -> None:
    """What every batch pays is told from what rows cost."""
    assert measured(Engine()).overhead_s == pytest.approx(OVERHEAD_S, rel=0.05)
    assert measured(Engine(overhead_s=0.0)).overhead_s == pytest.approx(0, abs=1e-6)


def test_a_slow_model_is_measured_briefly() -> None:
    """Calibration stops after its time and one more shape; what it did not see follows from what it did."""
    engine = Engine(token_s=0.01)
    model = measured(engine)
    assert engine.now < CALIBRATION_S + 3 * engine.seconds(1, 32)
    assert model.seconds(1, 512) == pytest.approx(512 * 0.01, rel=0.5)


def test_short_models_are_measured_within_their_limit() -> None:
    """No input is longer than the model takes, and no shape runs twice over."""
    engine = Engine()
    measured(engine, max_tokens=16)
    assert max(length for _, length in engine.shapes) == 16
    assert len(set(engine.shapes)) * (1 + TIMES) == len(engine.shapes)


def test_room_is_bounded_by_time() -> None:
    """A batch takes no longer than told, as long as that is worth its overhead."""
    model = measured(Engine())
    for length in (8, 32, 128):
        rows = model.room(length)
        assert model.seconds(rows, length) <= BATCH_S * 1.01
        assert model.seconds(rows + 1, length) > BATCH_S * 0.7
    assert model.room(512) >= 1


def test_room_is_bounded_by_use() -> None:
    """Where the overhead is small, large batches are no faster, and are not made; where it is large, they are."""
    small, large = measured(Engine(overhead_s=0.0002)), measured(Engine(overhead_s=0.02))
    assert small.seconds(small.room(8), 8) < BATCH_S
    assert large.seconds(large.room(8), 8) > BATCH_S
    assert large.seconds(large.room(8), 8) < 6 * 0.02


def test_it_learns() -> None:
    """An engine that became half as fast is believed after some batches; a single outlier is not."""
    model = measured(Engine())
    before = model.seconds(4, 64)
    model.saw(4, 64, before * 1000)
    assert model.seconds(4, 64) < 1.6 * before
    slow = measured(Engine())
    for _ in range(60):
        slow.saw(4, 64, 2 * before)
    assert slow.seconds(4, 64) == pytest.approx(2 * before, rel=0.05)


def test_small_requests_are_worth_a_batch_twice_as_large() -> None:
    """The knee is at 24 overheads, one of them the batch's own; the room at 12, and at the time that it may take."""
    model = CostModel(batch_s=1.0, overhead_s=0.001, token_s=[0.0001])
    assert (model.room(10), model.knee(10)) == (499, 499)  # of less than half its time no batch is made
    model = CostModel(batch_s=0.012, overhead_s=0.001, token_s=[0.0001])
    assert (model.room(10), model.knee(10)) == (11, 23)
    model = CostModel(batch_s=0.001, overhead_s=0.001, token_s=[0.0001])
    assert (model.room(10), model.knee(10)) == (3, 23)


def test_a_busy_machine_makes_no_smaller_batches() -> None:
    """Where all takes three times as long for a while, as many rows are worth a batch as before, then and after."""
    model = measured(Engine())
    before = model.knee(12)
    true = replace(model, token_s=list(model.token_s))
    for times in (3.0, 1.0):
        for _ in range(300):
            model.saw(before, 12, times * true.seconds(before, 12))
        assert model.seconds(before, 12) == pytest.approx(times * true.seconds(before, 12), rel=0.05)
        assert model.knee(12) == pytest.approx(before, rel=0.2)


@pytest.mark.parametrize("times", [0.2, 5.0])
def test_a_wrong_overhead_is_corrected(times: float) -> None:
    """What was measured beside other work is put right by batches of several sizes."""
    true = measured(Engine(overhead_s=0.005))
    model = replace(true, overhead_s=true.overhead_s * times, token_s=list(true.token_s))
    rng = random.Random(0)
    for _ in range(3000):
        rows, length = rng.choice((1, 1, 2, 8)), rng.choice((8, 16, 32))
        model.saw(rows, length, true.seconds(rows, length))
    assert model.pace * model.overhead_s == pytest.approx(true.overhead_s, rel=0.25)
    assert model.knee(12) == pytest.approx(true.knee(12), rel=0.35)


def test_without_two_sizes() -> None:
    """A single measurement still gives a model that is positive everywhere."""
    model = fitted({(1, 8): 0.5}, BATCH_S)
    assert 0 < model.seconds(1, 1) < model.seconds(1, 8) < model.seconds(10, 800)
    assert model.room(8) >= 1
