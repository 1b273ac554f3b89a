"""A text has the token ids that transformers gives it, in the tokenizers of decoders and whatever their files say."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import normalizers, pre_tokenizers

from checkpoints import write_json
from tiny_decoders import FAMILIES, write_decoder, write_tokenizer
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

pytestmark = pytest.mark.reference

TEXTS = [
    "cat",
    " the cat",
    "the  cat\n\nthe\tdog !\n?",
    "Hello, WORLD! 0123",
    "é e\u0301 中文🙂 ﬁ ½",
    "'s The cat's it'S",
    "<s> the cat </s> a<unk>b",
    "<bos>the<eos> cat <mask>",
    "<|im_start|>the cat<|im_end|>\n<|endoftext|>",
    "▁the cat▁",
    "",
    " ",
    "a\u00a0b\u3000c\u200bd\x07e\r\nf",
    "the cat " * 40,
]

CLASSES = [
    ("GemmaTokenizer", "GemmaTokenizerFast"),
    ("GemmaTokenizer", "LlamaTokenizerFast"),
    ("LlamaTokenizer", "LlamaTokenizer"),
    ("Qwen2Tokenizer", "GPT2Tokenizer"),
    ("Qwen2Tokenizer", "LlamaTokenizer"),
    ("Qwen2Tokenizer", "Qwen2TokenizerFast"),
]
"""Styles of files, and names of classes that can read them."""


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family(tmp_path: Path, family: str, side: str) -> None:
    """Texts in the tokenizer that the family has; long ones keep one end, and the special tokens."""
    assert_same_ids(change_settings(write_decoder(tmp_path, family), truncation_side=side))


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_truncation_of_tokenizer_json(tmp_path: Path, family: str, direction: str) -> None:
    """The direction of a truncation in tokenizer.json counts, its length does not."""
    path = str(write_decoder(tmp_path, family) / "tokenizer.json")
    native = tokenizers.Tokenizer.from_file(path)
    native.enable_truncation(7, direction=direction)
    native.save(path)
    assert_same_ids(tmp_path)


@pytest.mark.parametrize(("style", "kind"), CLASSES)
@pytest.mark.parametrize("family", ["gemma3_text", "llama", "mistral", "qwen3"])
def test_a_class_of_another_family(tmp_path: Path, family: str, style: str, kind: str) -> None:
    """A class that the files name counts in each family, but Llama's not for files of bytes."""
    assert_same_ids(write_as(write_decoder(tmp_path, family), style, kind))


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "LlamaTokenizer", "PreTrainedTokenizerFast"])
def test_a_class_of_another_family_for_qwen2(tmp_path: Path, kind: str) -> None:
    """Qwen2 has its own class whatever the files name."""
    assert_same_ids(write_as(write_decoder(tmp_path, "qwen2"), "Qwen2Tokenizer", kind))


@pytest.mark.parametrize("missing", ["tokenizer_class", "file"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_class(tmp_path: Path, family: str, missing: str) -> None:
    """Where the files name no class it is the family's, or none for Llama and Mistral."""
    write_decoder(tmp_path, family)
    if missing == "file":
        (tmp_path / "tokenizer_config.json").unlink()
    else:
        change_settings(tmp_path, tokenizer_class=None)
    assert_same_ids(tmp_path)


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "TokenizersBackend"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_without_rules(tmp_path: Path, family: str, kind: str) -> None:
    """A class that has no rules of its own takes tokenizer.json as it is, but for Qwen2, which always has its own."""
    assert_same_ids(change_settings(distort(write_decoder(tmp_path, family)), tokenizer_class=kind))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_with_rules(tmp_path: Path, family: str) -> None:
    """Normaliser and splitting of tokenizer.json do not count against those of the class."""
    assert_same_ids(distort(write_decoder(tmp_path, family)))


@pytest.mark.parametrize(
    "settings",
    [
        {"legacy": True},
        {"legacy": False},
        {"legacy": None},
        {"add_prefix_space": False},
        {"add_prefix_space": True, "legacy": True},
    ],
)
def test_settings_of_llama(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Whether ▁ goes before each part of a text between special tokens, before the first, or nowhere."""
    folder = write_decoder(tmp_path, "llama")
    path = folder / "tokenizer_config.json"
    write_json(path, json.loads(path.read_text()) | settings)
    assert_same_ids(folder)


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_settings_of_qwen(tmp_path: Path, family: str, *, add_prefix_space: bool) -> None:
    """Whether a space goes before a text."""
    assert_same_ids(change_settings(write_decoder(tmp_path, family), add_prefix_space=add_prefix_space))


@pytest.mark.parametrize("add_eos_token", [False, True, None])
@pytest.mark.parametrize("add_bos_token", [False, True, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_that_settings_add(
    tmp_path: Path, family: str, *, add_bos_token: bool | None, add_eos_token: bool | None
) -> None:
    """Special tokens are those of tokenizer.json, whatever tokenizer_config.json says of first and last ones."""
    flags = {"add_bos_token": add_bos_token, "add_eos_token": add_eos_token}
    assert_same_ids(change_settings(write_decoder(tmp_path, family), **flags))


def write_as(folder: Path, style: str, kind: str) -> Path:
    """Another tokenizer for a checkpoint, in the style of one class and by the name of one."""
    size = write_tokenizer(folder, style)
    write_json(folder / "config.json", json.loads((folder / "config.json").read_text()) | {"vocab_size": size})
    return change_settings(folder, tokenizer_class=kind)


def distort(folder: Path) -> Path:
    """Make tokenizer.json normalise and split in a way of its own, around the same vocabulary."""
    path = str(folder / "tokenizer.json")
    native = tokenizers.Tokenizer.from_file(path)
    native.normalizer = normalizers.Replace("dog", "cat")
    native.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.Digits()])
    native.save(path)
    return folder


def assert_same_ids(folder: Path) -> None:
    """Both programs read the texts as the same tokens."""
    from transformers import AutoTokenizer

    spec = read_spec(folder)
    encoded = AutoTokenizer.from_pretrained(str(folder))(TEXTS, truncation=True, max_length=spec.max_tokens)
    for tokens, wanted in zip(Tokenizer(spec).encode(TEXTS), encoded["input_ids"], strict=True):
        assert tokens.ids.tolist() == wanted


def change_settings(folder: Path, **changes: Any) -> Path:
    """Set keys of tokenizer_config.json; None takes a key away."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in settings.items() if value is not None})
    return folder
