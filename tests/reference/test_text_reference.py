"""Prompts, limits and tokenizers mean what they mean to sentence-transformers and transformers 5."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from comparison import TEXTS, assert_same, load, ours
from tokenizers import normalizers

from checkpoints import VOCABULARY, write_bert, write_json, write_modules
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

pytestmark = pytest.mark.reference

PROMPTS = {"query": "query : ", "passage": "The passage, ", "bare": "", "long": "a b c " * 30}
GOLDEN = Path(__file__).parents[1] / "golden" / "texts.json"
CASED = [
    *TEXTS,
    "CAT Cat cAT",
    "ÉCOLE école e\u0301",
    "İstanbul ΣΑΣ",
    "中文cat",
    "[CLS] cat [MASK] dog [SEP]",
    "[mask]",
]


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt(tmp_path: Path, name: str) -> None:
    """A named prompt goes before each text and is pooled with it."""
    assert_same(write_modules(write_bert(tmp_path), prompts={"prompts": PROMPTS}), prompt_name=name)


def test_the_default_prompt(tmp_path: Path) -> None:
    """The default prompt goes before texts whose caller names none; another name replaces it."""
    write_modules(write_bert(tmp_path), prompts={"prompts": PROMPTS, "default_prompt_name": "passage"})
    assert_same(tmp_path)
    assert_same(tmp_path, prompt_name="query")


@pytest.mark.parametrize(
    "prompts",
    [
        {"default_prompt_name": "query"},
        {"prompts": {"document": None}, "default_prompt_name": "document"},
        {"prompts": {}, "default_prompt_name": None},
    ],
)
def test_prompts_that_are_not_there(tmp_path: Path, prompts: dict[str, Any]) -> None:
    """`query` and `document` are known without being listed and are empty; so is a prompt of null."""
    assert_same(write_modules(write_bert(tmp_path), prompts=prompts))


@pytest.mark.parametrize("include_prompt", [False, True])
def test_include_prompt_without_prompts(tmp_path: Path, *, include_prompt: bool) -> None:
    """Whether prompts are pooled makes no difference where none has content."""
    pooling = {"pooling_mode": "mean", "include_prompt": include_prompt}
    prompts = {"prompts": {"query": "", "document": ""}}
    assert_same(write_modules(write_bert(tmp_path), pooling=pooling, prompts=prompts))


@pytest.mark.parametrize(
    ("stated", "of_tokenizer", "positions", "wanted"),
    [
        (9, 40, 40, 9),
        (9, 5, 40, 9),
        (None, 12, 40, 12),
        (None, None, 40, 40),
        (None, int(1e30), 40, 40),
        (None, 512, 40, 40),
    ],
)
def test_max_tokens(tmp_path: Path, stated: int | None, of_tokenizer: int | None, positions: int, wanted: int) -> None:
    """max_seq_length wins over model_max_length, which wins over the number of positions."""
    write_bert(tmp_path, max_position_embeddings=positions)
    write_modules(tmp_path, transformer={} if stated is None else {"max_seq_length": stated})
    change_tokenizer_config(tmp_path, model_max_length=of_tokenizer)
    assert load(tmp_path).max_seq_length == read_spec(tmp_path).max_tokens == wanted
    assert_same(tmp_path)


def test_max_tokens_beyond_the_positions(tmp_path: Path) -> None:
    """A max_seq_length beyond the position table, on which sentence-transformers fails, is the table's length here."""
    write_modules(write_bert(tmp_path), transformer={"max_seq_length": 99})
    assert (load(tmp_path).max_seq_length, read_spec(tmp_path).max_tokens) == (99, 40)
    assert_same(tmp_path, [text for text in TEXTS if len(text) < 60])
    with pytest.raises(RuntimeError, match="must match"):
        load(tmp_path).encode(TEXTS)
    assert ours(tmp_path).shape == (len(TEXTS), 16)


def test_truncation_of_tokenizer_json_is_ignored(tmp_path: Path) -> None:
    """A truncation or padding that tokenizer.json itself asks for changes nothing."""
    write_modules(write_bert(tmp_path))
    native = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    native.enable_truncation(7)
    native.enable_padding(length=20)
    native.save(str(tmp_path / "tokenizer.json"))
    assert_same(tmp_path)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("of_tokenizer", [False, True])
def test_do_lower_case(tmp_path: Path, *, lowercase: bool, of_tokenizer: bool) -> None:
    """do_lower_case of sentence_bert_config.json lowercases whatever the tokenizer does."""
    write_modules(write_bert(tmp_path), transformer={"do_lower_case": lowercase, "max_seq_length": 30})
    change_tokenizer_config(tmp_path, do_lower_case=of_tokenizer)
    assert_same(tmp_path, CASED)


@pytest.mark.parametrize("of_config", [False, True, None])
@pytest.mark.parametrize("of_json", [False, True])
@pytest.mark.parametrize("kind", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", None])
def test_tokenizer_files_that_disagree(
    tmp_path: Path, kind: str | None, *, of_json: bool, of_config: bool | None
) -> None:
    """tokenizer_config.json wins over the normaliser of tokenizer.json, but not for PreTrainedTokenizerFast."""
    write_bert(tmp_path)
    native = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    native.normalizer = normalizers.BertNormalizer(lowercase=of_json)
    native.save(str(tmp_path / "tokenizer.json"))
    change_tokenizer_config(tmp_path, do_lower_case=of_config, tokenizer_class=kind)
    assert_same_ids(tmp_path, CASED)
    assert_same(tmp_path, CASED)


def test_no_tokenizer_config(tmp_path: Path) -> None:
    """Without tokenizer_config.json a BERT lowercases, even where tokenizer.json does not."""
    write_bert(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    native = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    native.normalizer = normalizers.BertNormalizer(lowercase=False)
    native.save(str(tmp_path / "tokenizer.json"))
    assert_same_ids(tmp_path, CASED)


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": None},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"tokenize_chinese_chars": False},
        {"mask_token": {"__type": "AddedToken", "content": "[MASK]", "lstrip": False}},
    ],
)
def test_vocab_txt(tmp_path: Path, settings: dict[str, Any]) -> None:
    """vocab.txt without tokenizer.json is a WordPiece as tokenizer_config.json says, cased or not."""
    write_bert(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    change_tokenizer_config(tmp_path, **settings)
    assert_same_ids(tmp_path, CASED)
    assert_same(tmp_path, CASED)


def test_vocab_txt_alone(tmp_path: Path) -> None:
    """vocab.txt without any other file of a tokenizer is an uncased WordPiece."""
    write_bert(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    assert_same_ids(tmp_path, CASED)


@pytest.mark.model
def test_token_ids_of_the_demo_model(minilm_folder: Path) -> None:
    """The demo model's token ids of the golden texts are those of transformers' tokenizer."""
    assert_same_ids(minilm_folder, list(json.loads(GOLDEN.read_text()).values()))


def assert_same_ids(folder: Path, texts: list[str]) -> None:
    """Both programs read the texts as the same tokens."""
    from transformers import AutoTokenizer

    spec = read_spec(folder)
    encoded = AutoTokenizer.from_pretrained(str(folder))(texts, truncation=True, max_length=spec.max_tokens)
    assert [tokens.ids.tolist() for tokens in Tokenizer(spec).encode(texts)] == encoded["input_ids"]


def change_tokenizer_config(folder: Path, **changes: Any) -> None:
    """Set keys of tokenizer_config.json; None takes a key away."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in settings.items() if value is not None})
