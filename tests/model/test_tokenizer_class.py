"""Tokenizer classes whose own rules count for more than tokenizer.json."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import normalizers, pre_tokenizers, processors

from checkpoints import write_json
from encoders import FAMILIES, write_encoder
from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

TEXT = "the cat É Q"
TOKENS = {
    "albert": ["[CLS]", "▁the", "▁cat", "▁", "e", "▁", "q", "[SEP]"],
    "camembert": ["<s>", "▁the", "▁cat", "▁", "É", "▁", "z", "</s>"],
    "deberta-v2": ["[CLS]", "▁the", "▁cat", "▁", "É", "▁", "[UNK]", "[SEP]"],
    "distilbert": ["[CLS]", "the", "cat", "e", "q", "[SEP]"],
    "electra": ["[CLS]", "the", "cat", "e", "q", "[SEP]"],
    "mpnet": ["<s>", "the", "cat", "e", "q", "</s>"],
    "roberta": ["<s>", "t", "he", "Ġcat", "Ġ", "Ã", "ī", "Ġ", "Q", "</s>"],
    "xlm-roberta": ["<s>", "▁the", "▁cat", "▁", "É", "▁", "z", "</s>"],
}
"""Of TEXT in each family; the table of characters of the tiny XLM-RoBERTa writes Q as z."""


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family(tmp_path: Path, family: str) -> None:
    """A text in each family's tokenizer."""
    assert tokens(write_encoder(tmp_path, family)) == TOKENS[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_that_says_otherwise(tmp_path: Path, family: str) -> None:
    """Neither the normaliser nor the splitting of tokenizer.json counts, nor its special tokens but for ALBERT's."""
    distort(write_encoder(tmp_path, family))
    assert tokens(tmp_path) == (TOKENS[family][1:-1] if family == "albert" else TOKENS[family])


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "SomeTokenizer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_without_rules(tmp_path: Path, family: str, kind: str) -> None:
    """A class that has no rules takes tokenizer.json as it is."""
    distort(write_encoder(tmp_path, family))
    change(tmp_path, tokenizer_class=kind)
    assert tokens(tmp_path, "xyz") == ["z"]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_class(tmp_path: Path, family: str) -> None:
    """Where the files name no class it is the family's."""
    distort(write_encoder(tmp_path, family))
    change(tmp_path, tokenizer_class=None)
    assert tokens(tmp_path)[-3:] == (TOKENS[family][-4:-1] if family == "albert" else TOKENS[family][-3:])


@pytest.mark.parametrize(
    ("family", "settings", "text", "wanted"),
    [
        ("roberta", {"add_prefix_space": True}, "cat", ["<s>", "Ġcat", "</s>"]),
        ("xlm-roberta", {"add_prefix_space": False}, "cat", ["<s>", "c", "a", "t", "</s>"]),
        ("albert", {"keep_accents": True}, "é", ["[CLS]", "▁", "é", "[SEP]"]),
        ("albert", {"do_lower_case": False, "keep_accents": True}, "É", ["[CLS]", "▁", "É", "[SEP]"]),
        ("albert", {}, "``''", ["[CLS]", "▁", '"', '"', "[SEP]"]),
        ("deberta-v2", {}, "cat \n\n cat\n ", ["[CLS]", "▁cat", "▁cat", "[SEP]"]),
        ("deberta-v2", {}, "e\u0301", ["[CLS]", "▁", "é", "[SEP]"]),
        ("deberta-v2", {"do_lower_case": True}, "CAT", ["[CLS]", "▁cat", "[SEP]"]),
        ("deberta-v2", {"split_by_punct": True}, "the,cat", ["[CLS]", "▁the", "▁", ",", "▁cat", "[SEP]"]),
        ("deberta-v2", {"split_by_punct": True, "add_prefix_space": False}, "the,", ["[CLS]", "▁the", ",", "[SEP]"]),
        ("distilbert", {"do_lower_case": False}, "É", ["[CLS]", "É", "[SEP]"]),
        ("mpnet", {"strip_accents": False}, "é", ["<s>", "é", "</s>"]),
        ("electra", {"tokenize_chinese_chars": False}, "中中", ["[CLS]", "中", "##中", "[SEP]"]),
        ("roberta", {"cls_token": "<mask>", "sep_token": {"content": "<pad>"}}, "cat", ["<mask>", "cat", "<pad>"]),
        ("camembert", {"bos_token": "<mask>", "cls_token": "<pad>"}, "cat", ["<mask>", "▁cat", "</s>"]),
    ],
)
def test_settings(tmp_path: Path, family: str, settings: dict[str, Any], text: str, wanted: list[str]) -> None:
    """What tokenizer_config.json sets, the class does."""
    change(write_encoder(tmp_path, family), **settings)
    assert tokens(tmp_path, text) == wanted


@pytest.mark.parametrize("newer", [False, True])
def test_special_tokens_map(tmp_path: Path, *, newer: bool) -> None:
    """The special tokens of special_tokens_map.json win, unless tokenizer_config.json lists its added tokens."""
    write_json(write_encoder(tmp_path, "roberta") / "special_tokens_map.json", {"cls_token": "<mask>"})
    change(tmp_path, added_tokens_decoder={} if newer else None)
    assert tokens(tmp_path, "cat") == ["<s>" if newer else "<mask>", "cat", "</s>"]


def test_a_class_for_another_vocabulary(tmp_path: Path) -> None:
    """Rules for another kind of vocabulary than the file's are not applied."""
    change(write_encoder(tmp_path, "roberta"), tokenizer_class="AlbertTokenizer")
    assert tokens(tmp_path) == TOKENS["roberta"]


@pytest.mark.parametrize(
    ("family", "setting", "kind"),
    [
        ("mpnet", "do_lower_case", "MPNetTokenizer"),
        ("roberta", "add_prefix_space", "RobertaTokenizer"),
    ],
)
def test_a_setting_of_a_wrong_type(tmp_path: Path, family: str, setting: str, kind: str) -> None:
    """A setting that is no boolean is refused by the file and the class."""
    change(write_encoder(tmp_path, family), **{setting: "no"})
    with pytest.raises(CorruptFile, match=rf"tokenizer_config.json: no settings of a {kind} \("):
        tokens(tmp_path)


@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_vocab_txt(tmp_path: Path, family: str) -> None:
    """vocab.txt without tokenizer.json is a WordPiece, as for BERT."""
    only_vocabulary(write_encoder(tmp_path, family))
    assert tokens(tmp_path) == TOKENS[family]


def test_vocab_txt_of_another_class(tmp_path: Path) -> None:
    """A vocab.txt of a class that is not read from one is refused."""
    only_vocabulary(write_encoder(tmp_path, "mpnet"))
    with pytest.raises(UnsupportedModel, match="a vocabulary of MPNetTokenizer without tokenizer.json"):
        tokens(tmp_path)


def tokens(folder: Path, text: str = TEXT) -> list[str | None]:
    """A text's tokens as the model gets them."""
    tokenizer = Tokenizer(read_spec(folder))
    return [tokenizer.native.id_to_token(number) for number in tokenizer.encode([text])[0].ids.tolist()]


def distort(folder: Path) -> None:
    """Make tokenizer.json write xyz as z, split in no known way and add nothing, around the same vocabulary."""
    path = str(folder / "tokenizer.json")
    native = tokenizers.Tokenizer.from_file(path)
    own = [native.normalizer] if isinstance(native.normalizer, normalizers.Precompiled) else []
    native.normalizer = normalizers.Sequence([normalizers.Replace("xyz", "z"), *own])
    native.pre_tokenizer = pre_tokenizers.Digits()
    native.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    native.save(path)


def only_vocabulary(folder: Path) -> None:
    """Write tokenizer.json's vocabulary as vocab.txt in its place."""
    vocabulary = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    (folder / "tokenizer.json").unlink()
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def change(folder: Path, **changes: Any) -> None:
    """Set keys of tokenizer_config.json; None takes a key away."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in settings.items() if value is not None})
