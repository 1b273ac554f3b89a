"""Tokenizers of a few words in the styles of the encoder families, as `tokenizers` and transformers read them."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from checkpoints import WORDS, write_json

LETTERS = "abcdefghijklmnopqrstuvwxyz.,!?:-'\"É中İé"
MERGES = [("Ġ", "t"), ("c", "a"), ("ca", "t"), ("Ġ", "cat"), ("d", "o"), ("do", "g"), ("h", "e"), ("Ġt", "he")]


def write_word_piece(folder: Path, kind: str = "BertTokenizer") -> int:
    """WordPiece; returns the size of the vocabulary."""
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    mpnet = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "[UNK]"]
    specials = mpnet if kind == "MPNetTokenizer" else bert
    words = dict.fromkeys([*specials, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)])
    native = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    native.normalizer = normalizers.BertNormalizer(lowercase=True)
    native.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return write(folder, native, kind, specials, do_lower_case=True, unk_token="[UNK]")


def write_byte_pairs(folder: Path, kind: str = "RobertaTokenizer") -> int:
    """Byte-level BPE, as RoBERTa has it."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    merged = ["".join(pair) for pair in MERGES]
    vocabulary = dict.fromkeys([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet()), *merged])
    native = Tokenizer(models.BPE({token: number for number, token in enumerate(vocabulary)}, MERGES))
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    native.decoder = decoders.ByteLevel()
    return write(folder, native, kind, specials, add_prefix_space=False, trim_offsets=True)


def write_pieces(folder: Path, kind: str = "XLMRobertaTokenizer") -> int:
    """Unigram with SentencePiece's ▁, as XLM-RoBERTa and CamemBERT have it; its character table writes Q as z."""
    xlm = ["<s>", "<pad>", "</s>", "<unk>"]
    camembert = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    native = _unigram(camembert if kind == "CamembertTokenizer" else xlm, ["<mask>"], unknown=3)
    native.normalizer = normalizers.Precompiled(character_table("Q", "z"))
    return write(folder, native, kind, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], add_prefix_space=True)


def write_folded_pieces(folder: Path, kind: str = "AlbertTokenizer") -> int:
    """Unigram in lower case without accents, as ALBERT has it."""
    specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    native = _unigram(specials, [], unknown=1)
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD()]
    native.normalizer = normalizers.Sequence([*steps, normalizers.StripAccents(), normalizers.Lowercase()])
    return write(folder, native, kind, specials, do_lower_case=True, keep_accents=False)


def write_spaced_pieces(folder: Path, kind: str = "DebertaV2Tokenizer") -> int:
    """Unigram whose spaces are pieces, as DeBERTa v2 and v3 have it."""
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    native = _unigram(specials, ["[MASK]"], unknown=3)
    native.normalizer = normalizers.Precompiled(character_table("Q", "z"))
    return write(folder, native, kind, [*specials, "[MASK]"], do_lower_case=False, split_by_punct=False)


def _unigram(first: list[str], last: list[str], *, unknown: int) -> Tokenizer:
    words = [word.removeprefix("##") if word.startswith("##") else f"▁{word}" for word in WORDS]
    scored = dict.fromkeys([*words, "▁", *LETTERS])
    vocabulary = [(token, 0.0) for token in first]
    vocabulary += [(token, -float(number % 7 + 2) / len(token)) for number, token in enumerate(scored)]
    native = Tokenizer(models.Unigram([*vocabulary, *((token, 0.0) for token in last)], unknown, byte_fallback=False))
    native.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    native.decoder = decoders.Metaspace()
    return native


def write(folder: Path, native: Tokenizer, kind: str, specials: list[str], **settings: Any) -> int:
    """tokenizer.json and tokenizer_config.json; returns the size of the vocabulary."""
    bert = "[CLS]" in specials
    first, last = ("[CLS]", "[SEP]") if bert else ("<s>", "</s>")
    ids = [(token, native.token_to_id(token)) for token in (first, last)]
    pair = f"{first} $A {last} $B:1 {last}:1" if bert else f"{first} $A {last} {last} $B {last}"
    native.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", pair=pair, special_tokens=ids)
    mask = "[MASK]" if bert else "<mask>"
    native.add_special_tokens([AddedToken(token, lstrip=token == "<mask>", normalized=False) for token in specials])
    native.save(str(folder / "tokenizer.json"))
    pad = next(token for token in specials if token.lower() in {"<pad>", "[pad]"})
    unknown = next(token for token in specials if token.lower() in {"<unk>", "[unk]"})
    named = {"pad_token": pad, "unk_token": unknown, "mask_token": mask}
    named |= {"cls_token": first, "bos_token": first, "sep_token": last, "eos_token": last}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": kind, "model_max_length": 40, **named, **settings})
    return native.get_vocab_size(with_added_tokens=True)


def character_table(source: str, target: str) -> bytes:
    """SentencePiece's compiled form of one rule, one ASCII letter to a text: a double array and the targets."""
    units = [0] * 1024
    root, leaf = 0x100, 0x200
    units[0] = root << 10
    units[root ^ ord(source)] = leaf << 10 | 1 << 8 | ord(source)
    units[root ^ ord(source) ^ leaf] = 1 << 31
    array = struct.pack("<1024I", *units)
    return struct.pack("<I", len(array)) + array + target.encode() + b"\0"


WRITERS: dict[str, Callable[[Path, str], int]] = {
    "BertTokenizer": write_word_piece,
    "DistilBertTokenizer": write_word_piece,
    "ElectraTokenizer": write_word_piece,
    "MPNetTokenizer": write_word_piece,
    "RobertaTokenizer": write_byte_pairs,
    "XLMRobertaTokenizer": write_pieces,
    "CamembertTokenizer": write_pieces,
    "AlbertTokenizer": write_folded_pieces,
    "DebertaV2Tokenizer": write_spaced_pieces,
}
"""Tokenizer class to what writes one; each takes the folder and the class."""
