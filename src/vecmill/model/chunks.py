"""An input that is longer than the model takes, as several that are not."""

from itertools import takewhile

import msgspec

from vecmill.errors import InvalidRequest
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import Cut, Tokens


class Chunk(msgspec.Struct, frozen=True):
    """A part of an input, ready for the engine.

    Attributes:
        tokens: With the prompt and the special tokens that every chunk gets.
        weight: How many tokens of the text it holds.
    """

    tokens: Tokens
    weight: int


def split(tokenizer: Tokenizer, given: str | list[int], prompt: str, cut: Cut, side: str | None) -> list[Chunk]:
    """All of an input in chunks as long as the model takes, each with the prompt before it; the last may be short.

    Args:
        tokenizer: The model's.
        given: A text, or ids of the model's vocabulary.
        prompt: What goes before each chunk.
        cut: Its most tokens count, where they are less than the model's.
        side: Whether it is a query or a document, where the model tells them apart.

    Raises:
        InvalidRequest: The prompt leaves no room for text.
    """
    ids, before = tokenizer.whole(given, prompt), tokenizer.whole([], prompt)
    head = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, before, strict=False))]
    size = room(tokenizer, len(head), cut, side)
    pieces = [ids[start : start + size] for start in range(len(head), len(ids), size)]
    framed = tokenizer.between([head + piece for piece in pieces], prompt, cut, side)
    return [Chunk(tokens, len(piece)) for tokens, piece in zip(framed, pieces, strict=True)]


def room(tokenizer: Tokenizer, before: int, cut: Cut, side: str | None = None) -> int:
    """Tokens of text that the model takes at a time, where a prompt of so many goes before them.

    Raises:
        InvalidRequest: The prompt leaves none.
    """
    own = tokenizer.limit(side)
    size = min(own, cut.max_tokens or own) - tokenizer.framed - before
    if size < 1:
        raise InvalidRequest("the prompt leaves no room for text within the limit of tokens", param="prompt_name")
    return size
