"""How likely a sequence of tokens is as text, by a model of text that is small enough to read.

Two things are true of tokens in nearly every language and vocabulary: common ones have low ids (Zipf's law, by which
the tables are built), and they follow each other by their form: after " word" comes " word" or a full stop, hardly
"Word", ".get" or a letter of another script. Ids that are read in the wrong vocabulary keep the first and lose the
second.
"""

import unicodedata
from functools import lru_cache
from math import log

_FORMS = "aAwW0.#x?_"
"""Letters, capitalised letters, the same after a space, digits, common punctuation, a symbol, a symbol with letters, a
part of a character, white space."""

# ln P(form | form before) - ln P(form of a random token), "^" being the start. Counted with cl100k over English
# captions and headlines, interface texts in eleven languages, package descriptions and Python code.
_AFTER = {
    before: dict(zip(_FORMS, row, strict=True))
    for before, row in {
        "a": (0.6, -3.7, 0.0, -1.2, -2.1, 0.7, -0.8, -0.5, 0.0, 0.3),
        "A": (0.1, -0.8, 0.9, -0.3, -1.6, 0.3, -0.8, -1.2, -4.8, -0.2),
        "w": (-0.8, -5.0, 1.2, -0.5, -3.7, 0.9, -1.2, -1.5, -2.7, 0.2),
        "W": (-0.2, -0.7, 0.5, 0.9, -1.6, 1.2, -1.0, -1.2, -5.0, 0.9),
        "0": (-1.8, -2.0, 0.0, -1.3, 1.0, 2.3, 0.4, -0.9, -4.9, 0.4),
        ".": (-0.5, -0.8, 0.7, 0.6, 1.3, -0.5, -0.7, -5.0, -2.5, 1.1),
        "#": (0.2, -0.4, -0.2, -0.3, 0.4, 0.3, 0.3, -4.0, -4.5, 2.3),
        "x": (0.1, -1.3, -1.0, -2.2, -1.1, 1.2, 0.5, 1.2, -5.0, 0.0),
        "?": (0.5, -4.6, -1.2, -3.2, -4.7, -0.5, -4.2, -5.0, 1.7, 0.8),
        "_": (-1.6, -3.1, 0.1, -0.9, 1.8, 0.1, 0.1, -3.5, 0.8, 1.6),
        "^": (-0.1, 1.8, -3.0, -3.0, -1.9, -1.3, -0.9, -2.4, -0.4, -3.0),
    }.items()
}
_SAME_SCRIPT_NATS, _OTHER_SCRIPT_NATS = 2.0, -5.0
"""For letters in the script of the letters before, where it is not Latin; for letters in another script."""

_COMMON = frozenset(".,-():?!\"'/;，。、！？：；（）「」“”‘’؟،।") | {").", "),", '."', ',"', '?"', "..."}  # noqa: RUF001
_NO_GLYPH = " \ufe0f\u200d"
"""The space, and what joins and colours emoji: by its category it would pass for a letter."""

_ONE_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "COMBINING": ""}


def rarity_nats(ids: list[int]) -> float:
    """What the ids alone cost: -ln P by Zipf's law, flattened at the top."""
    return sum(log(token + 30) + 2.1 for token in ids)


def form_nats(pieces: list[str | None]) -> float:
    """How much likelier than random the forms of a sequence are, as ln of the ratio.

    `pieces` are the texts of the tokens, each with the space before it if there is one; None for a token that has no
    text, which counts for nothing.
    """
    before, script, nats = "^", "", 0.0
    for piece in pieces:
        if piece is None:
            continue
        form, letters = _form(piece)
        nats += _AFTER[before][form]
        if letters and script:
            nats += _OTHER_SCRIPT_NATS if letters != script else _SAME_SCRIPT_NATS * (letters != "LATIN")
        before, script = form, letters or script
    return nats


@lru_cache(maxsize=32768)
def _form(piece: str) -> tuple[str, str]:
    """The form of a token and, where it has letters, their script."""
    core = piece.strip(_NO_GLYPH)
    if not core:
        return ("_" if piece else "?"), ""
    kind = unicodedata.category(core[0])[0]
    if kind in "LM":
        form = ("wW" if piece[0] == " " else "aA")[core[0].isupper()]
        name = unicodedata.name(core[0], "").partition(" ")[0].partition("-")[0]
        return form, _ONE_SCRIPT.get(name, name)
    if kind == "N":
        return "0", ""
    if core.isspace():
        return "_", ""
    if core in _COMMON or core[0] in "'’":  # noqa: RUF001
        return ".", ""
    return ("x" if any(letter.isalpha() for letter in core) else "#"), ""
