"""A large answer's pieces together are the JSON that it would be in one."""

from typing import Any

import msgspec
import pytest

from vecmill.api.pieces import PIECE_BYTES, pieces


class Row(msgspec.Struct):
    """An element whose vector is JSON already."""

    index: int
    vector: msgspec.Raw
    error: str | msgspec.UnsetType = msgspec.UNSET


class Document(msgspec.Struct, rename={"rows": "data"}):
    """An element that has elements."""

    rows: list[Row]
    name: str = "a document"


class Answer(msgspec.Struct):
    """What a dialect answers."""

    object: str
    data: list[Any]
    usage: dict[str, int]


class Sparing(msgspec.Struct, omit_defaults=True):
    """What leaves something out."""

    data: list[Row]
    id: str | None = None


NUMBERS = msgspec.Raw(b"[" + b",".join([b"0.25"] * 2000) + b"]")
ROWS: list[Any] = [Row(number, NUMBERS) for number in range(300)]
LONG = Row(0, msgspec.Raw(b'"' + b"A" * (2 * PIECE_BYTES) + b'"'))


@pytest.mark.parametrize(
    "value",
    [
        Answer("list", ROWS, {"total": 1}),
        Answer("list", [Document([Row(1, NUMBERS)] * 150), Document([]), Document([Row(2, NUMBERS)] * 150)], {}),
        Answer("list", [Row(0, NUMBERS), *[LONG] * 3, *ROWS], {"a": 1, "b": 2}),
        Answer("list", [], {}),
        [[NUMBERS] * 200, [], [NUMBERS] * 3],
        {"embeddings": [NUMBERS] * 200, "ubinary": [], 'a "name"': [NUMBERS]},
        [NUMBERS] * 400,
        Sparing([Row(0, NUMBERS, "an error")] * 200),
        {},
        [],
        "a text",
    ],
)
def test_together_they_are_the_whole(value: object) -> None:
    """Whatever the shape, nothing is lost, doubled or moved."""
    assert b"".join(pieces(value)) == msgspec.json.encode(value)


@pytest.mark.parametrize(
    "value",
    [Answer("list", ROWS, {}), [Document([Row(0, NUMBERS)] * 300)], {"a": [NUMBERS] * 300}],
    ids=["elements", "elements of elements", "an object"],
)
def test_each_is_of_moderate_size(value: object) -> None:
    """No piece is much longer than is meant, also where the elements stand deeper."""
    cut = pieces(value)
    assert len(cut) > 3
    assert max(map(len, cut)) < 2 * PIECE_BYTES


def test_an_element_that_is_longer_is_a_piece_of_its_own() -> None:
    """What cannot be cut goes alone."""
    cut = pieces([LONG] * 4)
    assert len(cut) == 5  # the bracket goes with the first one, but not with the last
    assert max(map(len, cut)) < 2 * PIECE_BYTES + 100
