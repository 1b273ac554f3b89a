"""The cl100k_base table and its encoder are tiktoken's."""

import base64
import hashlib
import lzma
import runpy
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vecmill.model import cl100k

# Made with tiktoken 0.14: `tiktoken.get_encoding("cl100k_base").encode_ordinary(text)`.
VECTORS: list[tuple[str, list[int]]] = [
    ("hello world", [15339, 1917]),
    ("tiktoken is great!", [83, 1609, 5963, 374, 2294, 0]),
    ("", []),
    (" ", [220]),
    ("  ", [256]),
    ("   leading", [256, 6522]),
    ("trailing   ", [376, 14612, 262]),
    ("a  b   c", [64, 220, 293, 256, 272]),
    ("\n", [198]),
    ("\n\n\n", [1432]),
    ("line\r\nline\r\n", [1074, 319, 1074, 319]),
    ("tab\tand  \n  mixed", [6323, 53577, 2355, 220, 9709]),
    ("don't I'LL we've THEY'RE it'S", [15357, 956, 358, 6, 4178, 584, 3077, 63593, 95253, 433, 13575]),
    ("1234567890", [4513, 10961, 16474, 15]),
    ("v2.10.3, 50%", [85, 17, 13, 605, 13, 18, 11, 220, 1135, 4]),
    ("don\u2019t stop", [15357, 1431, 3009]),
    ("CamelCaseIdentifier snake_case", [26479, 301, 4301, 8887, 26332, 19640]),
    ("def f(x):\n    return x + 1\n", [755, 282, 2120, 997, 262, 471, 865, 489, 220, 16, 198]),
    ("https://example.com/a?b=c&d=1", [2485, 1129, 8858, 916, 14520, 30, 65, 20105, 5, 67, 28, 16]),
    ("Grüße aus Köln", [6600, 2448, 24352, 9608, 65994, 2312]),
    ("Ça va, élève?", [47013, 64, 11412, 11, 33013, 79351, 30]),
    ("Добрый день", [25079, 14082, 2233, 35723, 7952, 52429]),
    ("こんにちは世界", [90115, 3574, 244, 98220]),
    ("今天天气很好。", [37271, 36827, 36827, 30320, 242, 17599, 230, 53901, 1811]),
    ("안녕하세요", [31495, 230, 75265, 243, 92245]),
    ("مرحبا بالعالم", [10386, 11318, 30925, 22071, 5821, 28946, 32482, 24102, 32482, 10386]),
    ("नमस्ते दुनिया", [61196, 88344, 79468, 31584, 97, 35470, 15272, 99, 73753, 61196, 43411, 107, 24810]),
    ("สวัสดีครับ", [36748, 38313, 24152, 36748, 38133, 29419, 41427, 23084, 84646]),
    ("Γειά σου", [138, 241, 31243, 30862, 75234, 48823, 73986]),  # noqa: RUF001
    ("שלום", [59511, 50391, 37769, 251]),
    ("😀👍🏽", [76460, 222, 9468, 239, 235, 9468, 237, 121]),
    ("👩\u200d👩\u200d👧 family", [9468, 239, 102, 378, 235, 9468, 239, 102, 378, 235, 9468, 239, 100, 3070]),
    ("e\u0301 combining", [68, 54939, 35271]),
    ("\u00a0nbsp\u3000ideographic", [4194, 5792, 23249, 95107]),
    ("½ ² Ⅷ ٣", [27154, 220, 30556, 220, 71567, 100, 220, 149, 96]),
    ("\u017ftraße '\u017f", [129, 123, 2221, 24352, 364, 129, 123]),
    ("<|endoftext|>", [27, 91, 8862, 728, 428, 91, 29]),
    ("!!!???...", [12340, 34115, 1131]),
    ("a" * 33, [70540, 70540, 70540, 70540, 64]),
    ("\x00\x01", [188, 189]),
]
PUBLISHED_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
SCRIPT = Path(__file__).parents[2] / "scripts" / "make_cl100k.py"


@pytest.mark.parametrize(("text", "ids"), VECTORS)
def test_encodes_as_tiktoken_does(text: str, ids: list[int]) -> None:
    """Words, spaces, contractions, digits, scripts and emoji become tiktoken's ids."""
    assert cl100k.encode(text) == ids


@pytest.mark.parametrize(("text", "ids"), VECTORS)
def test_decodes_what_it_encodes(text: str, ids: list[int]) -> None:
    """The bytes of the ids are the text in UTF-8."""
    assert cl100k.decode(ids).decode() == text


def test_the_table_is_the_published_one() -> None:
    """Written as tiktoken writes it, the table has the sha256 that OpenAI's file has."""
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(cl100k.tokens()))
    assert hashlib.sha256(b"".join(lines)).hexdigest() == PUBLISHED_SHA256


def test_the_script_makes_the_file() -> None:
    """`scripts/make_cl100k.py` makes from the table the bytes that the package ships."""
    pack = runpy.run_path(str(SCRIPT))["pack"]
    ranks = {token: rank for rank, token in enumerate(cl100k.tokens())}
    shipped = Path(cl100k.__file__).with_name("cl100k.bin").read_bytes()
    assert lzma.decompress(pack(ranks)) == lzma.decompress(shipped)


def test_the_script_refuses_another_file() -> None:
    """A file with another hash is not packed."""
    with pytest.raises(SystemExit, match="not cl100k_base"):
        runpy.run_path(str(SCRIPT))["read_ranks"](b"IQ== 0\n")


def test_loads_quickly() -> None:
    """Reading the table takes less than half a second."""
    started = time.perf_counter()
    cl100k.tokens.__wrapped__()
    assert time.perf_counter() - started < 0.5


def test_threads_may_race_for_the_first_call() -> None:
    """Eight threads that encode at once, with nothing loaded, all get the right ids."""
    for cached in (cl100k.tokens, cl100k._ranks, cl100k._split):
        cached.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(cl100k.encode, ["hello world"] * 8)) == [[15339, 1917]] * 8


def test_a_long_word_takes_no_quadratic_time() -> None:
    """A word of 50,000 letters, which no space splits, is encoded in seconds and comes back."""
    word = "abcdefghij" * 5000
    started = time.perf_counter()
    assert cl100k.decode(cl100k.encode(word)).decode() == word
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("token", [-1, 100_256, 100_261, 100_275, 100_277, 2**63])
def test_unknown_ids_are_found(token: int) -> None:
    """Ids below 0, above the table and in its holes are unknown."""
    assert cl100k.unknown_position([15339, token]) == 1


def test_special_tokens_have_no_bytes() -> None:
    """The five special tokens are known and decode to nothing."""
    special = sorted(cl100k.SPECIAL)
    assert cl100k.unknown_position(special) is None
    assert cl100k.decode([15339, *special, 1917]) == b"hello world"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("жук".encode()[1:], "ук"),
        ("жук".encode()[:-1], "жу"),
        ("😀ok😀".encode()[1:-1], "ok"),
        ("😀ok😀".encode()[3:-3], "ok"),
        (b"\x9f\x98", ""),
        (b"", ""),
        ("жук".encode()[:1] + b"ok", None),
        (b"ok\x98", None),
        (b"\x98\x98\x98\x98ok", None),
    ],
)
def test_half_characters_are_dropped_at_the_ends_only(data: bytes, text: str | None) -> None:
    """Part of a character at either end is dropped; anywhere else, or more than a part, it is no text."""
    assert cl100k.whole_text(data) == text
