"""The cost model between starts: believed where a probe agrees, corrected from what ran, measured anew else."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vecmill.config import Settings
from vecmill.core import Request
from vecmill.serving import kept_cost as module
from vecmill.serving.cost import CostModel, calibrate
from vecmill.serving.events import Events
from vecmill.serving.kept_cost import AGREES, KeptCost, cpu_name, kept_cost
from vecmill.serving.registry import load

BATCH_S = 0.025


def model() -> CostModel:
    """A model with a second's overhead."""
    return CostModel(BATCH_S, 1.0, [8, 32], [0.1, 0.2])


class Engine:
    """Counts how often it is measured; takes so many times as long as the model says."""

    def __init__(self, times: float = 1.0) -> None:
        self.times = times
        self.measured = self.probed = 0

    def measure(self) -> CostModel:
        """A measurement."""
        self.measured += 1
        return CostModel(BATCH_S, self.times, [8, 32], [0.1 * self.times, 0.2 * self.times])

    def probe(self) -> tuple[int, int, float]:
        """One batch."""
        self.probed += 1
        return 1, 32, self.times * model().seconds(1, 32)

    def start(self, kept: KeptCost) -> CostModel:
        """A start."""
        return kept.start(self.probe, self.measure)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured in no time is kept too."""
    monkeypatch.setattr(module, "LEAST_S", 0.0)


@pytest.fixture
def kept(tmp_path: Path) -> KeptCost:
    """A file that is not there yet."""
    return KeptCost(tmp_path / "costs" / "one.json", BATCH_S)


def test_the_second_start_does_not_measure(kept: KeptCost) -> None:
    """What the first start measured the second believes, after one probe; the bound is the setting's of today."""
    first = Engine()
    assert first.start(kept) == model()
    assert (first.measured, first.probed) == (1, 0)
    second = Engine()
    later = KeptCost(kept.path, 0.5)
    assert second.start(later) == CostModel(0.5, 1.0, [8, 32], [0.1, 0.2])
    assert (second.measured, second.probed) == (0, 1)
    assert [path.name for path in kept.path.parent.iterdir()] == ["one.json"]


@pytest.mark.parametrize(("times", "measured"), [(1.9, 0), (1 / 1.9, 0), (1.05 * AGREES, 1), (0.95 / AGREES, 1)])
def test_a_machine_of_another_speed_is_measured(kept: KeptCost, times: float, measured: int) -> None:
    """Where a probe takes twice or half the time, all is measured anew, and kept."""
    Engine().start(kept)
    other = Engine(times)
    cost = other.start(kept)
    assert other.measured == measured
    assert kept.read() == replace(cost, pace=1.0)
    assert cost.seconds(1, 32) == pytest.approx(times * model().seconds(1, 32))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\xff",
        '{"overhead_s": 1}',
        '{"overhead_s": 1, "lengths": [], "token_s": []}',
        '{"overhead_s": 1, "lengths": [8], "token_s": [0.1, 0.2]}',
        '{"overhead_s": 1, "lengths": [8, 8], "token_s": [0.1, 0.2]}',
        '{"overhead_s": 1, "lengths": [32, 8], "token_s": [0.1, 0.2]}',
        '{"overhead_s": 1, "lengths": ["8"], "token_s": [0.1]}',
        '{"overhead_s": 1, "lengths": [0], "token_s": [0.1]}',
        '{"overhead_s": 1, "lengths": [8], "token_s": [0]}',
        '{"overhead_s": 1, "lengths": [8], "token_s": [NaN]}',
        '{"overhead_s": -1, "lengths": [8], "token_s": [0.1]}',
        '{"overhead_s": Infinity, "lengths": [8], "token_s": [0.1]}',
        '{"overhead_s": 1, "lengths": 8, "token_s": [0.1]}',
    ],
)
def test_a_damaged_file_is_measured_anew(kept: KeptCost, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is no cost model costs a line in the log, and is overwritten."""
    kept.path.parent.mkdir()
    kept.path.write_text(text, encoding="latin-1")
    engine = Engine()
    with caplog.at_level(logging.WARNING):
        assert engine.start(kept) == model()
    assert "measured anew" in caplog.text
    assert (engine.measured, kept.read()) == (1, model())


def test_what_was_learned_is_kept_where_it_makes_sense(kept: KeptCost) -> None:
    """The correction of a run is there at the next start; one that is wild, or no number, is not."""
    before = Engine().start(kept)
    learned = CostModel(BATCH_S, 1.0, [8, 32], [0.15, 0.2])
    kept.learned(before, learned)
    assert kept.read() == learned
    for wild in (0.15 * 5, 0.1 / 5, float("nan"), float("inf"), 0.0):
        kept.learned(before, CostModel(BATCH_S, 1.0, [8, 32], [wild, 0.2]))
        assert kept.read() == learned


def test_what_is_measured_in_no_time_is_not_kept(kept: KeptCost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model is measured at every start, and leaves nothing behind."""
    monkeypatch.setattr(module, "LEAST_S", 60.0)
    cost = Engine().start(kept)
    kept.learned(cost, cost)
    assert not kept.path.parent.exists()


def test_a_disk_that_takes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be kept the start goes on, with a line in the log."""
    (tmp_path / "costs").write_text("a file where a folder should be")
    with caplog.at_level(logging.WARNING):
        assert Engine().start(KeptCost(tmp_path / "costs" / "one.json", BATCH_S)) == model()
    assert "not kept" in caplog.text


def test_files_are_bounded(kept: KeptCost, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go."""
    monkeypatch.setattr(module, "MOST_FILES", 3)
    for number in range(5):
        KeptCost(kept.path.with_name(f"{number}.json"), BATCH_S).write(model())
    assert len(list(kept.path.parent.iterdir())) == 3
    assert kept.path.with_name("4.json").exists()


def test_what_else_has_a_file_of_its_own(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another precision, number of threads, checkpoint or CPU is another file; the same is the same."""

    def path(*asked: object, checkpoint: Path = tiny_folder) -> Path:
        return kept_cost(tmp_path, checkpoint, asked, BATCH_S).path

    (tmp_path / "other").mkdir()
    paths = [path("int8", 2), path("float32", 2), path("int8", 4), path("int8", 2, checkpoint=tmp_path / "other")]
    monkeypatch.setattr(module, "cpu_name", lambda: "another")
    paths.append(path("int8", 2))
    assert len(set(paths)) == 5
    monkeypatch.undo()
    assert path("int8", 2) == paths[0]


def test_the_cpu_has_a_name(tmp_path: Path) -> None:
    """Linux says it; elsewhere Python's own word for it will do."""
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Fast 9000\nmodel name\t: Fast 9000\n")
    assert cpu_name(tmp_path / "cpuinfo") == "Fast 9000"
    assert cpu_name(tmp_path / "none")


def test_a_loaded_model_keeps_its_cost(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real start keeps a file, and its end what was learned; the next start does not measure."""
    monkeypatch.setattr(module, "AGREES", 1e9)
    settings = Settings(cache=tmp_path)
    counted = counting(monkeypatch)
    first = load(str(tiny_folder), settings, Events())
    (path,) = (tmp_path / "costs").iterdir()
    for _ in range(5):
        first.runner.cost.saw(1, 8, 1.5 * first.runner.cost.seconds(1, 8))
    expected = list(first.runner.cost.token_s)
    first.close()
    assert json.loads(path.read_text())["token_s"] == expected
    second = load(str(tiny_folder), settings, Events())
    assert second.compute(Request(model=None, inputs=["the cat"])).rows.any()
    second.close()
    assert counted() == 1
    assert list((tmp_path / "costs").iterdir()) == [path]


def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often models are calibrated from now on."""
    calls = []

    def counted(run: Callable[..., object], *, batch_s: float, max_tokens: int, vocab_size: int) -> CostModel:
        calls.append(run)
        return calibrate(run, batch_s=batch_s, max_tokens=max_tokens, vocab_size=vocab_size)

    monkeypatch.setattr("vecmill.serving.registry.calibrate", counted)
    return lambda: len(calls)
