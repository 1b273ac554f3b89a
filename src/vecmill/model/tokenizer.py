"""Text to token ids: prompt, truncation, special tokens. Safe to call from several threads; releases the GIL."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers, pre_tokenizers
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.spec import ModelSpec, read_json

CHARS_PER_TOKEN = 24
"""Much longer texts are first cut to this many characters a token of the limit: 10 MB need no reading to keep 256."""

BREAKS = (" ", "\n", "\t", "\r", "\u3000")
"""White space at which every tokenizer splits. Others are not: BERT drops a form feed, which joins its neighbours."""

CLASSES = {"bert": "BertTokenizer"}
"""The tokenizer class that transformers takes for a family whose files name none."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One input ready for the engine.

    Attributes:
        ids: int32 [length], special tokens included.
        truncated: Whether it was cut to the limit.
    """

    ids: NDArray[np.int32]
    truncated: bool


class Tokenizer:
    """The model's tokenizer with its frame of special tokens and its limit.

    Args:
        spec: The model.

    Raises:
        MissingFile: There is no tokenizer in the folder.
        CorruptFile: It does not parse.
        UnsupportedModel: It puts special tokens elsewhere than at the ends.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.native = _read_tokenizer(spec)
        self.max_tokens = spec.max_tokens
        self.vocab_size = spec.vocab_size
        self._head, self._tail = _frame(self.native, spec.transformer)
        self._room = spec.max_tokens - len(self._head) - len(self._tail)
        if self._room < 1:
            raise CorruptFile(f"{spec.folder}: a limit of {spec.max_tokens} tokens leaves no room for text")
        self._check_vocabulary(spec)

    def encode(self, texts: list[str], prompt: str = "") -> list[Tokens]:
        """Tokens of each text with the prompt before it, cut to the limit on the right."""
        prefixed = [prompt + text for text in texts] if prompt else texts
        encodings = self.native.encode_batch_fast([self._shorten(text) for text in prefixed], add_special_tokens=False)
        return [self._fit(encoding.ids) for encoding in encodings]

    def encode_ids(self, arrays: list[list[int]], prompt: str = "") -> list[Tokens]:
        """Token ids of the model's own vocabulary; the special tokens are added where the caller left them out."""
        before = self.native.encode(prompt, add_special_tokens=False).ids if prompt else []
        return [self._fit(before + self._bare(ids)) for ids in arrays]

    def _fit(self, ids: list[int]) -> Tokens:
        kept = self._head + ids[: self._room] + self._tail
        return Tokens(np.array(kept, dtype=np.int32), truncated=len(ids) > self._room)

    def _bare(self, ids: list[int]) -> list[int]:
        head, tail = len(self._head), len(self._tail)
        framed = len(ids) > head + tail and ids[:head] == self._head and ids[len(ids) - tail :] == self._tail
        return ids[head : len(ids) - tail] if framed else ids

    def _shorten(self, text: str) -> str:
        """A prefix that surely holds more tokens than the limit, or the whole text.

        The cut falls before white space, where every tokenizer splits, so the tokens before it are those of the whole
        text.
        """
        size = self.max_tokens * CHARS_PER_TOKEN
        while len(text) > 2 * size:
            cut = max(text.rfind(space, 1, size) for space in BREAKS)
            if cut > 0 and len(self.native.encode(text[:cut], add_special_tokens=False).ids) > self._room:
                return text[:cut]
            size *= 4
        return text

    def _check_vocabulary(self, spec: ModelSpec) -> None:
        size = self.native.get_vocab_size(with_added_tokens=True)
        largest = max(self.native.get_vocab(with_added_tokens=True).values(), default=-1)
        if largest >= spec.vocab_size:
            raise CorruptFile(
                f"{spec.folder}: the tokenizer has {size} tokens with ids up to {largest}, "
                f"the model an embedding table of {spec.vocab_size} rows"
            )


def _frame(native: tokenizers.Tokenizer, folder: Path) -> tuple[list[int], list[int]]:
    """The special tokens that go before and after a text."""
    probe = native.encode("a", add_special_tokens=False).ids
    framed = native.encode("a", add_special_tokens=True).ids
    for start in range(len(framed) - len(probe) + 1):
        if probe and framed[start : start + len(probe)] == probe:
            return framed[:start], framed[start + len(probe) :]
    raise UnsupportedModel(f"{folder}: the tokenizer changes a text when it adds the special tokens")


def _read_tokenizer(spec: ModelSpec) -> tokenizers.Tokenizer:
    settings = read_json(spec.transformer / "tokenizer_config.json", optional=True)
    _check(spec, settings)
    kind = str(settings.get("tokenizer_class") or spec.config.get("tokenizer_class") or CLASSES.get(spec.family))
    kind = kind.removesuffix("Fast")
    native = _from_json(spec.transformer) or _from_vocabulary(spec.transformer, kind, settings)
    native.no_truncation()
    native.no_padding()
    if kind == "BertTokenizer" and isinstance(native.model, models.WordPiece):
        native.normalizer = _bert_normalizer(spec.transformer, settings)
        native.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if spec.lowercase:
        own = [native.normalizer] if native.normalizer else []
        native.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return native


def _check(spec: ModelSpec, settings: dict[str, Any]) -> None:
    side = settings.get("truncation_side", "right")
    if side != "right":
        path = spec.transformer / "tokenizer_config.json"
        raise UnsupportedModel(f"{path}: truncation_side = {side!r} is not supported; supported: right")


def _bert_normalizer(folder: Path, settings: dict[str, Any]) -> normalizers.Normalizer:
    """What tokenizer_config.json says goes: transformers' BertTokenizer heeds no normaliser of tokenizer.json."""
    try:
        return normalizers.BertNormalizer(
            lowercase=settings.get("do_lower_case", True),
            strip_accents=settings.get("strip_accents"),
            handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        )
    except TypeError as error:
        raise CorruptFile(f"{folder / 'tokenizer_config.json'}: no settings of a BertTokenizer ({error})") from error


def _from_json(folder: Path) -> tokenizers.Tokenizer | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CorruptFile(f"{path}: no tokenizer ({error})") from error


def _from_vocabulary(folder: Path, kind: str, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """A WordPiece tokenizer from vocab.txt, for checkpoints older than tokenizer.json."""
    path = folder / "vocab.txt"
    if not path.is_file():
        raise MissingFile(f"{folder}: no tokenizer.json and no vocab.txt: complete the folder")
    if kind != "BertTokenizer":
        raise UnsupportedModel(f"{path}: a vocabulary of {kind} without tokenizer.json; supported: BertTokenizer")
    special = {f"{name}_token": _content(settings, name) for name in ("unk", "sep", "cls", "pad", "mask")}
    try:
        wordpiece = BertWordPieceTokenizer(vocab=str(path), **special)  # type: ignore[arg-type]  # flags are bool
        return tokenizers.Tokenizer.from_str(wordpiece.to_str())
    except Exception as error:  # the library raises bare Exception
        raise CorruptFile(f"{path}: no WordPiece vocabulary ({error})") from error


def _content(settings: dict[str, Any], name: str) -> str:
    """The text of a special token, which files give plain or as an object."""
    token = settings.get(f"{name}_token") or f"[{name.upper()}]"
    return str(token["content"] if isinstance(token, dict) else token)
