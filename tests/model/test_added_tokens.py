"""Tokens that files beside tokenizer.json add: which ids they get, how they are told in a text, and what has no row."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import VOCABULARY, write_bert, write_json
from encoders import write_encoder
from vecmill.config import Settings
from vecmill.embedder import Embedder
from vecmill.errors import CorruptFile, InvalidRequest
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

SIZE = len(VOCABULARY)
CLS, SEP, CAT, S, UNK = (VOCABULARY[token] for token in ("[CLS]", "[SEP]", "cat", "s", "[UNK]"))


def write(folder: Path, settings: dict[str, Any] | None = None, *, rows: int = SIZE + 4, text: bool = False) -> Path:
    """A tiny BERT with rows to spare and these settings of its tokenizer; `text` makes its vocabulary vocab.txt."""
    write_bert(folder, vocab_size=rows)
    path = folder / "tokenizer_config.json"
    write_json(path, json.loads(path.read_text()) | (settings or {}))
    if text:
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return folder


def ids(folder: Path, text: str) -> list[int]:
    """Tokens of a text, without those around it."""
    (tokens,) = Tokenizer(read_spec(folder)).encode([text])
    return list(map(int, tokens.ids[1:-1]))


def token(content: str, **flags: bool) -> dict[str, Any]:
    """A token as `added_tokens_decoder` has it."""
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": True, "special": False} | flags


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"added_tokens_decoder": {str(SIZE + 1): token("plugh"), str(SIZE): token("xyzzy")}},
        {"additional_special_tokens": ["xyzzy", {"content": "plugh"}]},
        {"extra_special_tokens": ["xyzzy", "plugh"]},
        {"extra_special_tokens": {"image_token": "xyzzy", "other": "plugh"}},
        {"bos_token": "xyzzy", "image_token": "plugh"},
        {"extra_special_tokens": ["plugh"], "eos_token": "xyzzy"},
    ],
)
def test_tokens_that_settings_add(tmp_path: Path, settings: dict[str, Any], *, text: bool) -> None:
    """They are one token each with ids after the vocabulary: first those with an id, then named ones, then others."""
    assert ids(write(tmp_path, settings, text=text), "cat xyzzy plugh cat") == [CAT, SIZE, SIZE + 1, CAT]


@pytest.mark.parametrize("text", [False, True])
def test_tokens_that_a_file_adds(tmp_path: Path, *, text: bool) -> None:
    """Older folders have them in added_tokens.json, which does not count where tokenizer_config.json lists tokens."""
    write_json(write(tmp_path, text=text) / "added_tokens.json", {"plugh": SIZE + 1, "xyzzy": SIZE})
    assert ids(tmp_path, "cat xyzzy plugh") == [CAT, SIZE, SIZE + 1]
    write(tmp_path, {"added_tokens_decoder": {}}, text=text)
    assert ids(tmp_path, "cat xyzzy") == [CAT, UNK]


def test_tokens_of_special_tokens_map(tmp_path: Path) -> None:
    """So has special_tokens_map.json."""
    write_json(write(tmp_path) / "special_tokens_map.json", {"additional_special_tokens": [{"content": "xyzzy"}]})
    assert ids(tmp_path, "xyzzy") == [SIZE]


@pytest.mark.parametrize(
    ("flags", "text", "wanted"),
    [
        ({}, "CATXYZZY", [UNK]),
        ({}, "cat XYZZY", [CAT, SIZE]),
        ({"normalized": False}, "cat XYZZY", [CAT, UNK]),
        ({"single_word": True}, "sxyzzy", [UNK]),
        ({"single_word": False}, "sxyzzy", [S, SIZE]),
        ({"special": True}, "s xyzzy", [S, SIZE]),
    ],
)
def test_flags(tmp_path: Path, flags: dict[str, bool], text: str, wanted: list[int]) -> None:
    """A token is looked for as its flags say; a normalised one in the text as the class normalises it."""
    folder = write(tmp_path, {"added_tokens_decoder": {str(SIZE): token("xyzzy", **flags)}})
    assert ids(folder, text) == (wanted if text != "CATXYZZY" else [CAT, SIZE])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"added_tokens_decoder": {str(SIZE + 2): token("xyzzy")}},
            f"'xyzzy' has the id {SIZE + 2}, in",
        ),
        ({"added_tokens_decoder": {"x": token("xyzzy")}}, "added_tokens_decoder is no object of tokens by id"),
        ({"added_tokens_decoder": {"60": "xyzzy"}}, "added_tokens_decoder is no object of tokens by id"),
        ({"added_tokens_decoder": ["xyzzy"]}, "added_tokens_decoder is no object of tokens by id"),
        ({"additional_special_tokens": "xyzzy"}, "extra_special_tokens is 'xyzzy', a list or an object is needed"),
        ({"additional_special_tokens": [3]}, "3 is no token"),
        ({"pad_token": {"special": True}}, "is no token"),
    ],
)
def test_what_cannot_be_added(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    """A token that is none, or comes out with another id than the one that the model learnt, is refused."""
    spec = read_spec(write(tmp_path, settings))
    with pytest.raises(CorruptFile, match=message) as caught:
        Tokenizer(spec)
    assert str(tmp_path / "tokenizer_config.json") in str(caught.value)


@pytest.mark.parametrize("text", ["", "x"])
def test_a_file_of_no_ids(tmp_path: Path, text: str) -> None:
    """An added_tokens.json without ids is named."""
    write_json(write(tmp_path) / "added_tokens.json", {"xyzzy": text})
    with pytest.raises(CorruptFile, match="added_tokens.json: no object of ids"):
        Tokenizer(read_spec(tmp_path))


def test_a_token_without_a_row(tmp_path: Path) -> None:
    """A token that the table has no row for harms no text but those that hold it, and as an id neither."""
    folder = write(tmp_path, {"pad_token": "<PAD>"}, rows=SIZE)
    plain = write_bert(tmp_path / "plain")
    wanted = "<PAD>' (id 56), for which the model has no vector"
    with Embedder(str(folder), settings=Settings(threads=1)) as ours, Embedder(str(plain)) as other:
        assert np.array_equal(ours.embed(["cat PAD"]), other.embed(["cat PAD"]))
        for inputs in (["cat", "cat <PAD>"], ["cat <PAD>" * 50]):
            with pytest.raises(InvalidRequest, match=re.escape(wanted)) as caught:
                ours.embed(inputs)
            assert caught.value.param == "input"
            assert f"input[{len(inputs) - 1}]" in str(caught.value)
        assert len(ours.embed(["cat " * 60 + "<PAD>"])) == 1, "what is cut off is not refused"


@pytest.mark.parametrize(
    ("family", "settings"), [("mpnet", {"cls_token": "<unheard>"}), ("bert", {"sep_token": "<x>"})]
)
def test_a_frame_without_a_row(tmp_path: Path, family: str, settings: dict[str, str]) -> None:
    """What goes around every text needs a row."""
    if family == "bert":
        write(tmp_path, settings, rows=SIZE)
    else:
        path = write_encoder(tmp_path, family) / "tokenizer_config.json"
        write_json(path, json.loads(path.read_text()) | settings)
    with pytest.raises(CorruptFile, match="the model an embedding table of"):
        Tokenizer(read_spec(tmp_path))
