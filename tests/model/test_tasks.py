"""What a checkpoint was trained for."""

from pathlib import Path

import pytest

from checkpoints import write_bert, write_modules
from vecmill.errors import UnsupportedModel
from vecmill.model.spec import read_spec


@pytest.mark.parametrize(
    ("architecture", "what"),
    [
        ("BertForSequenceClassification", "a classifier or reranker"),
        ("RobertaForTokenClassification", "a token tagger"),
        ("BertForQuestionAnswering", "a question answerer"),
    ],
)
def test_another_task_is_refused(tmp_path: Path, architecture: str, what: str) -> None:
    """A reranker or a tagger is no embedding model: it is refused, not served with a pooling that nobody trained."""
    with pytest.raises(UnsupportedModel, match=f"{architecture} is {what}; only embedding models"):
        read_spec(write_bert(tmp_path / "model", architectures=[architecture]))


@pytest.mark.parametrize("architectures", [None, [], ["BertModel"], ["BertForMaskedLM"]])
def test_a_bare_encoder_is_an_embedding_model(tmp_path: Path, architectures: list[str] | None) -> None:
    """Without modules.json a bare encoder, also one with its language modelling head, gets mean pooling."""
    assert read_spec(write_bert(tmp_path / "model", architectures=architectures)).pooling == ("mean",)


def test_a_chain_with_a_pooling_is_believed(tmp_path: Path) -> None:
    """modules.json says what a checkpoint is, whatever its architecture is called."""
    folder = write_modules(write_bert(tmp_path / "model", architectures=["BertForSequenceClassification"]))
    assert read_spec(folder).dims == 16
