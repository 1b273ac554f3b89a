"""/tokenize and /detokenize."""

import msgspec

from vecmill.api.dialect import Headers, Keys, Route
from vecmill.asks import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest


class VllmTokenizeBody(msgspec.Struct, kw_only=True):
    """A request for the tokens of a text."""

    prompt: str
    model: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class VllmTokens(msgspec.Struct):
    """Ids, and with `return_token_strs` the tokens as the vocabulary has them."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class VllmDetokenizeBody(msgspec.Struct, kw_only=True):
    """A request for the text of tokens."""

    tokens: list[int]
    model: str | None = None


class VllmPrompt(msgspec.Struct):
    """The text of tokens."""

    prompt: str


def parse_tokenize(body: VllmTokenizeBody, _: Headers) -> TokenizeRequest:
    """Tokens of a text."""
    return TokenizeRequest(model=body.model, texts=[body.prompt], special=body.add_special_tokens is not False)


def render_tokenize(body: VllmTokenizeBody, answer: Tokenized) -> VllmTokens:
    """How many, at most how many, and which."""
    (pieces,) = answer.pieces
    strings = [piece.token for piece in pieces] if body.return_token_strs else None
    return VllmTokens(len(pieces), answer.max_tokens, [piece.id for piece in pieces], strings)


def parse_detokenize(body: VllmDetokenizeBody, _: Headers) -> DetokenizeRequest:
    """The text of tokens."""
    return DetokenizeRequest(model=body.model, arrays=[body.tokens], skip_special=False)


def render_detokenize(_: object, answer: Detokenized) -> VllmPrompt:
    """The text."""
    return VllmPrompt(answer.texts[0])


def is_prompt(keys: Keys, _: Headers) -> bool:
    """Whether a body for /tokenize is vLLM's."""
    return "prompt" in keys or "messages" in keys


ROUTES = (
    Route(
        paths=("/vllm/tokenize", "/tokenize"),
        body=VllmTokenizeBody,
        parse=parse_tokenize,
        render=render_tokenize,
        answer=VllmTokens,
        summary="Tokens of a text",
        when=is_prompt,
        names={"input": ("prompt",)},
    ),
    Route(
        paths=("/detokenize", "/vllm/detokenize"),
        body=VllmDetokenizeBody,
        parse=parse_detokenize,
        render=render_detokenize,
        answer=VllmPrompt,
        summary="The text of tokens",
        names={"input": ("tokens",)},
    ),
)
