"""What dialects have in common in how texts and token ids are written."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vecmill.core import TOKEN_VOCABULARIES, Input, Pair
from vecmill.errors import EmptyInput, InvalidRequest

Written = str | list[str | int | list[int]]
"""A text, texts, one array of token ids, or several."""


def read(value: Written, field: str = "input") -> list[Input]:
    """The inputs in order: a list of numbers is one of them, other lists are several.

    Raises:
        EmptyInput: There is none.
        InvalidRequest: Numbers stand beside other things.
    """
    if isinstance(value, str):
        if not value:
            raise EmptyInput(f"{field} is an empty string; every input needs content", param=field)
        return [value]
    if not value:
        raise EmptyInput(f"{field} is an empty list; at least one input is needed", param=field)
    ids = [element for element in value if isinstance(element, int)]
    if ids and len(ids) < len(value):
        raise InvalidRequest(
            f"{field} holds numbers beside strings or arrays; a list of numbers is one input", param=field
        )
    return [ids] if ids else [element for element in value if not isinstance(element, int)]


def texts(value: str | Sequence[str]) -> list[Input]:
    """One text or several."""
    return [value] if isinstance(value, str) else list(value)


def text_of(value: str | dict[str, Any], field: str, keys: Sequence[str] = ("text",)) -> str:
    """The text of a string or of an object.

    Args:
        value: As it came.
        field: Where it stands, for errors.
        keys: Which fields of an object are read, each on its own line.

    Raises:
        InvalidRequest: The object has no such field, or it is no string; images and the like are not read.
    """
    if isinstance(value, str):
        return value
    found = [value.get(key) for key in keys]
    if not all(isinstance(one, str) for one in found):
        has, wanted = ", ".join(map(repr, value)) or "nothing", ", ".join(map(repr, keys))
        raise InvalidRequest(f"{field} has {has}; only texts are read here, as a string or under {wanted}", param=field)
    return "\n".join(map(str, found))


def texts_of(values: Sequence[str | dict[str, Any]], field: str, keys: Sequence[str] = ("text",)) -> list[str]:
    """As `text_of` for each."""
    return [text_of(value, f"{field}[{number}]", keys) for number, value in enumerate(values)]


def token_vocabulary(headers: Mapping[str, str]) -> str | None:
    """How token ids are to be read; None leaves it to the server. Every dialect that takes ids asks here.

    Raises:
        InvalidRequest: The header `x-token-vocabulary` has no such value.
    """
    value = headers.get("x-token-vocabulary")
    if value is not None and value not in TOKEN_VOCABULARIES:
        allowed = ", ".join(TOKEN_VOCABULARIES)
        raise InvalidRequest(f"the header x-token-vocabulary is {value!r}; allowed: {allowed}")
    return value


def dimensions_of(dimensions: int | None, output_dimension: int | None) -> int | None:
    """How many numbers are wanted, where OpenAI's name of it may stand for the dialect's own, `output_dimension`.

    Raises:
        InvalidRequest: Both are given and differ.
    """
    if None not in {dimensions, output_dimension} and dimensions != output_dimension:
        message = f"output_dimension is {output_dimension} and dimensions is {dimensions}; send one of them"
        raise InvalidRequest(message, param="output_dimension")
    return dimensions if output_dimension is None else output_dimension


def places(*fields: tuple[str, str | Sequence[object]]) -> Callable[[int], str]:
    """An input's number to what the caller calls it, where the texts of several fields follow one another."""

    def place(number: int) -> str:
        named = [[name] if isinstance(value, str) else _numbered(name, len(value)) for name, value in fields]
        return [one for each in named for one in each][number]

    return place


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}[{number}]" for number in range(count)]


def pairs(query: str, documents: Sequence[str]) -> list[Input]:
    """A query beside each document."""
    return [Pair(query, document) for document in documents]
