"""Which engine runs a checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from checkpoints import CONFIG, write_bert, write_json
from exported_checkpoints import write_exported, write_onnx
from static_checkpoints import write_model2vec, write_static
from vecmill.config import FetchSettings, Settings
from vecmill.doctor import examine
from vecmill.embedder import Embedder
from vecmill.engine.base import choose
from vecmill.errors import MissingFile, UnsupportedModel
from vecmill.model.spec import read_spec
from vecmill.serving.events import Events
from vecmill.serving.registry import load
from vecmill.verify import Judged, verify


def write_two(folder: Path) -> Path:
    """A checkpoint with safetensors and an ONNX file."""
    write_onnx(write_bert(folder) / "onnx/model.onnx")
    return folder


def unknown(folder: Path) -> Path:
    """An architecture that no family builds, with safetensors and an ONNX file."""
    write_json(write_two(folder) / "config.json", {**CONFIG, "model_type": "llamaphant"})
    return folder


CASES: list[tuple[Callable[[Path], Path], str]] = [
    (write_bert, "onnx"),
    (write_two, "onnx"),
    (write_exported, "exported"),
    (unknown, "exported"),
    (write_static, "static"),
    (write_model2vec, "static"),
]


@pytest.mark.parametrize(("write", "wanted"), CASES)
def test_the_files_decide(tmp_path: Path, write: Callable[[Path], Path], wanted: str) -> None:
    """A table is looked up, a known family is built from its safetensors, and else the file that came along runs."""
    folder = write(tmp_path)
    assert choose(read_spec(folder)) == wanted
    model = load(str(folder), Settings(threads=1), Events())
    model.close()
    assert model.kind == wanted


def test_a_setting_decides(tmp_path: Path) -> None:
    """The setting `engine` wins: the same checkpoint on its ONNX file has that file's rows."""
    write_two(tmp_path)
    rows = []
    engines: list[Literal["auto", "onnx", "exported"]] = ["auto", "onnx", "exported"]
    for engine in engines:
        with Embedder(str(tmp_path), settings=Settings(threads=1, engine=engine)) as embedder:
            rows.append(embedder.embed("the cat"))
    assert np.array_equal(rows[0], rows[1])
    assert not np.allclose(rows[1], rows[2], atol=0.1)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_a_device_decides(tmp_path: Path, device: str) -> None:
    """An accelerator that is named takes the engine that can compute there; a table is looked up all the same."""
    assert choose(read_spec(write_two(tmp_path / "bert")), device) == "torch"
    assert choose(read_spec(write_static(tmp_path / "static")), device) == "static"
    assert choose(read_spec(tmp_path / "bert"), "cpu") == "onnx"


@pytest.mark.parametrize(
    ("engine", "error", "told"),
    [
        ("exported", MissingFile, "it has no ONNX file"),
        ("static", MissingFile, "no table; looked for"),
    ],
)
def test_a_setting_that_does_not_fit(tmp_path: Path, engine: Any, error: type[Exception], told: str) -> None:
    """An engine that cannot run the checkpoint says what it misses."""
    with pytest.raises(error, match=told):
        load(str(write_bert(tmp_path)), Settings(threads=1, engine=engine), Events())


def test_nothing_fits(tmp_path: Path) -> None:
    """An unknown architecture without an ONNX file is refused with what would work."""
    write_json(write_bert(tmp_path) / "config.json", {**CONFIG, "model_type": "llamaphant"})
    with pytest.raises(UnsupportedModel, match="'llamaphant' has no graph.*bert.*onnx/model.onnx.*vecmill.torch"):
        choose(read_spec(tmp_path))


def test_a_known_family_without_weights(tmp_path: Path) -> None:
    """A known architecture that lacks its weights is told which file is missing."""
    (write_bert(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(MissingFile, match=r"no model\.safetensors"):
        load(str(tmp_path), Settings(threads=1), Events())


@pytest.mark.parametrize("write", [write_exported, write_static, write_model2vec])
def test_doctor_and_verify(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """Both commands know every engine."""
    folder = str(write(tmp_path))
    found, tried = examine(folder, FetchSettings(), threads=1)
    said = {fact.name: fact.value for fact in found}
    assert said["engine"] == ("exported" if write is write_exported else "static")
    assert [check.claim for check in tried if not check.passed] == []
    pairs = [Judged("the cat", "a dog"), Judged("hello", "world"), Judged("time", "year")]
    finding = verify(folder, [], pairs, FetchSettings(), threads=1)[0]
    assert finding.worst_cosine == pytest.approx(1)
