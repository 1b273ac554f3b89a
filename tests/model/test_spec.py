"""What a checkpoint's files mean, and what is said where they are absent or lie."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import CONFIG, write_bert, write_json, write_modules
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.model.spec import POOLINGS, Dense, ModelSpec, Normalize, read_spec

FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A bare BERT."""
    return write_bert(tmp_path / "bert")


def test_a_bare_transformer(bert: Path) -> None:
    """A folder without modules.json is a transformer with mean pooling, not normalised, without prompts."""
    assert read_spec(bert) == ModelSpec(
        folder=bert,
        transformer=bert,
        family="bert",
        config=CONFIG,
        vocab_size=CONFIG["vocab_size"],
        max_tokens=40,
        lowercase=False,
        pooling=("mean",),
        tail=(),
        dims=16,
        prompts={},
        default_prompt=None,
    )


def test_a_chain(bert: Path) -> None:
    """modules.json names the chain, and the last module decides the width."""
    spec = read_spec(write_modules(bert, dense={"out_features": 5, "bias": False}))
    dense = Dense(bert / "2_Dense", 16, 5, bias=False, activation="Tanh")
    assert (spec.tail, spec.dims, spec.normalized) == ((dense, Normalize()), 5, True)


def test_normalized(bert: Path) -> None:
    """A model is normalised where Normalize is the last module, and only there."""
    assert not read_spec(write_modules(bert, normalize=False)).normalized
    write_modules(bert, dense={})
    change(bert / "modules.json", lambda rows: [*rows[:2], rows[3], rows[2]])
    assert not read_spec(bert).normalized


def test_the_transformer_in_a_folder(bert: Path) -> None:
    """The transformer's files are where modules.json says that they are."""
    write_modules(bert)
    (bert / "0_BERT").mkdir()
    (bert / "config.json").rename(bert / "0_BERT/config.json")
    change(bert / "modules.json", lambda rows: [rows[0] | {"path": "0_BERT"}, *rows[1:]])
    spec = read_spec(bert)
    assert (spec.folder, spec.transformer) == (bert, bert / "0_BERT")


@pytest.mark.parametrize("mode", POOLINGS)
def test_a_named_pooling(bert: Path, mode: str) -> None:
    """pooling_mode names the mode."""
    assert read_spec(write_modules(bert, pooling={"pooling_mode": mode})).pooling == (mode,)


@pytest.mark.parametrize(("flag", "mode"), FLAGS.items())
def test_a_flagged_pooling(bert: Path, flag: str, mode: str) -> None:
    """Older files have a flag for each mode."""
    pooling = dict.fromkeys(FLAGS, False) | {flag: True}
    assert read_spec(write_modules(bert, pooling=pooling)).pooling == (mode,)


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        ({"pooling_mode": ["lasttoken", "cls"]}, ("lasttoken", "cls")),
        (dict.fromkeys(FLAGS, True), POOLINGS),
        ({"pooling_mode": "max", "pooling_mode_cls_token": True}, ("max",)),
        (dict.fromkeys(FLAGS, False), ("mean",)),
        ({"include_prompt": True}, ("mean",)),
    ],
)
def test_several_or_no_modes(bert: Path, pooling: dict[str, Any], wanted: tuple[str, ...]) -> None:
    """Modes concatenate, a name wins over flags, and none at all is the mean."""
    spec = read_spec(write_modules(bert, pooling=pooling))
    assert (spec.pooling, spec.dims) == (wanted, 16 * len(wanted))


def test_a_chat_template(bert: Path) -> None:
    """Texts that the library would put into a chat template are not read without it."""
    modality = {"text": {"method": "forward"}, "message": {"method": "forward"}}
    folder = write_modules(bert, transformer={"modality_config": modality})
    with pytest.raises(UnsupportedModel, match="texts go through a chat template"):
        read_spec(folder)
    write_modules(bert, transformer={"modality_config": {"text": modality["text"]}})
    assert read_spec(bert).dims == 16


def test_a_dropout(bert: Path) -> None:
    """Dropout does nothing outside training, and its folder need not be there."""
    write_modules(bert)
    row = {"type": "sentence_transformers.models.Dropout", "path": "9_Dropout"}
    change(bert / "modules.json", lambda rows: [*rows[:2], row, rows[2]])
    assert read_spec(bert).tail == (Normalize(),)


@pytest.mark.parametrize("key", ["word_embedding_dimension", "embedding_dimension"])
def test_a_pooling_of_another_width(bert: Path, key: str) -> None:
    """The width of vectors is the transformer's, whatever the pooling's settings say of it."""
    assert read_spec(write_modules(bert, pooling={key: 8, "pooling_mode": "cls"})).dims == 16


def test_numbers_that_json_has_not(bert: Path) -> None:
    """NaN and Infinity, which Python writes, are read; what is no JSON beside them is refused."""
    path = bert / "config.json"
    text = path.read_text()
    path.write_text(text.replace("{", '{"x": NaN, "y": -Infinity,', 1))
    assert read_spec(bert).dims == 16
    path.write_text(text.replace("{", '{"x": NaN,,', 1))
    assert_refused(bert, CorruptFile, f"{path}: not JSON")


def test_include_prompt(bert: Path) -> None:
    """include_prompt false marks where the prompt ends, if there is one that has content."""
    write_modules(bert, pooling={"pooling_mode": "mean", "include_prompt": False})
    assert read_spec(bert).mark is None
    write_json(bert / "config_sentence_transformers.json", {"prompts": {"query": "query: "}})
    assert read_spec(bert).mark == "prompt"


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"activation_function": "torch.nn.modules.linear.Identity"}, "Identity"),
        ({"activation_function": "torch.nn.modules.activation.GELU"}, "GELU"),
        ({"module_input_name": "sentence_embedding", "module_output_name": None}, "Tanh"),
    ],
)
def test_dense(bert: Path, settings: dict[str, Any], wanted: str) -> None:
    """A Dense names its activation by the path of its class; Tanh is the default."""
    (dense, _) = read_spec(write_modules(bert, dense=settings)).tail
    assert isinstance(dense, Dense)
    assert dense.activation == wanted


@pytest.mark.parametrize(
    ("transformer", "tokenizer", "positions", "wanted"),
    [
        ({"max_seq_length": 9}, 20, 40, 9),
        ({"max_seq_length": 20}, 9, 40, 20),
        ({"max_seq_length": None}, 20, 40, 20),
        ({"max_seq_length": 99}, 20, 40, 40),
        ({}, None, 40, 40),
        ({}, int(1e30), 40, 40),
        ({}, 20, None, 20),
    ],
)
def test_max_tokens(
    bert: Path, transformer: dict[str, Any], tokenizer: int | None, positions: int | None, wanted: int
) -> None:
    """max_seq_length before model_max_length, and never more than there are positions."""
    write_modules(bert, transformer=transformer)
    change(bert / "tokenizer_config.json", lambda settings: settings | {"model_max_length": tokenizer})
    change(bert / "config.json", lambda config: config | {"max_position_embeddings": positions})
    assert read_spec(bert).max_tokens == wanted


def test_the_first_settings_that_say_anything(bert: Path) -> None:
    """The transformer's settings may have another family's name; an empty file says nothing."""
    write_modules(bert, transformer={})
    write_json(bert / "sentence_xlnet_config.json", {"max_seq_length": 11})
    write_json(bert / "sentence_roberta_config.json", {"max_seq_length": 7, "do_lower_case": True})
    spec = read_spec(bert)
    assert (spec.max_tokens, spec.lowercase) == (7, True)


def test_prompts(bert: Path) -> None:
    """Prompts have names, and one may be the default."""
    prompts = {"prompts": {"query": "q: ", "bare": None}, "default_prompt_name": "query"}
    spec = read_spec(write_modules(bert, prompts=prompts))
    assert (spec.prompts, spec.default_prompt) == ({"query": "q: ", "bare": ""}, "query")


@pytest.mark.parametrize("name", ["query", "document"])
def test_implied_prompts(bert: Path, name: str) -> None:
    """`query` and `document` may be the default without being listed; they are empty."""
    spec = read_spec(write_modules(bert, prompts={"default_prompt_name": name}))
    assert (spec.prompts, spec.default_prompt) == ({name: ""}, name)


@pytest.mark.parametrize("name", ["config.json", "1_Pooling/config.json", "2_Dense/config.json"])
def test_a_file_that_is_missing(bert: Path, name: str) -> None:
    """A file that the chain needs is named, with what to do."""
    write_modules(bert, dense={})
    (bert / name).unlink()
    assert_refused(bert, MissingFile, f"{bert / name} is missing: fetch the model again")


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "tokenizer_config.json",
    ],
)
@pytest.mark.parametrize("content", ["", "{", "7", "\xff"])
def test_a_file_that_is_no_json(bert: Path, name: str, content: str) -> None:
    """A file that is empty, cut, of another kind or no UTF-8 is named."""
    write_modules(bert, dense={})
    (bert / name).write_bytes(content.encode("latin-1"))
    assert_refused(bert, CorruptFile, str(bert / name))


@pytest.mark.parametrize("key", ["model_type", "hidden_size", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, 2.5, [1]])
def test_a_config_that_lies(bert: Path, key: str, value: object) -> None:
    """A key that every model needs, absent or of no use, is named."""
    change(bert / "config.json", lambda config: config | {key: value})
    assert_refused(bert, MissingFile, key)


@pytest.mark.parametrize(
    ("name", "changes", "error", "message"),
    [
        ("1_Pooling", {"pooling_mode": "attention"}, UnsupportedModel, "pooling attention; supported: cls, max, mean"),
        ("1_Pooling", {"pooling_mode": ["cls", "x", 3]}, UnsupportedModel, "pooling x, 3; supported: cls"),
        ("2_Dense", {"in_features": 8}, CorruptFile, "takes 8 numbers, gets 16"),
        ("2_Dense", {"out_features": 0}, MissingFile, "out_features is 0, a positive number is needed"),
        ("2_Dense", {"module_input_name": "token_embeddings"}, UnsupportedModel, "module_input_name = 'token_emb"),
        ("2_Dense", {"module_output_name": "other"}, UnsupportedModel, "module_output_name = 'other'"),
        ("2_Dense", {"activation_function": "mine.Tanh"}, UnsupportedModel, "activation_function 'mine.Tanh' is code"),
        ("3_Normalize", {"module_input_name": "token_embeddings"}, UnsupportedModel, "module_input_name = 'token_emb"),
    ],
)
def test_a_module_that_lies(
    bert: Path, name: str, changes: dict[str, Any], error: type[LoadError], message: str
) -> None:
    """A module that does not fit its neighbours, or asks for what vecmill cannot do, is refused by file and key."""
    write_modules(bert, dense={})
    path = bert / name / "config.json"
    write_json(path, (json.loads(path.read_text()) if path.exists() else {}) | changes)
    assert_refused(bert, error, message)


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({"type": "sentence_transformers.models.CNN"}, UnsupportedModel, "module 'CNN' is not supported; supported: T"),
        ({"type": "custom_st.Transformer"}, UnsupportedModel, "module 'custom_st.Transformer' is code"),
        ({"path": "../elsewhere"}, CorruptFile, "the path '../elsewhere' of module"),
        ({"path": "/etc"}, CorruptFile, "the path '/etc' of module"),
        ({"type": None}, UnsupportedModel, "module 'None' is code"),
    ],
)
def test_a_module_that_is_unknown(bert: Path, row: dict[str, Any], error: type[LoadError], message: str) -> None:
    """A module of another kind, of somebody's own code or outside the folder is refused, never skipped."""
    write_modules(bert)
    change(bert / "modules.json", lambda rows: [*rows[:2], rows[2] | row])
    assert_refused(bert, error, message)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], UnsupportedModel, "the first module is absent, not Transformer"),
        (["Pooling"], UnsupportedModel, "the first module is Pooling, not Transformer"),
        (["Transformer", "Normalize"], UnsupportedModel, "module 'Normalize' after the transformer is not supported"),
        ([{}], CorruptFile, "every module needs a type and a path"),
    ],
)
def test_a_chain_that_is_none(bert: Path, rows: list[Any], error: type[LoadError], message: str) -> None:
    """A chain begins with Transformer and Pooling."""
    types = [row and {"type": f"sentence_transformers.models.{row}", "path": ""} for row in rows]
    write_json(bert / "modules.json", types)
    assert_refused(bert, error, message)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ({"default_prompt_name": "passage"}, "no prompt of the default name 'passage'"),
        ({"prompts": {"query": 7}}, "prompts is no object of texts"),
        ({"prompts": ["query"]}, "prompts is no object of texts"),
    ],
)
def test_prompts_that_lie(bert: Path, prompts: dict[str, Any], message: str) -> None:
    """A default prompt that does not exist, and prompts that are no texts, are refused."""
    assert_refused(write_modules(bert, prompts=prompts), CorruptFile, message)


def test_no_limit(bert: Path) -> None:
    """A model that states no length anywhere is refused by the keys that could."""
    change(bert / "config.json", lambda config: config | {"max_position_embeddings": None})
    change(bert / "tokenizer_config.json", lambda settings: settings | {"model_max_length": None})
    assert_refused(bert, MissingFile, "no maximum length (max_seq_length, model_max_length or max_position_embeddings)")


def change(path: Path, how: Any) -> None:
    """Rewrite a JSON file as a function of what it holds."""
    write_json(path, how(json.loads(path.read_text())))


def assert_refused(folder: Path, error: type[LoadError], message: str) -> None:
    """Reading the folder raises exactly that error, and its message holds this and the folder."""
    with pytest.raises(LoadError) as caught:
        read_spec(folder)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)
