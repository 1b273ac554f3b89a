"""Between texts and tokens for people: which tokens a text is, and which text tokens are. Nothing is cut."""

from vecmill.asks import Piece
from vecmill.errors import InvalidRequest
from vecmill.model.tokenizer import Tokenizer


def pieces(tokenizer: Tokenizer, text: str, *, special: bool) -> list[Piece]:
    """The tokens of a text, each with the characters that it stands for.

    Args:
        tokenizer: The model's.
        text: Of any length.
        special: Whether the special tokens that the model puts around it are wanted.
    """
    encoding = tokenizer.native.encode(text, add_special_tokens=special)
    rows = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    return [Piece(number, token, bool(around), None if around else span) for number, token, around, span in rows]


def spelled(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool) -> str:
    """The text of token ids.

    Raises:
        InvalidRequest: An id is not of the vocabulary.
    """
    strange = next((number for number in ids if not 0 <= number < tokenizer.vocab_size), None)
    if strange is not None:
        last = tokenizer.vocab_size - 1
        raise InvalidRequest(f"{strange} is no token id of the model: they are 0 to {last}", param="input")
    text: str = tokenizer.native.decode(ids, skip_special_tokens=skip_special)
    return text
