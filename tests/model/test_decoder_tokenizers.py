"""Tokenizers in the styles of decoders: their special tokens, their spaces, and the class that decides."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import normalizers, pre_tokenizers

from checkpoints import write_json
from tiny_decoders import FAMILIES, write_decoder
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

TEXT = "the cat 12"

LLAMA = ["<s>", "▁the", "▁cat", "▁", "1", "2"]
QWEN = ["the", "Ġcat", "Ġ", "1", "2", "<|endoftext|>"]
TOKENS = {
    "gemma3_text": ["<bos>", "the", "▁cat", "▁", "1", "2", "<eos>"],
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": QWEN,
    "qwen3": QWEN,
}
"""Of TEXT in each family."""


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family(tmp_path: Path, family: str) -> None:
    """A text between the special tokens that tokenizer.json adds, whatever flags stand in tokenizer_config.json."""
    assert tokens(write_decoder(tmp_path, family)) == TOKENS[family]
    change(tmp_path, add_bos_token=True, add_eos_token=True)
    assert tokens(tmp_path) == TOKENS[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_text(tmp_path: Path, family: str) -> None:
    """A text is cut between its special tokens, which are kept."""
    found = tokens(write_decoder(tmp_path, family), "the cat " * 30)
    special = [place for place, token in enumerate(found) if token.startswith("<")]
    assert len(found) == 40
    assert special == {"gemma3_text": [0, 39], "qwen2": [39], "qwen3": [39]}.get(family, [0])


@pytest.mark.parametrize("family", ["gemma3_text", "llama", "qwen2", "qwen3"])
def test_a_file_that_says_otherwise(tmp_path: Path, family: str) -> None:
    """Neither the normaliser nor the splitting of tokenizer.json counts where the class has rules."""
    distort(write_decoder(tmp_path, family))
    assert tokens(tmp_path) == TOKENS[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_without_rules(tmp_path: Path, family: str) -> None:
    """A class that has no rules takes tokenizer.json as it is, but Qwen2 has its own whatever the files name."""
    distort(write_decoder(tmp_path, family))
    change(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    assert ("dog" in "".join(tokens(tmp_path, "dog"))) == (family == "qwen2")


def test_mistral_has_no_class(tmp_path: Path) -> None:
    """Mistral's files are taken as they are, though they name Llama's class."""
    distort(write_decoder(tmp_path, "mistral"))
    assert tokens(tmp_path, "dog") == ["<s>", "cat"]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"legacy": False}, ["<s>", "▁the", "</s>", "the"]),
        ({"legacy": True}, ["<s>", "▁the", "</s>", "▁the"]),
        ({"add_prefix_space": False}, ["<s>", "the", "</s>", "the"]),
    ],
)
def test_what_goes_before_a_text(tmp_path: Path, settings: dict[str, Any], wanted: list[str]) -> None:
    """Llama's ▁ goes before the text, in older files before each part of it, or nowhere."""
    change(write_decoder(tmp_path, "llama"), **settings)
    assert tokens(tmp_path, "the</s>the") == wanted


def test_llama_of_bytes(tmp_path: Path) -> None:
    """A file of bytes that names Llama's class, as Llama 3's do, is taken as it is."""
    change(write_decoder(tmp_path, "qwen3"), tokenizer_class="LlamaTokenizer")
    assert tokens(tmp_path) == QWEN


def tokens(folder: Path, text: str = TEXT) -> list[str]:
    """A text's tokens as the model gets them."""
    tokenizer = Tokenizer(read_spec(folder))
    return [str(tokenizer.native.id_to_token(number)) for number in tokenizer.encode([text])[0].ids.tolist()]


def distort(folder: Path) -> None:
    """Make tokenizer.json write dog as cat and split in a way of its own, around the same vocabulary."""
    path = str(folder / "tokenizer.json")
    native = tokenizers.Tokenizer.from_file(path)
    native.normalizer = normalizers.Replace("dog", "cat")
    native.pre_tokenizer = pre_tokenizers.Digits()
    native.save(path)


def change(folder: Path, **changes: Any) -> None:
    """Set keys of tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    write_json(path, json.loads(path.read_text()) | changes)
