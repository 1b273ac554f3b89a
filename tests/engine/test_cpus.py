"""How many CPUs a process may use."""

import os
from pathlib import Path

import pytest

from vecmill.engine import fake
from vecmill.engine.base import load_engine, usable_cpus, usable_memory
from vecmill.model.spec import ModelSpec


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is bound to eight of the machine's CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)


@pytest.mark.parametrize(
    ("quota", "wanted"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("250000 100000\n", 2),
        ("50000 100000\n", 1),
        ("100000 50000\n", 2),
        ("6400000 100000\n", 8),
        ("", 8),
        ("200000\n", 8),
        ("two 100000\n", 8),
    ],
)
def test_quota(tmp_path: Path, quota: str, wanted: int) -> None:
    """A container's quota bounds the CPUs, rounded down and never to none; what is no quota bounds nothing."""
    cpu_max = tmp_path / "cpu.max"
    cpu_max.write_text(quota)
    assert usable_cpus(cpu_max) == wanted


def test_no_container(tmp_path: Path) -> None:
    """Without a quota the process may use the CPUs that it is bound to, not all that the machine has."""
    assert usable_cpus(tmp_path / "absent") == 8


def test_no_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a system knows no binding, all CPUs count."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus(tmp_path / "absent") == 64


@pytest.mark.parametrize(("limit", "wanted"), [("max\n", 4096), ("1024\n", 1024), ("8192\n", 4096), ("", 4096)])
def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, wanted: int) -> None:
    """The machine's memory counts, bounded by the container's limit; what is no limit bounds nothing."""
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 4, "SC_PAGE_SIZE": 1024}.__getitem__)
    memory_max = tmp_path / "memory.max"
    memory_max.write_text(limit)
    assert usable_memory(memory_max) == wanted
    assert usable_memory(tmp_path / "absent") == 4096


def test_memory_that_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without such numbers has none to spare."""
    monkeypatch.delattr(os, "sysconf")
    assert usable_memory() == 0


@pytest.mark.parametrize(("asked", "wanted"), [(0, 5), (3, 3)])
def test_threads_of_an_engine(tiny_spec: ModelSpec, monkeypatch: pytest.MonkeyPatch, asked: int, wanted: int) -> None:
    """An engine gets as many threads as asked for; 0 means all CPUs that the process may use."""
    monkeypatch.setattr("vecmill.engine.base.usable_cpus", lambda: 5)
    engine = load_engine("fake", tiny_spec, threads=asked)
    assert isinstance(engine, fake.FakeEngine)
    assert engine.threads == wanted
