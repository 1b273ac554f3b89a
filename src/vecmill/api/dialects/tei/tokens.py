"""/tokenize, /decode and /info."""

from typing import Any

from vecmill import __version__
from vecmill.api.dialect import Headers, Route
from vecmill.api.dialects.tei.wire import TeiDecodeBody, TeiInfo, TeiInfoQuery, TeiToken, TeiTokenizeBody
from vecmill.asks import Detokenized, DetokenizeRequest, InfoRequest, ModelInfo, Piece, Tokenized, TokenizeRequest
from vecmill.errors import InvalidRequest

POOLING = {"lasttoken": "last_token"}
"""Our names of poolings in TEI's, where they differ."""


def tokenize(body: TeiTokenizeBody, _: Headers) -> TokenizeRequest:
    """Tokens of texts; nothing is cut."""
    return TokenizeRequest(
        model=body.model,
        texts=[body.inputs] if isinstance(body.inputs, str) else body.inputs,
        special=body.add_special_tokens is not False,
        prompt_name=body.prompt_name,
    )


def decode(body: TeiDecodeBody, _: Headers) -> DetokenizeRequest:
    """Texts of tokens.

    Raises:
        InvalidRequest: Numbers stand beside lists.
    """
    ids = [one for one in body.ids if isinstance(one, int)]
    arrays = [one for one in body.ids if isinstance(one, list)]
    if ids and arrays:
        raise InvalidRequest("ids holds numbers beside lists; send one list of numbers, or only lists", param="ids")
    return DetokenizeRequest(
        model=body.model, arrays=[ids] if ids else arrays, skip_special=body.skip_special_tokens is not False
    )


def info(query: TeiInfoQuery, _: Headers) -> InfoRequest:
    """What the model is."""
    return InfoRequest(model=query.model)


def render_tokenize(_: object, answer: Tokenized) -> list[list[TeiToken]]:
    """For each text its tokens, with places in bytes."""
    return [tokens_of(text, pieces) for text, pieces in zip(answer.texts, answer.pieces, strict=True)]


def render_decode(_: object, answer: Detokenized) -> list[str]:
    """A list of texts, also for one."""
    return answer.texts


def render_info(_: object, answer: ModelInfo) -> TeiInfo:
    """The model's kind and the limits."""
    return facts(answer)


def facts(answer: ModelInfo) -> TeiInfo:
    """What TEI tells of a model. What has no counterpart here is null or the nearest that there is."""
    named = dict(enumerate(answer.labels))
    labels = {"id2label": named, "label2id": {label: number for number, label in named.items()}}
    kind: dict[str, dict[str, Any]] = {
        "embed": {"embedding": {"pooling": "+".join(POOLING.get(name, name) for name in answer.pooling)}},
        "sparse": {"embedding": {"pooling": "splade"}},
        "multi": {"embedding": {"pooling": "none"}},
        "classify": {"classifier": labels},
        "rerank": {"reranker": labels},
    }
    return TeiInfo(
        model_id=answer.model,
        model_sha=None if answer.revision == "local" else answer.revision,
        model_dtype=answer.precision,
        served_model_name=answer.model,
        model_type=kind[answer.task],
        max_concurrent_requests=answer.max_queue_inputs or answer.max_queue_tokens // answer.max_tokens,
        max_input_length=answer.max_tokens,
        max_batch_tokens=answer.max_batch_tokens,
        max_batch_requests=answer.max_batch_inputs or None,
        max_client_batch_size=answer.max_inputs,
        auto_truncate=True,
        tokenization_workers=1,
        version=__version__,
    )


def tokens_of(text: str, pieces: list[Piece]) -> list[TeiToken]:
    """The tokens of a text, with their places in bytes."""
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    return [_token(text, starts, piece) for piece in pieces]


def _token(text: str, starts: list[int], piece: Piece) -> TeiToken:
    if piece.special or piece.span is None:
        return TeiToken(piece.id, piece.token, piece.special, None, None)
    start, stop = piece.span
    return TeiToken(piece.id, text[start:stop], piece.special, starts[start], starts[stop])


ROUTES = (
    Route(
        paths=("/tei/tokenize", "/tokenize"),
        body=TeiTokenizeBody,
        parse=tokenize,
        render=render_tokenize,
        answer=list[list[TeiToken]],
        summary="Tokens of texts, with their places in bytes",
        names={"input": ("inputs",)},
    ),
    Route(
        paths=("/decode", "/tei/decode"),
        body=TeiDecodeBody,
        parse=decode,
        render=render_decode,
        answer=list[str],
        summary="Texts of tokens",
        names={"input": ("ids",)},
    ),
    Route(
        paths=("/info", "/tei/info"),
        method="GET",
        body=TeiInfoQuery,
        parse=info,
        render=render_info,
        answer=TeiInfo,
        summary="What the model is, and the limits; ?model= names one of several",
    ),
)
