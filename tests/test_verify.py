"""What a smaller precision costs, measured."""

from pathlib import Path

import numpy as np
import pytest

from checkpoints import HEADED, write_headed
from static_checkpoints import write_static
from vecmill import cli
from vecmill.config import FetchSettings
from vecmill.errors import BadSettings, UnsupportedModel
from vecmill.verify import Judged, read_pairs, spearman, table, verify

PAIRS = [
    Judged("the cat sat", "the dog sat", 4.0),
    Judged("hello world", "people walk on the mat", 1.0),
    Judged("time", "year", 3.0),
    Judged("the cat", "the cat", 5.0),
]


def test_float32_is_its_own_measure(tiny_folder: Path) -> None:
    """The reference correlates with itself, at cosine 1; what else is asked for follows it."""
    first, second = verify(str(tiny_folder), ["int8"], PAIRS, FetchSettings(), threads=1)
    assert (first.precision, second.precision) == ("float32", "int8")
    assert first.spearman == pytest.approx(1)
    assert first.worst_cosine == pytest.approx(1)
    assert first.gold_spearman is not None
    assert second.weights_mb < first.weights_mb
    assert 0.9 < second.worst_cosine <= second.mean_cosine < 1


def test_without_scores_there_is_no_gold(tiny_folder: Path) -> None:
    """Pairs without scores are compared with float32 alone."""
    pairs = [Judged(pair.first, pair.second) for pair in PAIRS]
    finding = verify(str(tiny_folder), ["int8"], pairs, FetchSettings(), threads=1)[0]
    assert finding.gold_spearman is None
    assert "gold" not in table([finding])


def test_all_precisions_that_the_model_has(tiny_folder: Path, tmp_path: Path) -> None:
    """Where none is named, those that the model lacks are left out; named, they are an error."""
    found = verify(str(tiny_folder), [], PAIRS, FetchSettings(), threads=1)
    assert [finding.precision for finding in found] == ["float32", "int8", "int4"]
    static = str(write_static(tmp_path))
    assert [finding.precision for finding in verify(static, [], PAIRS, FetchSettings())] == ["float32", "int8"]
    with pytest.raises(UnsupportedModel, match="no precision 'int4'"):
        verify(static, ["int4"], PAIRS, FetchSettings())


@pytest.mark.parametrize("kind", HEADED)
def test_what_a_model_is_for_is_compared(tmp_path: Path, kind: str) -> None:
    """Scores of rerankers and classifiers and weights of sparse models are compared as vectors are."""
    first, second = verify(str(write_headed(tmp_path / "splade", kind)), ["int8"], PAIRS, FetchSettings(), threads=1)
    assert first.spearman == pytest.approx(1)
    assert first.worst_cosine == pytest.approx(1)
    assert second.spearman > 0.5
    assert 0.9 < second.worst_cosine <= 1


def test_one_pair_has_no_rank(tiny_folder: Path) -> None:
    """A correlation of one pair is refused, not NaN."""
    with pytest.raises(BadSettings, match="1 pairs; a rank correlation needs at least 2"):
        verify(str(tiny_folder), [], PAIRS[:1], FetchSettings())


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [([1, 2, 3], [10, 20, 30], 1.0), ([1, 2, 3], [3, 2, 1], -1.0), ([1, 1, 2, 3], [1, 2, 3, 3], 0.8889)],
)
def test_spearman(first: list[float], second: list[float], wanted: float) -> None:
    """Ranks decide, and ties share theirs."""
    assert spearman(np.array(first, float), np.array(second, float)) == pytest.approx(wanted, abs=1e-4)


def test_pairs_are_read_from_lines(tmp_path: Path) -> None:
    """Tabs separate two texts and perhaps a score; quotes are part of the text and empty lines are skipped."""
    path = tmp_path / "pairs.tsv"
    path.write_text('a "b\tc\n\nd\te\t2.5\n')
    assert read_pairs(path) == [Judged('a "b', "c"), Judged("d", "e", 2.5)]


@pytest.mark.parametrize(
    ("content", "message"),
    [("a\n", r"pairs.tsv:1: a line holds two texts"), ("a\tb\n\tc\n", ":2: a line"), ("a\tb\tx\n", "'x' is no number")],
)
def test_a_wrong_line_is_named(tmp_path: Path, content: str, message: str) -> None:
    """What is no pair is refused with the file and the line."""
    path = tmp_path / "pairs.tsv"
    path.write_text(content)
    with pytest.raises(BadSettings, match=message):
        read_pairs(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is not there is said."""
    with pytest.raises(BadSettings, match="nowhere"):
        read_pairs(tmp_path / "nowhere")


def test_our_own_sentences_make_pairs() -> None:
    """Without a file there are all pairs of 40 sentences."""
    assert len(read_pairs(None)) == 40 * 39 // 2


@pytest.mark.parametrize(("threshold", "code"), [("0.5", 0), ("1.01", 1)])
def test_the_command_fails_below_the_threshold(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], threshold: str, code: int
) -> None:
    """`vecmill verify` prints a table and exits with 1 where a precision is below what was asked for."""
    arguments = ["vecmill", "verify", str(tiny_folder), "--precision", "int8", "--min-spearman", threshold]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert ended.value.code == code
    assert printed.out.split()[0] == "precision"
    assert ("below 1.01" in printed.err) == bool(code)
