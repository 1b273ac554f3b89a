"""A text has the token ids that transformers gives it, whatever the class of the tokenizer and its files say."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import normalizers, pre_tokenizers, processors

from checkpoints import write_json
from encoders import FAMILIES, write_encoder
from tiny_tokenizers import WRITERS
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

pytestmark = pytest.mark.reference

TEXTS = [
    "cat",
    "The cat sat on the mat.",
    " cat  dog\ncat\t dog ",
    "Hello, WORLD! xyzzy",
    "É é e\u0301 中文cat İ ΣΑΣ ﬁ ½",
    "Q Qcat catQ",
    "<s> cat <mask> dog </s>",
    "[CLS] cat [MASK] dog [SEP]",
    "``the dog's'' \"mat\"",
    "",
    "   ",
    "cat<mask>dog <pad>[PAD]",
    "a\u00a0b\u3000c\u200bd\x07e\x0cf",
    "the cat " * 40,
]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family(tmp_path: Path, family: str) -> None:
    """Texts in the tokenizer that the family has."""
    assert_same_ids(write_encoder(tmp_path, family))


@pytest.mark.parametrize("missing", ["tokenizer_class", "file"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_class(tmp_path: Path, family: str, missing: str) -> None:
    """Where the files name no class it is the family's."""
    distort(write_encoder(tmp_path, family))
    if missing == "file":
        (tmp_path / "tokenizer_config.json").unlink()
    else:
        change(tmp_path / "tokenizer_config.json", tokenizer_class=None)
    assert_same_ids(tmp_path)


@pytest.mark.parametrize("suffix", ["", "Fast"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_class_with_rules(tmp_path: Path, kind: str, suffix: str) -> None:
    """Normaliser, splitting and special tokens of tokenizer.json do not count against those of the class."""
    WRITERS[kind](write_other(tmp_path, kind), kind)
    distort(tmp_path)
    change(tmp_path / "tokenizer_config.json", tokenizer_class=kind + suffix)
    assert_same_ids(tmp_path)


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "TokenizersBackend"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_without_rules(tmp_path: Path, family: str, kind: str) -> None:
    """A class that has no rules of its own takes tokenizer.json as it is."""
    distort(write_encoder(tmp_path, family))
    change(tmp_path / "tokenizer_config.json", tokenizer_class=kind)
    assert_same_ids(tmp_path)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("roberta", {"add_prefix_space": True}),
        ("roberta", {"add_prefix_space": True, "trim_offsets": False}),
        ("xlm-roberta", {"add_prefix_space": False}),
        ("camembert", {"add_prefix_space": False}),
        ("albert", {"do_lower_case": False}),
        ("deberta-v2", {"do_lower_case": True}),
        ("deberta-v2", {"split_by_punct": True}),
        ("deberta-v2", {"add_prefix_space": False}),
        ("deberta-v2", {"do_lower_case": True, "split_by_punct": True, "add_prefix_space": False}),
        ("deberta-v2", {"cls_token": "[MASK]", "sep_token": "[PAD]"}),
        ("deberta-v2", {"bos_token": "[MASK]", "eos_token": "[PAD]"}),
        ("albert", {"keep_accents": True}),
        ("albert", {"do_lower_case": False, "keep_accents": True, "add_prefix_space": False}),
        *(
            (family, settings)
            for family in ("distilbert", "electra", "mpnet")
            for settings in (
                {"do_lower_case": False},
                {"strip_accents": False},
                {"do_lower_case": False, "strip_accents": True},
                {"tokenize_chinese_chars": False},
            )
        ),
        ("roberta", {"cls_token": "<mask>", "sep_token": "<pad>"}),
        ("roberta", {"bos_token": "<mask>", "eos_token": "<pad>"}),
        ("xlm-roberta", {"cls_token": "<mask>", "sep_token": "<pad>"}),
        ("camembert", {"bos_token": "<mask>", "eos_token": "<pad>"}),
        ("mpnet", {"cls_token": "<mask>", "sep_token": "<pad>"}),
        ("electra", {"cls_token": "[MASK]", "sep_token": "[PAD]"}),
        ("albert", {"cls_token": "[MASK]", "sep_token": "<pad>"}),
        ("distilbert", {"cls_token": {"__type": "AddedToken", "content": "[MASK]", "lstrip": False}}),
    ],
)
def test_settings(tmp_path: Path, family: str, settings: dict[str, Any]) -> None:
    """What tokenizer_config.json sets, the class does."""
    change(write_encoder(tmp_path, family) / "tokenizer_config.json", **settings)
    assert_same_ids(tmp_path)


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_special_tokens_map(tmp_path: Path, family: str, *, newer: bool) -> None:
    """The special tokens of special_tokens_map.json win, unless tokenizer_config.json lists its added tokens."""
    mask = "[MASK]" if family == "electra" else "<mask>"
    write_json(write_encoder(tmp_path, family) / "special_tokens_map.json", {"cls_token": mask})
    added = json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
    decoder = {token.pop("id"): token for token in added}
    change(tmp_path / "tokenizer_config.json", added_tokens_decoder=decoder if newer else None)
    assert_same_ids(tmp_path)


@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_vocab_txt(tmp_path: Path, family: str) -> None:
    """vocab.txt without tokenizer.json is a WordPiece, as for BERT."""
    write_encoder(tmp_path, family)
    vocabulary = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab()
    (tmp_path / "tokenizer.json").unlink()
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    assert_same_ids(tmp_path)


def write_other(folder: Path, kind: str) -> Path:
    """A checkpoint of another family than the class's, so that only the file can name the class."""
    return write_encoder(folder, "electra" if kind == "RobertaTokenizer" else "roberta", vocab_size=400)


def distort(folder: Path) -> Path:
    """Make tokenizer.json normalise, split and frame in a way of its own, around the same vocabulary."""
    path = str(folder / "tokenizer.json")
    native = tokenizers.Tokenizer.from_file(path)
    own = [native.normalizer] if isinstance(native.normalizer, normalizers.Precompiled) else []
    native.normalizer = normalizers.Sequence([normalizers.Replace("dog", "cat"), *own])
    native.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.Digits()])
    native.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    native.save(path)
    return folder


def assert_same_ids(folder: Path) -> None:
    """Both programs read the texts as the same tokens."""
    from transformers import AutoTokenizer

    spec = read_spec(folder)
    encoded = AutoTokenizer.from_pretrained(str(folder))(TEXTS, truncation=True, max_length=spec.max_tokens)
    for tokens, wanted in zip(Tokenizer(spec).encode(TEXTS), encoded["input_ids"], strict=True):
        assert tokens.ids.tolist() == wanted


def change(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; None takes a key away."""
    settings = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in settings.items() if value is not None})
