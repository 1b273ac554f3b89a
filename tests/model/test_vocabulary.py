"""Token ids are read in the vocabulary that they were made in, or refused."""

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from vecmill.errors import InvalidRequest
from vecmill.model import cl100k
from vecmill.model.vocabulary import Reading, read_token_ids

TEXTS = [
    "A girl is styling her hair.",
    "A group of men play soccer on the beach.",
    "One woman is measuring another woman's ankle.",
    "What is the refund policy for damaged items?",
    "The quick brown fox jumps over the lazy dog",
    "Reset your password",
    "Quarterly revenue grew by 12%, to $4.5 million (2023).",
    "Der Hund schläft im Garten, weil es warm ist.",
    "Le conseil a adopté la résolution à l'unanimité.",
    "¿Dónde está la biblioteca municipal?",
    "Сегодня в Москве ожидается сильный снег.",
    "今日の天気は晴れのち曇りです。",
    "Bugün hava çok güzel ve güneşli.",
    "def read(path): return open(path).read()",
    "# Installation\n\nRun `pip install vecmill`, then restart.",
    "Love it 😍👍 would buy again!!!",
]
WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "ran", "to", "house", "and", "then", "it", "was", "happy", "all"]
DOUBT = 1000
"""An id that is "the" for `wordpiece` and "indow" in cl100k: as likely one as the other."""


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    """A BERT tokenizer of 2,000 words that stand after 1,000 unused ids, as in BERT's own vocabulary."""
    words = [*WORDS, ".", ",", "?", "##s", "##ing"]
    fill = (f"[unused{number}]" for number in range(996))
    vocab = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *fill, *words])}
    vocab |= {f"filler{number}": len(vocab) + number for number in range(2000)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    """A tokenizer of the XLM-R kind: `<s>` and `</s>` are "!" and "#" in cl100k, and neighbours differ in script."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", ",", ".", "▁", "s", "▁s", *(f"▁{word}" for word in WORDS)]
    letters = [chr(0x4E00), chr(0x430), chr(0x5D0), chr(0x3B1)]
    jumble = [f"{'▁' * (at % 3 > 0)}{chr(ord(letters[at % 4]) + at // 4 % 20)}{at}" for at in range(12_000)]
    vocab = [(piece, -3.0 - at / 1000) for at, piece in enumerate([*pieces, *jumble])]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    frame = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.post_processor = frame
    return tokenizer


@cache
def minilm(folder: Path) -> Tokenizer:
    """The demo model's tokenizer as the server holds it."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def read(arrays: list[list[int]], native: Tokenizer, policy: str = "auto", *, sdk: bool = False) -> Reading:
    """`read_token_ids`, shorter."""
    return read_token_ids(arrays, native, policy=policy, likely_tiktoken=sdk)


def refusal(arrays: list[list[int]], native: Tokenizer, policy: str = "auto", *, sdk: bool = False) -> str:
    """The message of the refusal that `arrays` get."""
    with pytest.raises(InvalidRequest) as caught:
        read(arrays, native, policy, sdk=sdk)
    assert caught.value.param == "input"
    return str(caught.value)


def plain(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids without special tokens."""
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def starts(text: str) -> Iterator[str]:
    """The text's first word, its first two, and so on."""
    words = text.split(" ")
    return (" ".join(words[:count]) for count in range(1, len(words) + 1))


def test_reject_refuses_all(wordpiece: Tokenizer) -> None:
    """Policy "reject" takes no ids and says to send text."""
    assert "send text" in refusal([[1, 2]], wordpiece, "reject")


def test_native_takes_every_id_of_the_model(wordpiece: Tokenizer) -> None:
    """Policy "native" asks for no round trip: unused ids and padding are ids too."""
    size = wordpiece.get_vocab_size()
    assert read([[0, 7], [size - 1]], wordpiece, "native") == Reading("native", None)


@pytest.mark.parametrize("token", [-1, 4000, 2**31, 10**30])
def test_native_names_what_is_out_of_range(wordpiece: Tokenizer, token: int) -> None:
    """Policy "native" names the array, the position, the id and the range of the first id that is none."""
    last = wordpiece.get_vocab_size() - 1
    assert refusal([[5], [5, token]], wordpiece, "native") == (
        f"input[1][1]: {token} is no token id of the model: they are 0 to {last}"
    )


def test_cl100k_decodes(wordpiece: Tokenizer) -> None:
    """Policy "cl100k_base" gives the texts, in order."""
    reading = read([[15339, 1917], [83, 1609, 5963]], wordpiece, "cl100k_base")
    assert reading == Reading("cl100k_base", ["hello world", "tiktoken"])


@pytest.mark.parametrize("token", [-1, 100_256, 10**30])
def test_cl100k_names_an_unknown_id(wordpiece: Tokenizer, token: int) -> None:
    """Policy "cl100k_base" names the array, the position and the id that it lacks."""
    message = refusal([[15339], [1917, token]], wordpiece, "cl100k_base")
    assert message == f"input[1][1]: {token} is no token id of cl100k_base"


def test_cl100k_refuses_broken_text(wordpiece: Tokenizer) -> None:
    """Bytes that are no UTF-8 inside an array are refused, with its number."""
    assert refusal([[15339], [15339, 9468, 15339]], wordpiece, "cl100k_base").startswith("input[1]: ")


def test_cl100k_drops_half_characters_at_the_ends(wordpiece: Tokenizer) -> None:
    """Where a client cut between the tokens of an emoji, both sides lose it and nothing else."""
    ids = cl100k.encode("so 👩 nice")
    assert read([ids[:2], ids[2:]], wordpiece, "cl100k_base").texts == ["so ", " nice"]


def test_cl100k_special_tokens_have_no_text(wordpiece: Tokenizer) -> None:
    """End-of-text marks vanish; nothing but marks is refused."""
    assert read([[15339, 100_257]], wordpiece, "cl100k_base").texts == ["hello"]
    assert "no text" in refusal([[100_257]], wordpiece, "cl100k_base")


@pytest.mark.parametrize("sdk", [False, True])
@pytest.mark.parametrize("text", ["the cat sat on the mat.", "then a dog ran to the house and it was happy", "the"])
def test_framed_ids_are_native(wordpiece: Tokenizer, unigram: Tokenizer, text: str, sdk: bool) -> None:
    """Ids between the special tokens of the model's tokenizer are its own, however few and whoever sends them."""
    assert read([wordpiece.encode(text).ids], wordpiece, sdk=sdk) == Reading("native", None)
    assert read([unigram.encode(text).ids], unigram, sdk=sdk) == Reading("native", None)


@pytest.mark.parametrize("sdk", [False, True])
def test_ids_without_special_tokens_are_native(wordpiece: Tokenizer, unigram: Tokenizer, sdk: bool) -> None:
    """A sentence of the model's own ids needs no special tokens around it."""
    text = "then the dog ran to a house, and it was happy."
    assert read([plain(wordpiece, text)], wordpiece, sdk=sdk) == Reading("native", None)
    assert read([plain(unigram, text)], unigram, sdk=sdk) == Reading("native", None)


def test_truncated_ids_are_native(wordpiece: Tokenizer) -> None:
    """Ids that the client cut, so that [SEP] is missing, are still the model's."""
    ids = wordpiece.encode("the cat sat on the mat and then it ran to the house").ids
    assert read([ids[:8]], wordpiece).vocabulary == "native"


@pytest.mark.parametrize("text", ["the ☃ cat sat on the mat", "the cat☃s sat on the mat", "☃"])
def test_unknown_characters_are_native(wordpiece: Tokenizer, unigram: Tokenizer, text: str) -> None:
    """What the model does not know, and what that does to the tokens beside it, is no break of the round trip."""
    assert read([wordpiece.encode(text).ids], wordpiece).vocabulary == "native"
    assert read([unigram.encode(text).ids], unigram).vocabulary == "native"


def test_no_text_between_special_tokens_is_native(wordpiece: Tokenizer) -> None:
    """The ids that the model's tokenizer gives for an empty text are taken as such."""
    assert read([wordpiece.encode("").ids], wordpiece).vocabulary == "native"


def test_ids_beyond_the_model_are_cl100k(wordpiece: Tokenizer) -> None:
    """An id that the model has not leaves only cl100k."""
    assert read([[15339, 1917]], wordpiece) == Reading("cl100k_base", ["hello world"])


@pytest.mark.parametrize("sdk", [False, True])
@pytest.mark.parametrize("text", ["It is in the box, and that was not all.", "She is on the other side of the road."])
def test_a_text_beats_a_jumble(unigram: Tokenizer, text: str, sdk: bool) -> None:
    """Ids that are a sentence in cl100k, and a jumble in the model's that survives the round trip, are the sentence."""
    ids = cl100k.encode(text)
    assert max(ids) < unigram.get_vocab_size()
    assert plain(unigram, unigram.decode(ids)) == ids
    assert read([ids], unigram, sdk=sdk) == Reading("cl100k_base", [text])


def test_the_request_is_read_as_a_whole(wordpiece: Tokenizer) -> None:
    """An array that says nothing alone is read as its neighbours are."""
    sentence = plain(wordpiece, "the cat sat on the mat and then it was happy.")
    assert read([[DOUBT], sentence], wordpiece).vocabulary == "native"


def test_a_doubt_is_refused_with_the_remedy(wordpiece: Tokenizer) -> None:
    """One id that is a word in both vocabularies is not guessed; the message says how to declare it."""
    message = refusal([[DOUBT]], wordpiece)
    assert "could be the model's own or cl100k_base" in message
    assert "x-token-vocabulary: native or cl100k_base" in message
    assert "check_embedding_ctx_length=False" in message


def test_a_tiktoken_client_settles_a_doubt(wordpiece: Tokenizer) -> None:
    """The same id from a client that is likely to tokenise with tiktoken is cl100k."""
    assert read([[DOUBT]], wordpiece, sdk=True) == Reading("cl100k_base", ["indow"])


@pytest.mark.parametrize("ids", [[DOUBT, -1], [10**30], [15340, 64, 64, 9468, 64], [15339, 64, 64, 64, 64, 64]])
def test_neither_is_refused_with_the_remedy(wordpiece: Tokenizer, ids: list[int]) -> None:
    """Ids that both vocabularies lack, that are no UTF-8, or that no text is split into, are refused."""
    message = refusal([ids], wordpiece)
    assert "no tokenisation of a text" in message
    assert "send text" in message


def test_a_jumble_is_refused(unigram: Tokenizer) -> None:
    """Ids of a third vocabulary that survive the model's round trip but change script at each token are not taken."""
    ids = [9468, *range(1000, 1024)]
    assert plain(unigram, unigram.decode(ids)) == ids
    assert "no tokenisation of a text" in refusal([ids], unigram)


def test_a_model_with_the_same_vocabulary_is_native() -> None:
    """Where both vocabularies decode to the same text, there is nothing to decide."""
    same = Tokenizer(models.BPE({token.decode(): rank for rank, token in enumerate(cl100k.tokens()[:94])}, []))
    same.decoder = decoders.ByteLevel()
    assert read([[39]], same) == Reading("native", None)


@pytest.mark.model
@pytest.mark.parametrize("sdk", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_minilm_framed(minilm_folder: Path, text: str, sdk: bool) -> None:
    """Every start of every text, with special tokens, is MiniLM's own."""
    tokenizer = minilm(minilm_folder)
    readings = [read([tokenizer.encode(start).ids], tokenizer, sdk=sdk).vocabulary for start in starts(text)]
    assert set(readings) == {"native"}


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_minilm_cl100k(minilm_folder: Path, text: str) -> None:
    """Every start of every text, as LangChain sends it, is read as that text."""
    tokenizer = minilm(minilm_folder)
    for start in starts(text):
        assert read([cl100k.encode(start)], tokenizer, sdk=True) == Reading("cl100k_base", [start])


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_minilm_is_not_misread(minilm_folder: Path, text: str) -> None:
    """No start of four tokens and more, without special tokens, is taken for cl100k; it may be refused."""
    tokenizer = minilm(minilm_folder)
    for start in starts(text):
        if len(ids := plain(tokenizer, start)) >= 4:
            with contextlib.suppress(InvalidRequest):
                assert read([ids], tokenizer).vocabulary == "native"


@pytest.mark.model
@pytest.mark.parametrize("sdk", [False, True])
def test_minilm_without_special_tokens(minilm_folder: Path, sdk: bool) -> None:
    """A request of several texts is MiniLM's own, with special tokens or without, whoever sends it."""
    tokenizer = minilm(minilm_folder)
    assert read([plain(tokenizer, text) for text in TEXTS], tokenizer, sdk=sdk) == Reading("native", None)


@pytest.mark.model
@pytest.mark.parametrize("size", [32, 100, 8191])
def test_minilm_long_texts_in_chunks(minilm_folder: Path, size: int) -> None:
    """A long text in many scripts, cut after `size` tokens as LangChain does, is cl100k; nothing but halves is lost."""
    text = "\n".join(TEXTS * 30)
    ids = cl100k.encode(text)
    reading = read([ids[at : at + size] for at in range(0, len(ids), size)], minilm(minilm_folder), sdk=True)
    assert reading.texts is not None
    assert len("".join(reading.texts)) >= len(text) - len(reading.texts)


@pytest.mark.model
@pytest.mark.parametrize("start", [0, 7, 50])
def test_minilm_windows(minilm_folder: Path, start: int) -> None:
    """A window of 64 of MiniLM's ids, cut in the middle of words at both ends, is MiniLM's."""
    tokenizer = minilm(minilm_folder)
    ids = plain(tokenizer, " ".join(TEXTS))
    assert read([ids[start : start + 64]], tokenizer, sdk=True).vocabulary == "native"
