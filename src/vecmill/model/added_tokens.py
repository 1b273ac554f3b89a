"""Tokens that are added to a vocabulary by other files than tokenizer.json, as transformers 5 adds them.

First those with an id, in the order of their ids: `added_tokens_decoder` of tokenizer_config.json, or, in older
folders, added_tokens.json. Then the special tokens that are named, then the other special ones
(tokenization_utils_tokenizers.py).
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from vecmill.errors import CorruptFile
from vecmill.model.jsonfile import read_json

NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Settings that name a special token."""

FLAGS = ("lstrip", "normalized", "rstrip", "single_word", "special")

OLD_FILE = "added_tokens.json"
"""Token to id, in folders whose tokenizer_config.json has no `added_tokens_decoder`."""


def add_tokens(native: Tokenizer, settings: dict[str, Any], folder: Path) -> None:
    """Let the tokenizer know the tokens that the other files add, each as one token.

    Args:
        native: The tokenizer; changed in place.
        settings: tokenizer_config.json with what is merged into it.
        folder: Where the files are.

    Raises:
        CorruptFile: A token is none, or gets another id than the one that is stated.
    """
    named = [token for key in NAMED if (token := _special(settings.get(key), folder)) is not None]
    others = [_special(value, folder) for value in _others(settings, folder)]
    special = [*named, *(token for token in others if token is not None)]
    path, numbered = _numbered(settings, {token.content for token in special}, folder)
    known = native.get_added_tokens_decoder().values()
    before, shown = {token.content for token in known}, set(map(repr, known))
    given = [numbered[number] for number in sorted(numbered) if repr(numbered[number]) not in shown]
    names = before | {token.content for token in given}
    native.add_tokens([*given, *(token for token in special if token.content not in names)])
    for number, token in numbered.items():
        found = native.token_to_id(token.content)
        if token.content not in before and number != found:
            raise CorruptFile(f"{path}: the token {token.content!r} has the id {number}, in this vocabulary {found}")


def _numbered(settings: dict[str, Any], special: set[str], folder: Path) -> tuple[Path, dict[int, AddedToken]]:
    """Tokens with the ids that are stated for them, and the file that states them."""
    if "added_tokens_decoder" in settings:
        path, rows = folder / "tokenizer_config.json", settings["added_tokens_decoder"] or {}
        try:
            return path, {int(number): _token(row) for number, row in rows.items()}
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise CorruptFile(f"{path}: added_tokens_decoder is no object of tokens by id ({error})") from error
    path = folder / OLD_FILE
    ids = read_json(path, optional=True)
    if not all(isinstance(number, int) for number in ids.values()):
        raise CorruptFile(f"{path}: no object of ids")
    return path, {
        number: AddedToken(text, normalized=text not in special, special=text in special)
        for text, number in ids.items()
    }


def _others(settings: dict[str, Any], folder: Path) -> list[Any]:
    """Special tokens beside the named ones: those with names of their own, and those without."""
    listed = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    if not isinstance(listed, list | dict):
        path = folder / "tokenizer_config.json"
        raise CorruptFile(f"{path}: extra_special_tokens is {listed!r}, a list or an object is needed")
    own = [
        value
        for key, value in settings.items()
        if key.endswith("_token") and key not in NAMED and isinstance(value, str)
    ]
    return own + (list(listed.values()) if isinstance(listed, dict) else listed)


def _special(value: object, folder: Path) -> AddedToken | None:
    """A special token, which files give plain or as an object."""
    if value is None or value == "":
        return None
    try:
        return AddedToken(value, special=True) if isinstance(value, str) else _token(value, special=True)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise CorruptFile(f"{folder / 'tokenizer_config.json'}: {value!r} is no token ({error})") from error


def _token(row: Any, **flags: bool) -> AddedToken:  # noqa: ANN401 (JSON: the caller catches)
    stated = {name: row[name] for name in FLAGS if row.get(name) is not None}
    return AddedToken(row["content"], **(stated | flags))
