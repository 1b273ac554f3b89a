"""Settings of a wrong kind: whatever any file says, a model loads or is refused by an error that names its folder."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from checkpoints import write_bert, write_headed, write_json, write_modules
from encoders import write_encoder
from vecmill.errors import CorruptFile, LoadError
from vecmill.graph.build import build
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

WRONG: list[Any] = [None, "x", -1, 0, 1.5, [], {}, True, 10**30, [None], {"a": None}, [{"content": 3}]]
UNSAID = {
    "config.json": ("id2label", "num_labels", "problem_type", "tokenizer_class", "sentence_transformers", "rope_theta"),
    "sentence_bert_config.json": ("modality_config", "tokenizer_args", "processing_kwargs", "query_expansion"),
    "config_sentence_transformers.json": ("activation_fn", "model_type"),
    "1_Pooling/config.json": ("pooling_mode", "include_prompt", "embedding_dimension"),
    "2_Dense/config.json": ("use_residual", "module_input_name"),
    "tokenizer_config.json": (
        *("truncation_side", "strip_accents", "added_tokens_decoder", "additional_special_tokens"),
        *("extra_special_tokens", "model_input_names", "padding_side", "chat_template"),
    ),
    "special_tokens_map.json": ("cls_token", "additional_special_tokens"),
    "added_tokens.json": ("xyzzy",),
}
"""Keys that the tiny checkpoints do not have and that are read."""


def load(folder: Path) -> None:
    """What happens at start, but for the engine's own session."""
    spec = read_spec(folder)
    Tokenizer(spec)
    build(spec)


def places(value: object, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every key, and of the first two of a list."""
    rows = value.items() if isinstance(value, dict) else list(enumerate(value))[:2] if isinstance(value, list) else ()
    for key, inner in rows:
        yield (*before, key)
        yield from places(inner, (*before, key))


def changed(whole: Any, place: tuple[Any, ...], wrong: object) -> Any:
    """The value with something else in a place."""
    whole = inner = deepcopy(whole)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    return whole


def assert_told(folder: Path, name: str) -> None:
    """Each key of a file set to each wrong value either loads or is refused by name."""
    path = folder / name
    right = json.loads(path.read_text()) if path.is_file() else {}
    for place in [*places(right), *((key,) for key in UNSAID.get(name, ()))]:
        for wrong in WRONG:
            write_json(path, changed(right, place, wrong))
            try:
                load(folder)
            except LoadError as error:
                told = str(folder) in str(error)
            except Exception as error:
                raise AssertionError(f"{name} {place} = {wrong!r}") from error
            else:
                told = True
            assert told, (place, wrong)


@pytest.mark.parametrize("name", ["modules.json", *UNSAID])
def test_an_embedder(tmp_path: Path, name: str) -> None:
    """Every file of a chain."""
    prompts = {"prompts": {"q": "a"}, "default_prompt_name": "q"}
    write_modules(write_bert(tmp_path), dense={}, prompts=prompts, transformer={"max_seq_length": 20})
    assert_told(tmp_path, name)


@pytest.mark.parametrize("task", ["rerank", "classify"])
def test_a_scorer(tmp_path: Path, task: str) -> None:
    """The settings of labels and of types."""
    assert_told(write_headed(tmp_path, task), "config.json")


@pytest.mark.parametrize("family", ["deberta-v2", "distilbert", "mpnet", "xlm-roberta"])
def test_other_families(tmp_path: Path, family: str) -> None:
    """Settings that only some families have."""
    assert_told(write_encoder(tmp_path, family), "config.json")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("config.json", {"architectures": 3}, "config.json: architectures is 3, a list of names is needed"),
        ("config.json", {"num_attention_heads": 10**30}, "config.json: "),
        ("1_Pooling/config.json", {"pooling_mode": -1}, "pooling_mode is -1, a name or a list of names is needed"),
        ("config_sentence_transformers.json", {"default_prompt_name": []}, "default_prompt_name is [], a name is"),
        ("tokenizer_config.json", {"tokenizer_class": 5}, "tokenizer_class is 5, a name is needed"),
    ],
)
def test_what_is_said(tmp_path: Path, name: str, settings: dict[str, Any], message: str) -> None:
    """The key and its value are named."""
    path = write_modules(write_bert(tmp_path)) / name
    write_json(path, json.loads(path.read_text()) | settings)
    with pytest.raises(CorruptFile) as caught:
        load(tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id2label": {"a": "x"}}, "id2label names labels by a, numbers are needed"),
        ({"id2label": None, "num_labels": "x"}, "num_labels is 'x', a number of labels is needed"),
        ({"type_vocab_size": None}, "type_vocab_size is None, a number is needed"),
    ],
)
def test_what_is_said_of_labels(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    """So are those of a classifier."""
    path = write_headed(tmp_path, "classify") / "config.json"
    write_json(path, json.loads(path.read_text()) | settings)
    with pytest.raises(CorruptFile, match=message):
        load(tmp_path)


def test_an_architecture_as_a_text(tmp_path: Path) -> None:
    """One name without its list is that name: a reranker is no embedder."""
    path = write_headed(tmp_path, "rerank") / "config.json"
    write_json(path, json.loads(path.read_text()) | {"architectures": "BertForSequenceClassification"})
    assert read_spec(tmp_path).task == "rerank"
