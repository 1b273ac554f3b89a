"""Quantised weights on disk: the same graph as if it had just been made, or none."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checkpoints import write_bert, write_modules
from vecmill.engine.base import Batch, load_engine
from vecmill.graph import kept as kept_module
from vecmill.graph.build import build
from vecmill.graph.kept import kept
from vecmill.graph.ops import Compiled
from vecmill.model.spec import ModelSpec, read_spec

IDS = np.arange(2, 12, dtype=np.int32)
ROOM = 10_000_000


class Made:
    """Makes the graph of a checkpoint and counts how often."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.times = 0

    def __call__(self) -> Compiled:
        """Made once more."""
        self.times += 1
        return build(self.spec, "int8", ["dense"])


@pytest.fixture(autouse=True)
def keep_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny graphs are kept as large ones are."""
    monkeypatch.setattr(kept_module, "LEAST_BYTES", 0)


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    """A tiny checkpoint."""
    return read_spec(write_modules(write_bert(tmp_path / "model")))


def load(folder: Path, spec: ModelSpec, made: Made, room: int = ROOM) -> Compiled:
    """The graph in int8, from the folder or made."""
    return kept(folder, room, spec, ("int8", "dense"), made)


def test_it_is_made_once(tmp_path: Path, spec: ModelSpec) -> None:
    """The second start finds the same graph and the same weights, mapped."""
    made = Made(spec)
    first, second = (load(tmp_path / "kept", spec, made) for _ in range(2))
    assert made.times == 1
    assert second.model == first.model
    assert list(second.weights) == list(first.weights)
    for name, array in first.weights.items():
        assert array.dtype == second.weights[name].dtype
        assert np.array_equal(array, second.weights[name])
        assert not second.weights[name].flags.owndata


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_the_rows_are_the_same(tmp_path: Path, spec: ModelSpec, precision: str) -> None:
    """An engine from disk gives the bytes of one that was made."""
    keep = (tmp_path / "kept", ROOM)
    rows = [
        load_engine("onnx", spec, threads=1, precision=precision, keep=one).run(Batch.pack([IDS]))
        for one in (None, keep, keep)
    ]
    assert len(list(keep[0].iterdir())) == 1
    assert rows[0].tobytes() == rows[1].tobytes() == rows[2].tobytes()


def touch(spec: ModelSpec) -> ModelSpec:
    """The weights are written again, with other numbers of the same size and the same time."""
    path = spec.folder / "model.safetensors"
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return spec


def remove_prompts(spec: ModelSpec) -> ModelSpec:
    """Another file of the folder is removed."""
    (spec.folder / "config_sentence_transformers.json").unlink()
    return spec


CHANGES: dict[str, Callable[[ModelSpec], ModelSpec]] = {
    "weights": touch,
    "a file less": remove_prompts,
    "a shorter limit": lambda spec: replace(spec, max_tokens=7),
    "another task": lambda spec: replace(spec, task="sparse"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_graph_makes_it_anew(tmp_path: Path, spec: ModelSpec, change: str) -> None:
    """Another checkpoint, or another thing asked of it, never gets an old graph."""
    made = Made(spec)
    load(tmp_path / "kept", spec, made)
    load(tmp_path / "kept", CHANGES[change](spec), made)
    assert made.times == 2


def test_other_questions_have_other_graphs(tmp_path: Path, spec: ModelSpec) -> None:
    """Precision and outputs are part of what is asked."""
    made = Made(spec)
    for asked in (("int8", "dense"), ("int4", "dense"), ("int8", "multi")):
        kept(tmp_path / "kept", ROOM, spec, asked, made)
    assert made.times == 3


@pytest.mark.parametrize("content", [b"", b"x" * 5000, None])
def test_damage_is_mended(tmp_path: Path, spec: ModelSpec, content: bytes | None) -> None:
    """A file that is cut short or no file of ours is made anew, and found the time after."""
    made = Made(spec)
    load(tmp_path / "kept", spec, made)
    (path,) = (tmp_path / "kept").iterdir()
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    for _ in range(2):
        assert load(tmp_path / "kept", spec, made).weights
    assert made.times == 2


def test_a_disk_that_takes_nothing(tmp_path: Path, spec: ModelSpec) -> None:
    """Where nothing can be written the graph is made, every time, and nothing is left behind."""
    (tmp_path / "kept").write_text("a file where a folder should be")
    made = Made(spec)
    for _ in range(2):
        assert load(tmp_path / "kept", spec, made).weights
    assert made.times == 2


def test_a_disk_that_fills(tmp_path: Path, spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half way leaves no file."""
    ready = Made(spec)()

    def full(_array: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "ascontiguousarray", full)
    assert kept(tmp_path / "kept", ROOM, spec, ("int8", "dense"), lambda: ready) is ready
    assert list((tmp_path / "kept").iterdir()) == []


def test_the_room_is_bounded(tmp_path: Path, spec: ModelSpec) -> None:
    """What was not used for longest goes; what is larger than all the room is not kept."""
    made = Made(spec)
    folder = tmp_path / "kept"
    kept(folder, ROOM, spec, ("int8", "a"), made)
    (first,) = folder.iterdir()
    room = first.stat().st_size * 2 + 100
    kept(folder, room, spec, ("int8", "b"), made)
    second = next(path for path in folder.iterdir() if path != first)
    os.utime(second, (0, 0))
    kept(folder, room, spec, ("int8", "c"), made)
    assert first in set(folder.iterdir())
    assert second not in set(folder.iterdir())
    assert len(list(folder.iterdir())) == 2
    kept(tmp_path / "other", 10, spec, ("int8", "a"), made)
    assert not (tmp_path / "other").exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, spec: ModelSpec) -> None:
    """A file that somebody began long ago and never finished goes; one of today may still be written."""
    folder = tmp_path / "kept"
    folder.mkdir()
    old, new = folder / "x.123", folder / "y.124"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    load(folder, spec, Made(spec))
    assert not old.exists()
    assert new.exists()
