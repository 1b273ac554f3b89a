"""What a checkpoint was trained for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import VOCABULARY, write_bert, write_headed, write_json, write_modules
from vecmill.config import Settings
from vecmill.core import Pair
from vecmill.embedder import Embedder
from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.graph.build import FAMILIES
from vecmill.model.spec import ModelSpec, read_spec
from vecmill.model.tasks import QWEN3, TYPES, UNTYPED, Classifier, Splade, Task, Template, YesNo
from vecmill.model.tokenizer import Tokenizer

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


SIGMOID, IDENTITY, SOFTMAX = (
    f"torch.nn.modules.{name}" for name in ("activation.Sigmoid", "linear.Identity", "activation.Softmax")
)


@pytest.mark.parametrize(
    ("config", "library", "activation"),
    [
        ({"problem_type": "regression"}, {}, "none"),
        ({"problem_type": "single_label_classification"}, {}, "softmax"),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, {}, "sigmoid"),
        ({"sbert_ce_default_activation_function": IDENTITY}, {}, "none"),
        ({"problem_type": "regression"}, {"activation_fn": SOFTMAX}, "softmax"),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, {"activation_fn": IDENTITY}, "none"),
        ({"problem_type": "multi_label_classification"}, {"activation_fn": "mine.Softmax"}, "softmax"),
        ({"problem_type": "regression"}, {"activation_fn": "mine.Other"}, "none"),
    ],
)
def test_the_activation_of_labels(
    tmp_path: Path, config: dict[str, Any], library: dict[str, Any], activation: str
) -> None:
    """What sentence-transformers states counts before `problem_type`; for one label it is the sigmoid all the same."""
    labels = {"0": "a", "1": "b"}
    folder = write_bert(tmp_path / "model", architectures=CLASSIFIER, id2label=labels, **config)
    write_json(folder / "config_sentence_transformers.json", library)
    assert read_spec(folder).scores == Classifier(("a", "b"), activation)
    write_bert(folder, architectures=CLASSIFIER, id2label={"0": "a"}, **config)
    assert read_spec(folder).scores == Classifier(("a",), "sigmoid")


def test_an_activation_of_labels_that_is_unknown(tmp_path: Path) -> None:
    """One of torch that vecmill does not have is refused."""
    stated = {"activation_fn": "torch.nn.modules.activation.Tanh"}
    folder = write_bert(tmp_path / "model", architectures=CLASSIFIER, sentence_transformers=stated)
    with pytest.raises(UnsupportedModel, match=r"activation.Tanh' of labels is not supported; supported: Sig"):
        read_spec(folder)


def test_scores_without_an_activation(tmp_path: Path) -> None:
    """A regression's numbers are answered as the network gives them."""
    folder = write_headed(tmp_path / "model", "classify")
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"problem_type": "regression"})
    with Embedder(str(folder), settings=Settings(threads=1)) as embedder:
        raw = embedder.classify(["cat"], raw_scores=True)
        assert np.array_equal(embedder.classify(["cat"]), raw)
        assert not np.isclose(raw.sum(), 1)


def test_labels_with_a_gap(tmp_path: Path) -> None:
    """Labels whose numbers are no columns are refused."""
    folder = write_bert(tmp_path / "model", architectures=CLASSIFIER, id2label={"0": "a", "2": "b"})
    with pytest.raises(CorruptFile, match="id2label names the numbers 0, 2, wanted 0, 1, 2"):
        read_spec(folder)


@pytest.mark.parametrize(("name", "task"), [("splade-tiny", "sparse"), ("bert-tiny", "embed")])
def test_a_masked_language_model(tmp_path: Path, name: str, task: str) -> None:
    """One that is called splade gives sparse vectors; no file tells it from any other."""
    assert read_spec(write_bert(tmp_path / name, architectures=["BertForMaskedLM"])).task == task


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("place", "task"),
    [
        (f"models--naver--splade-v3/snapshots/{COMMIT}", "sparse"),
        (f"models--splade-fans--bert/snapshots/{COMMIT}", "embed"),
        ("splade-vs-dense/models/bert-base", "embed"),
        ("splade-v3/snapshots/bert", "embed"),
    ],
)
def test_where_a_name_is_looked_for(tmp_path: Path, place: str, task: str) -> None:
    """In a hub's cache two folders up, elsewhere only in the folder itself."""
    assert read_spec(write_bert(tmp_path / place, architectures=["BertForMaskedLM"])).task == task


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


def test_the_prompt_of_a_reranker(tmp_path: Path) -> None:
    """Its default prompt goes before the first text of each pair, as sentence-transformers puts it."""
    folder, plain = (write_headed(tmp_path / name, "rerank") for name in ("prompted", "plain"))
    prompts = {"prompts": {"q": "query : ", "bare": ""}, "default_prompt_name": "q"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    texts = ["dog", "the cat sat"]
    with Embedder(str(folder), settings=Settings(threads=1)) as ours, Embedder(str(plain)) as other:
        assert np.array_equal(ours.rerank("cat", texts), other.rerank("query : cat", texts))
        assert not np.allclose(ours.rerank("cat", texts), other.rerank("cat", texts))


def test_the_prompt_of_a_language_model(tiny_spec: ModelSpec) -> None:
    """To a reranker that is a language model a prompt is the instruction, where the caller gives none."""
    template = Template(head="", body="{instruction} : {first} , {second}", tail="", instruction="hello")
    tokenizer = Tokenizer(replace(tiny_spec, scores=YesNo(5, 6, template)))
    words = VOCABULARY["hello"], VOCABULARY["time"], VOCABULARY["year"]
    pairs = [Pair("a", "b")]
    found = [
        tokenizer.encode_pairs(pairs),
        tokenizer.encode_pairs(pairs, prompt="time"),
        tokenizer.encode_pairs(pairs, "year", prompt="time"),
    ]
    assert tuple(int(tokens.ids[0]) for (tokens,) in found) == words
