"""Texts and token ids on their way to the engine: frame, limit, prompt, and tokenizers that do not fit."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from checkpoints import VOCABULARY, write_bert, write_json
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.model.spec import ModelSpec, read_spec
from vecmill.model.tokenizer import CHARS_PER_TOKEN, Tokenizer

CLS, SEP, CAT, DOG, UNK = (VOCABULARY[token] for token in ("[CLS]", "[SEP]", "cat", "dog", "[UNK]"))


@pytest.fixture
def tokenizer(tiny_spec: ModelSpec) -> Tokenizer:
    """The tiny model's: 40 tokens, of which two are special."""
    return Tokenizer(tiny_spec)


def ids(tokenizer: Tokenizer, text: str, prompt: str = "") -> list[int]:
    """The tokens of one text."""
    (tokens,) = tokenizer.encode([text], prompt)
    values: list[int] = tokens.ids.tolist()
    return values


def test_the_frame(tokenizer: Tokenizer) -> None:
    """A text stands between the special tokens, in int32."""
    (tokens,) = tokenizer.encode(["cat dog"])
    assert (tokens.ids.tolist(), str(tokens.ids.dtype)) == ([CLS, CAT, DOG, SEP], "int32")


def test_a_batch(tokenizer: Tokenizer) -> None:
    """Each text of a batch has the tokens that it has alone, in order and without padding."""
    texts = ["cat", "the dog sat", "", "hello, world!"]
    assert [tokens.ids.tolist() for tokens in tokenizer.encode(texts)] == [ids(tokenizer, text) for text in texts]


def test_no_text(tokenizer: Tokenizer) -> None:
    """A text without tokens is the special tokens; no texts are no tokens."""
    assert ids(tokenizer, "") == ids(tokenizer, " \n\x07") == [CLS, SEP]
    assert tokenizer.encode([]) == []


@pytest.mark.parametrize(("words", "truncated"), [(37, False), (38, False), (39, True), (5000, True)])
def test_truncation(tokenizer: Tokenizer, words: int, *, truncated: bool) -> None:
    """A text is cut on the right to the limit, keeps its last special token, and is flagged only if it was cut."""
    (tokens,) = tokenizer.encode(["cat " + "dog " * (words - 1)])
    assert tokens.ids.tolist() == [CLS, CAT, *[DOG] * min(words - 1, 37), SEP]
    assert tokens.truncated == truncated


@pytest.mark.parametrize("place", ["tokenizer_config.json", "tokenizer.json"])
def test_truncation_on_the_left(tmp_path: Path, place: str) -> None:
    """Where either file asks for it, the end of a text is kept, between the special tokens; also of ids."""
    native = change_tokenizer(tmp_path)
    if place == "tokenizer.json":
        native.enable_truncation(7, direction="left")
        native.save(str(tmp_path / "tokenizer.json"))
    else:
        change_settings(tmp_path, truncation_side="left")
    tokenizer = Tokenizer(read_spec(tmp_path))
    wanted = [CLS, *[DOG] * 37, CAT, SEP]
    for count in (37, 38, 10_000):
        (tokens,) = tokenizer.encode(["dog " * count + "cat"])
        assert tokens.ids.tolist() == wanted
        assert tokens.truncated == (count > 37)
    assert tokenizer.encode_ids([[DOG] * 50 + [CAT]])[0].ids.tolist() == wanted
    assert ids(tokenizer, "dog cat") == [CLS, DOG, CAT, SEP]


@pytest.mark.parametrize(("count", "truncated"), [(1, False), (38, False), (39, True)])
def test_ids_without_the_frame(tokenizer: Tokenizer, count: int, *, truncated: bool) -> None:
    """Token ids without the special tokens get them, and are cut as texts are."""
    (tokens,) = tokenizer.encode_ids([[CAT] * count])
    assert tokens.ids.tolist() == [CLS, *[CAT] * min(count, 38), SEP]
    assert tokens.truncated == truncated


@pytest.mark.parametrize(("count", "truncated"), [(1, False), (38, False), (39, True)])
def test_ids_with_the_frame(tokenizer: Tokenizer, count: int, *, truncated: bool) -> None:
    """Token ids that have the special tokens do not get them twice."""
    (tokens,) = tokenizer.encode_ids([[CLS, *[CAT] * count, SEP]])
    assert tokens.ids.tolist() == [CLS, *[CAT] * min(count, 38), SEP]
    assert tokens.truncated == truncated


@pytest.mark.parametrize("array", [[CLS, CAT], [CAT, SEP], [CLS, SEP], [CLS], [SEP, CAT, CLS]])
def test_ids_with_half_a_frame(tokenizer: Tokenizer, array: list[int]) -> None:
    """Ids that are not the whole frame around something are taken as they are, within the frame."""
    assert tokenizer.encode_ids([array])[0].ids.tolist() == [CLS, *array, SEP]


def test_a_prompt(tokenizer: Tokenizer) -> None:
    """A prompt goes before the text as text, before ids as its tokens, and counts against the limit."""
    query, colon = VOCABULARY["query"], VOCABULARY[":"]
    assert ids(tokenizer, "cat", "query : ") == [CLS, query, colon, CAT, SEP]
    assert ids(tokenizer, "s", "cat") == ids(tokenizer, "cats") != [CLS, CAT, VOCABULARY["s"], SEP]
    for array in ([CAT], [CLS, CAT, SEP]):
        assert tokenizer.encode_ids([array], "query : ")[0].ids.tolist() == [CLS, query, colon, CAT, SEP]
    (tokens,) = tokenizer.encode(["cat " * 37], "query : ")
    assert (len(tokens.ids), tokens.truncated) == (40, True)


PIECES = [
    "cat ",
    "dog\n",
    "hello\t",
    "a\u3000",
    "cat\x0bdog ",
    "cat\x1c",
    "cats\x85 ",
    "中文",
    "x" * 200 + " ",
    "! ",
    "é",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_very_long_text(tokenizer: Tokenizer, piece: str) -> None:
    """Of a very long text only a prefix is read, and the tokens are those of the whole text."""
    text = (piece * (CHARS_PER_TOKEN * 40 * 20 // len(piece)))[:-1]
    whole = tokenizer.native.encode(text, add_special_tokens=False).ids
    (tokens,) = tokenizer.encode([text])
    assert tokens.ids.tolist() == [CLS, *whole[:38], SEP]
    assert tokens.truncated == (len(whole) > 38)


@pytest.mark.parametrize("space", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85"])
def test_a_very_long_text_with_control_characters(tokenizer: Tokenizer, space: str) -> None:
    """No cut falls before what Python holds for white space but BERT drops: the words at its sides are one."""
    text = f"{'cat ' * 37}catsss{space}{'xyz' * CHARS_PER_TOKEN * 40}"
    whole = tokenizer.native.encode(text, add_special_tokens=False).ids
    assert (len(whole), whole[-1]) == (38, UNK)
    assert ids(tokenizer, text) == [CLS, *whole, SEP]


def test_only_a_prefix_is_read(tokenizer: Tokenizer) -> None:
    """The prefix of a text of ten million characters is no longer than the limit makes it, if there is white space."""
    assert len(tokenizer._shorten("cat dog " * 1_250_000)) <= CHARS_PER_TOKEN * 40
    assert len(tokenizer._shorten("catdog" * 100_000)) == 600_000


def test_threads(tokenizer: Tokenizer) -> None:
    """Many threads at once get the tokens that one gets."""
    texts = [f"cat {number} dog " * (number % 30) for number in range(400)]
    wanted = [ids(tokenizer, text) for text in texts]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda text: ids(tokenizer, text), texts)) == wanted


def test_a_vocabulary_larger_than_the_table(tmp_path: Path) -> None:
    """A tokenizer whose ids go beyond the model's embedding table is refused with both sizes."""
    spec = read_spec(write_bert(tmp_path, vocab_size=len(VOCABULARY) - 1))
    assert_refused(spec, CorruptFile, "56 tokens with ids up to 55, the model an embedding table of 55 rows")


def test_a_vocabulary_smaller_than_the_table(tmp_path: Path) -> None:
    """An embedding table with rows to spare, as padded ones have, is no fault."""
    assert ids(Tokenizer(read_spec(write_bert(tmp_path, vocab_size=64))), "cat") == [CLS, CAT, SEP]


def test_a_limit_without_room(tiny_spec: ModelSpec) -> None:
    """A limit that the special tokens fill is refused."""
    assert_refused(replace(tiny_spec, max_tokens=2), CorruptFile, "a limit of 2 tokens leaves no room for text")
    assert ids(Tokenizer(replace(tiny_spec, max_tokens=3)), "cat dog") == [CLS, CAT, SEP]


def test_a_frame_of_other_tokens(tmp_path: Path) -> None:
    """The special tokens are what the tokenizer adds, however many: here three before and none after."""
    native = change_tokenizer(tmp_path)
    native.post_processor = processors.TemplateProcessing(single="[CLS] [MASK] [SEP] $A", special_tokens=SPECIAL)
    native.save(str(tmp_path / "tokenizer.json"))
    change_settings(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    assert ids(Tokenizer(read_spec(tmp_path)), "cat " * 50) == [CLS, VOCABULARY["[MASK]"], SEP, *[CAT] * 37]


SPECIAL = [(token, VOCABULARY[token]) for token in ("[CLS]", "[SEP]", "[MASK]")]


def test_no_frame(tmp_path: Path) -> None:
    """A tokenizer that adds nothing gives the text's tokens, and all of the limit to them."""
    native = change_tokenizer(tmp_path)
    native.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    native.save(str(tmp_path / "tokenizer.json"))
    change_settings(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    assert ids(Tokenizer(read_spec(tmp_path)), "cat " * 50) == [CAT] * 40


def test_truncation_and_padding_of_the_file(tmp_path: Path) -> None:
    """What tokenizer.json itself says of truncation and padding is not heeded: the spec's limit is."""
    native = change_tokenizer(tmp_path)
    native.enable_truncation(5)
    native.enable_padding(length=30)
    native.save(str(tmp_path / "tokenizer.json"))
    assert ids(Tokenizer(read_spec(tmp_path)), "cat dog " * 4) == [CLS, *[CAT, DOG] * 4, SEP]


@pytest.mark.parametrize(("kind", "wanted"), [("BertTokenizer", UNK), ("PreTrainedTokenizerFast", CAT)])
def test_who_says_what_is_lowercased(tmp_path: Path, kind: str, wanted: int) -> None:
    """tokenizer_config.json overrules tokenizer.json for a BertTokenizer, as in transformers, not for other classes."""
    write_bert(tmp_path)
    change_settings(tmp_path, tokenizer_class=kind, do_lower_case=False)
    assert ids(Tokenizer(read_spec(tmp_path)), "CAT") == [CLS, wanted, SEP]


def test_lowercase_of_the_model(tmp_path: Path) -> None:
    """A model that lowercases does so before a tokenizer that does not, or has no normaliser at all."""
    write_bert(tmp_path)
    change_settings(tmp_path, do_lower_case=False)
    spec = replace(read_spec(tmp_path), lowercase=True)
    assert ids(Tokenizer(spec), "CAT Dog") == [CLS, CAT, DOG, SEP]
    native = change_tokenizer(tmp_path)
    native.normalizer = normalizers.Sequence([])
    native.save(str(tmp_path / "tokenizer.json"))
    change_settings(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    assert ids(Tokenizer(spec), "CAT Dog") == [CLS, CAT, DOG, SEP]


def test_vocab_txt(tmp_path: Path) -> None:
    """A folder with vocab.txt and no tokenizer.json has a WordPiece, with its special tokens also within texts."""
    tokenizer = Tokenizer(read_spec(write_vocabulary(tmp_path)))
    assert ids(tokenizer, "CATS [SEP] Dog") == [CLS, CAT, VOCABULARY["##s"], SEP, DOG, SEP]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, UnsupportedModel, "a vocabulary of BertJapaneseTokenizer"),
        ({"sep_token": "</s>"}, CorruptFile, "no WordPiece vocabulary"),
        ({"do_lower_case": "no"}, CorruptFile, "tokenizer_config.json: no settings of a BertTokenizer"),
        ({"truncation_side": "middle"}, UnsupportedModel, "truncation_side = 'middle' is not supported"),
    ],
)
def test_settings_that_are_refused(
    tmp_path: Path, settings: dict[str, Any], error: type[LoadError], message: str
) -> None:
    """A tokenizer that would give other tokens than the model learnt from is refused."""
    write_vocabulary(tmp_path)
    change_settings(tmp_path, **settings)
    assert_refused(read_spec(tmp_path), error, message)


def test_no_tokenizer(tmp_path: Path) -> None:
    """A folder without a tokenizer names the files that would be one."""
    (write_bert(tmp_path) / "tokenizer.json").unlink()
    assert_refused(read_spec(tmp_path), MissingFile, "no tokenizer.json and no vocab.txt; complete the folder")


def test_a_tokenizer_in_other_files(tmp_path: Path) -> None:
    """One that is kept in files that are not read: they are named, with how to make the one that is."""
    (write_bert(tmp_path) / "tokenizer.json").unlink()
    for name in ("vocab.json", "merges.txt", "spiece.model"):
        (tmp_path / name).touch()
    message = "no vocab.txt; found merges.txt, spiece.model, vocab.json: AutoTokenizer.from_pretrained(FOLDER)"
    assert_refused(read_spec(tmp_path), MissingFile, message)


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "Unknown"}}'])
def test_a_file_that_is_no_tokenizer(tmp_path: Path, content: str) -> None:
    """A tokenizer.json that does not parse is named."""
    (write_bert(tmp_path) / "tokenizer.json").write_text(content)
    assert_refused(read_spec(tmp_path), CorruptFile, f"{tmp_path / 'tokenizer.json'}: no tokenizer")


def test_a_tokenizer_that_changes_the_text(tmp_path: Path) -> None:
    """A tokenizer whose special tokens do not go around the text is refused: ids could not be framed."""
    write_bert(tmp_path)
    native = tokenizers.Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    native.pre_tokenizer = pre_tokenizers.Whitespace()
    native.post_processor = processors.TemplateProcessing(single="[CLS] [SEP]", special_tokens=SPECIAL)
    native.save(str(tmp_path / "tokenizer.json"))
    change_settings(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    assert_refused(read_spec(tmp_path), UnsupportedModel, "changes a text when it adds the special tokens")


def change_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """A tiny BERT's tokenizer.json, to be changed and saved again."""
    return tokenizers.Tokenizer.from_file(str(write_bert(folder) / "tokenizer.json"))


def change_settings(folder: Path, **changes: Any) -> None:
    """Set keys of tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    write_json(path, json.loads(path.read_text()) | changes)


def write_vocabulary(folder: Path) -> Path:
    """A tiny BERT with vocab.txt instead of tokenizer.json."""
    (write_bert(folder) / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return folder


def assert_refused(spec: ModelSpec, error: type[LoadError], message: str) -> None:
    """Making a tokenizer raises exactly that error, and its message holds this and the folder."""
    with pytest.raises(LoadError) as caught:
        Tokenizer(spec)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert str(spec.folder) in str(caught.value)
