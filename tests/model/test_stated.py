"""What sentence_bert_config.json says beside the chain: heeded, harmless, or refused by name."""

from pathlib import Path
from typing import Any

import pytest

from checkpoints import VOCABULARY, write_bert, write_json, write_modules
from vecmill.doctor import limit_source
from vecmill.errors import CorruptFile, LoadError, UnsupportedModel
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

CLS, SEP, CAT, DOG, UNK = (VOCABULARY[token] for token in ("[CLS]", "[SEP]", "cat", "dog", "[UNK]"))
STATES = {"method": "forward", "method_output_name": "last_hidden_state"}


def write(folder: Path, **settings: Any) -> Path:
    """An embedder whose transformer has these settings."""
    return write_modules(write_bert(folder), transformer=settings)


@pytest.mark.parametrize(
    ("settings", "limit", "key"),
    [
        ({"tokenizer_args": {"model_max_length": 9}}, 9, "tokenizer_args"),
        ({"processor_kwargs": {"model_max_length": 9}, "max_seq_length": 20}, 9, "processor_kwargs"),
        ({"processing_kwargs": {"text": {"max_length": 8}}, "max_seq_length": 20}, 8, "processing_kwargs"),
        ({"processing_kwargs": {"common": {"max_length": 8}}}, 8, "processing_kwargs"),
        ({"max_seq_length": 20, "tokenizer_args": {}}, 20, "max_seq_length"),
    ],
)
def test_limits(tmp_path: Path, settings: dict[str, Any], limit: int, key: str) -> None:
    """The length that is set for the tokenizer, or for its calls, is the limit, and doctor names the key."""
    spec = read_spec(write(tmp_path, **settings))
    assert (spec.max_tokens, limit_source(spec)) == (limit, f"sentence_bert_config.json: {key}")


def test_settings_of_the_tokenizer(tmp_path: Path) -> None:
    """What is stated for the tokenizer wins over its own file: the side that is cut, and the case."""
    args = {"truncation_side": "left", "do_lower_case": False}
    tokenizer = Tokenizer(read_spec(write(tmp_path, max_seq_length=4, tokenizer_args=args)))
    assert tokenizer.encode(["dog cat dog", "CAT"])[0].ids.tolist() == [CLS, CAT, DOG, SEP]
    assert tokenizer.encode(["CAT"])[0].ids.tolist() == [CLS, UNK, SEP]


@pytest.mark.parametrize(
    "settings",
    [
        {"model_args": {"torch_dtype": "bfloat16", "attn_implementation": "sdpa", "trust_remote_code": True}},
        {"model_kwargs": {"add_pooling_layer": False, "revision": "main"}, "config_kwargs": {"cache_dir": "x"}},
        {"tokenizer_args": {"padding_side": "left", "use_fast": True}, "config_args": {"use_cache": False}},
        {"processing_kwargs": {"text": {"padding": True, "truncation": True}, "image": {"size": 3}}},
        {"modality_config": {"text": STATES}, "module_output_name": "token_embeddings", "unpad_inputs": False},
        {"modality_config": {"text": STATES, "image": {"method": "get_image_features"}}},
        {"transformer_task": "feature-extraction", "query_length": None},
    ],
)
def test_harmless_settings(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Where parts come from and how they are run is not part of the model."""
    assert read_spec(write(tmp_path, **settings)).dims == 16


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"config_args": {"hidden_act": "relu"}}, UnsupportedModel, "config_args: hidden_act = 'relu' is not supp"),
        ({"model_kwargs": {"variant": "fp16"}}, UnsupportedModel, "model_kwargs: variant = 'fp16'"),
        ({"tokenizer_args": {"backend": "x"}}, UnsupportedModel, "tokenizer_args: backend = 'x'"),
        (
            {"processing_kwargs": {"text": {"add_special_tokens": False}}},
            UnsupportedModel,
            "processing_kwargs: add_special_tokens = False",
        ),
        (
            {"modality_config": {"text": STATES | {"method_output_name": "pooler_output"}}},
            UnsupportedModel,
            "method_output_name = 'pooler_output' is not supported; supported: last_hidden_state",
        ),
        (
            {"modality_config": {"text": STATES | {"method_output_name": ["hidden_states", 1]}}},
            UnsupportedModel,
            "method_output_name = ['hidden_states', 1]",
        ),
        (
            {"modality_config": {"text": STATES | {"method": "get_text_features"}}},
            UnsupportedModel,
            "method = 'get_text_features' is not supported; supported: forward",
        ),
        ({"module_output_name": "sentence_embedding"}, UnsupportedModel, "module_output_name = 'sentence_embedding'"),
        ({"transformer_task": "fill-mask"}, UnsupportedModel, "transformer_task = 'fill-mask'"),
        ({"modality_config": 3}, CorruptFile, "modality_config is 3, an object is needed"),
        ({"tokenizer_args": ["x"]}, CorruptFile, "tokenizer_args is ['x'], an object is needed"),
        ({"processing_kwargs": {"text": "x"}}, CorruptFile, "text is 'x', an object is needed"),
        ({"max_seq_length": "512"}, CorruptFile, "max_seq_length gives a length of '512', a number is needed"),
    ],
)
def test_settings_that_are_refused(
    tmp_path: Path, settings: dict[str, Any], error: type[LoadError], message: str
) -> None:
    """What would give another vector is refused by file, key and value."""
    write(tmp_path, **settings)
    with pytest.raises(LoadError) as caught:
        read_spec(tmp_path)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert str(tmp_path / "sentence_bert_config.json") in str(caught.value)


def test_a_classifier_may_name_its_logits(tmp_path: Path) -> None:
    """Logits are what a cross-encoder reads; only embedders need states."""
    write_bert(tmp_path, architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"})
    modality = {"text": STATES | {"method_output_name": "logits"}}
    settings = {
        "modality_config": modality,
        "module_output_name": "scores",
        "transformer_task": "sequence-classification",
    }
    write_json(tmp_path / "sentence_bert_config.json", settings | {"module_output_name": "scores"})
    assert read_spec(tmp_path).task == "rerank"
