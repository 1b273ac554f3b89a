"""What a checkpoint was trained for."""

from pathlib import Path
from typing import Any

import pytest

from checkpoints import write_bert, write_json, write_modules
from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.graph.build import FAMILIES
from vecmill.model.spec import read_spec
from vecmill.model.tasks import QWEN3, TYPES, UNTYPED, Classifier, Splade, Task, YesNo

CLASSIFIER = ["BertForSequenceClassification"]


@pytest.mark.parametrize(
    ("architecture", "what"),
    [("RobertaForTokenClassification", "a token tagger"), ("BertForQuestionAnswering", "a question answerer")],
)
def test_what_nobody_answers_is_refused(tmp_path: Path, architecture: str, what: str) -> None:
    """A tagger is neither embedder nor classifier: it is refused, not served with a pooling that nobody trained."""
    with pytest.raises(
        UnsupportedModel, match=f"{architecture} is {what}; served are: embed, classify, rerank, sparse"
    ):
        read_spec(write_bert(tmp_path / "model", architectures=[architecture]))


@pytest.mark.parametrize("architectures", [None, [], ["BertModel"], ["BertForMaskedLM"]])
def test_a_bare_encoder_is_an_embedding_model(tmp_path: Path, architectures: list[str] | None) -> None:
    """Without modules.json a bare encoder, also one with its language modelling head, gets mean pooling."""
    spec = read_spec(write_bert(tmp_path / "model", architectures=architectures))
    assert (spec.task, spec.pooling, spec.outputs) == ("embed", ("mean",), ("dense", "multi"))


def test_a_chain_with_a_pooling_is_believed(tmp_path: Path) -> None:
    """modules.json says what a checkpoint is, whatever its architecture is called."""
    folder = write_modules(write_bert(tmp_path / "model", architectures=CLASSIFIER))
    assert read_spec(folder).dims == 16


@pytest.mark.parametrize(
    ("changes", "task", "labels", "activation"),
    [
        ({"id2label": {"0": "LABEL_0"}}, "rerank", ("LABEL_0",), "sigmoid"),
        ({}, "classify", ("LABEL_0", "LABEL_1"), "softmax"),
        ({"id2label": {"10": "k", **{str(n): str(n) for n in range(10)}}}, "classify", (*"0123456789", "k"), "softmax"),
        (
            {"id2label": {"0": "a", "1": "b"}, "problem_type": "multi_label_classification"},
            "classify",
            ("a", "b"),
            "sigmoid",
        ),
    ],
)
def test_classifiers(tmp_path: Path, changes: Any, task: str, labels: tuple[str, ...], activation: str) -> None:
    """One label makes a reranker, several a classifier; labels are in the order of their numbers."""
    spec = read_spec(write_bert(tmp_path / "model", architectures=CLASSIFIER, **changes))
    assert (spec.task, spec.outputs, spec.scores) == (task, ("scores",), Classifier(labels, activation))
    assert (spec.mark, spec.width("scores"), spec.dims) == ("second", len(labels), 0)


def test_labels_with_a_gap(tmp_path: Path) -> None:
    """Labels whose numbers are no columns are refused."""
    folder = write_bert(tmp_path / "model", architectures=CLASSIFIER, id2label={"0": "a", "2": "b"})
    with pytest.raises(CorruptFile, match="id2label names the numbers 0, 2, wanted 0, 1, 2"):
        read_spec(folder)


@pytest.mark.parametrize(("name", "task"), [("splade-tiny", "sparse"), ("bert-tiny", "embed")])
def test_a_masked_language_model(tmp_path: Path, name: str, task: str) -> None:
    """One that is called splade gives sparse vectors; no file tells it from any other."""
    assert read_spec(write_bert(tmp_path / name, architectures=["BertForMaskedLM"])).task == task


@pytest.mark.parametrize(
    ("task", "outputs"),
    [("embed", ("dense", "multi")), ("sparse", ("sparse",)), ("classify", ("scores",)), ("rerank", ("scores",))],
)
def test_the_override(tmp_path: Path, task: Task, outputs: tuple[str, ...]) -> None:
    """What the caller says counts for more than any file."""
    spec = read_spec(write_bert(tmp_path / "splade-rerank", architectures=CLASSIFIER), task)
    assert (spec.task, spec.outputs) == (task, outputs)


def test_splade_by_its_chain(tmp_path: Path) -> None:
    """SpladePooling says how weights are pooled."""
    folder = write_bert(tmp_path / "model", architectures=["BertForMaskedLM"])
    kinds = ("base.modules.transformer.Transformer", "sparse_encoder.modules.splade_pooling.SpladePooling")
    write_json(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.{kind}"}
            for number, (kind, path) in enumerate(zip(kinds, ("", "1_SpladePooling"), strict=True))
        ],
    )
    place = folder / "1_SpladePooling"
    place.mkdir()
    write_json(place / "config.json", {"pooling_strategy": "sum", "activation_function": "log1p_relu"})
    assert read_spec(folder).sparse == Splade("sum", twice=True)
    write_json(place / "config.json", {"pooling_strategy": "mean"})
    with pytest.raises(UnsupportedModel, match="SPLADE with 'mean'"):
        read_spec(folder)


def test_a_language_model_that_reranks(tmp_path: Path) -> None:
    """By its name; it scores with the words yes and no, which its tokenizer must have."""
    folder = write_bert(tmp_path / "Qwen3-Reranker", model_type="qwen3", architectures=["Qwen3ForCausalLM"])
    with pytest.raises(UnsupportedModel, match="no tokens 'yes' and 'no'"):
        read_spec(folder)
    write_json(folder / "tokenizer.json", {"model": {"vocab": {"yes": 5, "no": 3}}})
    spec = read_spec(folder)
    assert (spec.task, spec.scores, spec.outputs, spec.mark) == ("rerank", YesNo(5, 3, QWEN3), ("scores",), None)


def test_every_family_takes_types_or_none() -> None:
    """Each family with a graph is in one of the two tables, so that no pair loses its types unseen."""
    assert TYPES.keys() | UNTYPED == FAMILIES.keys()
    assert TYPES.keys() & UNTYPED == set()


@pytest.mark.parametrize(
    ("config", "mark"),
    [
        ({"model_type": "ernie"}, "second"),
        ({"model_type": "ernie", "type_vocab_size": 1}, None),
        ({"model_type": "modernbert"}, None),
    ],
)
def test_types_of_families_without_a_graph(tmp_path: Path, config: dict[str, Any], mark: str | None) -> None:
    """An architecture that only torch runs has types where config.json counts several; ModernBERT has none anyway."""
    assert read_spec(write_bert(tmp_path, architectures=CLASSIFIER, **config)).mark == mark
