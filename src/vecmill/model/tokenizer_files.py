"""The tokenizer that a folder's files describe, as transformers 5 builds it."""

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import normalizers
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.added_tokens import add_tokens
from vecmill.model.jsonfile import read_json
from vecmill.model.spec import ModelSpec
from vecmill.model.stated import read_stated
from vecmill.model.static import STATIC
from vecmill.model.tokenizer_class import apply_class, class_name, token_text

WORD_PIECE = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
"""Classes that are read from vocab.txt where there is no tokenizer.json."""


SLOW = ("vocab.json", "merges.txt", "*.model", "*.tiktoken")
"""What a tokenizer may be kept in that is not read here."""


def read_tokenizer(spec: ModelSpec) -> tuple[tokenizers.Tokenizer, str]:
    """The tokenizer without frame and limit, and the side on which long texts are cut."""
    # A static model's tokenizer.json is taken as it is: its libraries read nothing else.
    settings = read_settings(spec.transformer) if spec.family != STATIC else {}
    stated = settings.get("tokenizer_class") or spec.config.get("tokenizer_class")
    if not isinstance(stated, str | None):
        raise CorruptFile(f"{spec.transformer}: tokenizer_class is {stated!r}, a name is needed")
    kind = class_name(spec.family, stated)
    native = _from_json(spec.transformer) or _from_vocabulary(spec.transformer, kind, settings)
    side = _truncation_side(spec, settings, native)

    def learn() -> None:
        if spec.family != STATIC:
            add_tokens(native, settings, spec.transformer)

    native.no_truncation()
    native.no_padding()
    try:
        apply_class(native, kind, settings, learn)
    except TypeError as error:
        path = spec.transformer / "tokenizer_config.json"
        raise CorruptFile(f"{path}: no settings of a {kind} ({error})") from error
    if spec.lowercase:
        own = [native.normalizer] if native.normalizer else []
        native.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return native, side


def read_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, and in files of before 2023 the special tokens of special_tokens_map.json, which win.

    What the first module's settings say of the tokenizer wins over both.
    """
    settings = read_json(folder / "tokenizer_config.json", optional=True)
    if "added_tokens_decoder" not in settings:
        settings |= read_json(folder / "special_tokens_map.json", optional=True)
    return settings | read_stated(folder).tokenizer


def _truncation_side(spec: ModelSpec, settings: dict[str, Any], native: tokenizers.Tokenizer) -> str:
    """What tokenizer_config.json says, else tokenizer.json, of whose truncation nothing else counts."""
    side = settings.get("truncation_side") or (native.truncation or {}).get("direction", "right")
    if side not in ("left", "right"):
        path = spec.transformer / "tokenizer_config.json"
        raise UnsupportedModel(f"{path}: truncation_side = {side!r} is not supported; supported: left, right")
    return str(side)


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
        found = sorted(file.name for pattern in SLOW for file in folder.glob(pattern))
        make = "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers writes tokenizer.json"
        hint = f"found {', '.join(found)}: {make}" if found else "complete the folder"
        raise MissingFile(f"{folder}: no tokenizer.json and no vocab.txt; {hint}")
    if kind not in WORD_PIECE:
        supported = ", ".join(WORD_PIECE)
        raise UnsupportedModel(f"{path}: a vocabulary of {kind} without tokenizer.json; supported: {supported}")
    names = ("unk", "sep", "cls", "pad", "mask")
    special = {f"{name}_token": token_text(settings, f"{name}_token", f"[{name.upper()}]") for name in names}
    try:
        wordpiece = BertWordPieceTokenizer(vocab=str(path), **special)  # type: ignore[arg-type]  # flags are bool
        return tokenizers.Tokenizer.from_str(wordpiece.to_str())
    except Exception as error:  # the library raises bare Exception
        raise CorruptFile(f"{path}: no WordPiece vocabulary ({error})") from error
