"""What a checkpoint is, and whether it works."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from checkpoints import HEADED, write_bert, write_headed, write_modules
from vecmill import cli, doctor
from vecmill.config import FetchSettings
from vecmill.core import Output
from vecmill.engine.base import Batch, Column
from vecmill.engine.onnx import OnnxEngine


def test_facts_name_their_files(tiny_folder: Path) -> None:
    """Each fact stands with the file that says so."""
    found, _ = doctor.examine(str(tiny_folder), FetchSettings(), threads=1)
    said = {fact.name: (fact.value, fact.source) for fact in found}
    assert said["architecture"] == ("bert", "config.json: model_type")
    assert said["pooling"] == ("mean", "modules.json")
    assert said["after pooling"] == ("Normalize", "modules.json")
    assert said["most tokens"] == ("40", "tokenizer_config.json: model_max_length")
    assert "query='query : '" in said["prompts"][0]
    assert said["weights"] == ("37 F32", "model.safetensors")


@pytest.mark.parametrize(
    ("transformer", "limit", "source"),
    [
        ({"max_seq_length": 12}, "12", "sentence_bert_config.json: max_seq_length"),
        ({"max_seq_length": 99}, "40", "config.json: positions"),
    ],
)
def test_the_limit_names_what_decided_it(tmp_path: Path, transformer: dict[str, int], limit: str, source: str) -> None:
    """A stated limit counts unless it lies beyond the positions."""
    folder = write_modules(write_bert(tmp_path / "model"), transformer=transformer)
    found, _ = doctor.examine(str(folder), FetchSettings(), threads=1)
    (fact,) = [fact for fact in found if fact.name == "most tokens"]
    assert (fact.value, fact.source) == (limit, source)


@pytest.mark.parametrize("precision", ["float32", "int8", "int4"])
def test_a_good_model_passes(tiny_folder: Path, precision: str) -> None:
    """Every check passes, and a text has the same bytes everywhere."""
    _, tried = doctor.examine(str(tiny_folder), FetchSettings(), precision=precision, threads=2)
    assert [check.claim for check in tried if not check.passed] == []
    assert [check.detail for check in tried].count("the same bytes") == 2


@pytest.mark.parametrize("kind", HEADED)
def test_what_a_model_is_for_is_tried(tmp_path: Path, kind: str) -> None:
    """Rerankers, classifiers and sparse models are described and tried by their own answers."""
    found, tried = doctor.examine(str(write_headed(tmp_path / "splade", kind)), FetchSettings(), threads=1)
    said = {fact.name: fact.value for fact in found}
    assert said["task"] == kind
    assert said["gives"] == ("sparse" if kind == "sparse" else "scores")
    assert ("labels" in said) == (kind != "sparse")
    assert [check.claim for check in tried if not check.passed] == []


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ("nan", "vectors are finite and not zero, from one word to the longest input"),
        ("mates", "a text has one answer, alone and in a batch"),
        ("same", "other texts have other answers"),
    ],
)
def test_a_bad_engine_is_found(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str, failed: str
) -> None:
    """NaN, rows that depend on their mates, and rows that are all alike each fail their check, and the command."""
    true_compute = OnnxEngine.compute

    def compute(engine: OnnxEngine, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        rows = np.asarray(true_compute(engine, batch, outputs)[0])
        if fault == "nan":
            rows[0, 0] = np.nan
        if fault == "mates":
            rows *= 1 + 0.01 * len(rows)
        if fault == "same":
            rows[:] = 1
        return [rows]

    monkeypatch.setattr(OnnxEngine, "compute", compute)
    monkeypatch.setattr("sys.argv", ["vecmill", "doctor", str(tiny_folder), "--threads", "1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1
    assert any("FAILED" in line and failed in line for line in lines)
