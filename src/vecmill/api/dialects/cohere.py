"""Cohere's embed, rerank and tokenize, versions 1 and 2, as its SDKs send and read them.

Images are refused. An object among the documents is read by its `text`, or by its `rank_fields`, each on its own line.
"""

import uuid
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Keys, Route, entry
from vecmill.api.encode import encoded
from vecmill.api.inputs import pairs, text_of, texts, texts_of
from vecmill.api.prompts import prompts_for
from vecmill.api.ranking import check_top, ranked
from vecmill.asks import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from vecmill.core import Options, Request, Result
from vecmill.errors import InvalidRequest, VecmillError

Kind = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]

UNIT_DOCUMENTS = 100
"""Documents that Cohere counts as one search."""


class CohereEmbedBody(msgspec.Struct, kw_only=True):
    """A request for vectors: `texts`, or `inputs` whose content is text."""

    model: str | None = None
    input_type: str | None = None
    texts: list[str] | None = None
    inputs: list[dict[str, Any]] | None = None
    images: list[str] | None = None
    embedding_types: list[Kind] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    output_dimension: int | None = None
    max_tokens: int | None = None


class CohereMeta(msgspec.Struct):
    """Version and what would be billed."""

    api_version: dict[str, str]
    billed_units: dict[str, int]


class CohereEmbedAnswer(msgspec.Struct):
    """The vectors: by type, or in version 1 without `embedding_types` one list."""

    id: str
    response_type: Literal["embeddings_by_type", "embeddings_floats"]
    embeddings: Any
    texts: list[str]
    meta: CohereMeta


class CohereRerankBody(msgspec.Struct, kw_only=True):
    """A request to put documents in order."""

    query: str
    documents: list[str | dict[str, Any]]
    model: str | None = None
    top_n: int | None = None
    rank_fields: list[str] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = None


class CohereRank(msgspec.Struct):
    """A document's place and score, and in version 1 with `return_documents` the document."""

    index: int
    relevance_score: float
    document: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class CohereRerankAnswer(msgspec.Struct):
    """The documents by their scores, the best first."""

    id: str
    results: list[CohereRank]
    meta: CohereMeta


class CohereTokenizeBody(msgspec.Struct):
    """A request for the tokens of a text, without special tokens."""

    text: str
    model: str | None = None


class CohereTokens(msgspec.Struct):
    """Ids, and the tokens as the vocabulary has them."""

    tokens: list[int]
    token_strings: list[str]
    meta: dict[str, Any]


class CohereDetokenizeBody(msgspec.Struct):
    """A request for the text of tokens."""

    tokens: list[int]
    model: str | None = None


class CohereText(msgspec.Struct):
    """The text of tokens."""

    text: str
    meta: dict[str, Any]


class CohereError(msgspec.Struct):
    """Every error has this body."""

    message: str


def parse_embed(body: CohereEmbedBody, _: Headers) -> Request:
    """Vectors of texts for a purpose.

    Raises:
        InvalidRequest: There are images, or both `texts` and `inputs`.
    """
    return Request(
        model=body.model,
        inputs=texts(_texts(body)),
        options=Options(
            role=prompts_for(body.input_type, "input_type"),
            truncate=body.truncate != "NONE",
            truncation_side="left" if body.truncate == "START" else "right",
            dimensions=body.output_dimension,
            max_tokens=body.max_tokens,
        ),
    )


def render_embed(version: str) -> Callable[[CohereEmbedBody, Result], CohereEmbedAnswer]:
    """How a version answers."""

    def render(body: CohereEmbedBody, result: Result) -> CohereEmbedAnswer:
        kinds = body.embedding_types or ["float"]
        by_kind = {kind: _rows(result, kind) for kind in kinds}
        plain = version == "1" and not body.embedding_types
        return CohereEmbedAnswer(
            id=str(uuid.uuid4()),
            response_type="embeddings_floats" if plain else "embeddings_by_type",
            embeddings=by_kind["float"] if plain else by_kind,
            texts=_texts(body),
            meta=_meta(version, "input_tokens", sum(result.tokens)),
        )

    return render


def parse_rerank(body: CohereRerankBody, _: Headers) -> Request:
    """Scores of documents for a query.

    Raises:
        InvalidRequest: A document has no text, or `top_n` is below 1.
    """
    check_top(body.top_n)
    documents = texts_of(body.documents, "documents", body.rank_fields or ("text",))
    return Request(
        model=body.model,
        inputs=pairs(body.query, documents),
        outputs=("scores",),
        ranks=True,
        options=Options(second_tokens=body.max_tokens_per_doc),
    )


def render_rerank(version: str) -> Callable[[CohereRerankBody, Result], CohereRerankAnswer]:
    """How a version answers."""

    def render(body: CohereRerankBody, result: Result) -> CohereRerankAnswer:
        given = [{"text": one} if isinstance(one, str) else one for one in body.documents]
        shown = body.return_documents is True and version == "1"
        rows = [
            CohereRank(place, score, given[place] if shown else msgspec.UNSET)
            for place, score in ranked(result, body.top_n)
        ]
        units = -(-len(given) // UNIT_DOCUMENTS)
        return CohereRerankAnswer(str(uuid.uuid4()), rows, _meta(version, "search_units", units))

    return render


def parse_tokenize(body: CohereTokenizeBody, _: Headers) -> TokenizeRequest:
    """Tokens of a text."""
    return TokenizeRequest(model=body.model, texts=[body.text], special=False)


def render_tokenize(_: object, answer: Tokenized) -> CohereTokens:
    """Ids and tokens side by side."""
    (pieces,) = answer.pieces
    ids, tokens = [piece.id for piece in pieces], [piece.token for piece in pieces]
    return CohereTokens(ids, tokens, {"api_version": {"version": "1"}})


def parse_detokenize(body: CohereDetokenizeBody, _: Headers) -> DetokenizeRequest:
    """The text of tokens."""
    return DetokenizeRequest(model=body.model, arrays=[body.tokens], skip_special=False)


def render_detokenize(_: object, answer: Detokenized) -> CohereText:
    """The text."""
    return CohereText(answer.texts[0], {"api_version": {"version": "1"}})


def render_error(error: VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUSES, error), msgspec.json.encode(CohereError(str(error))))


def is_cohere(keys: Keys, headers: Headers) -> bool:
    """Whether a body for /v1/rerank is Cohere's: by fields that no other has, or by what its SDKs say of themselves."""
    return headers.get("x-fern-sdk-name") == "cohere" or bool({"rank_fields", "max_chunks_per_doc"} & keys.keys())


def _texts(body: CohereEmbedBody) -> list[str]:
    given = [name for name in ("texts", "inputs", "images") if getattr(body, name) is not None]
    if "images" in given or len(given) != 1:
        said = " and ".join(given) or "none"
        raise InvalidRequest(f"one of texts and inputs is needed, given: {said}; images are not read", param="texts")
    if body.texts is not None:
        return body.texts
    return [_content(one, f"inputs[{number}]") for number, one in enumerate(body.inputs or ())]


def _content(value: dict[str, Any], field: str) -> str:
    parts = value.get("content")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise InvalidRequest(f'{field} needs a content: [{{"type": "text", "text": "..."}}]', param="inputs")
    return "\n".join(text_of(part, f"{field}.content") for part in parts)


def _rows(result: Result, kind: str) -> list[msgspec.Raw]:
    return encoded(result.rows, encoding="base64") if kind == "base64" else encoded(result.rows, kind)


def _meta(version: str, unit: str, count: int) -> CohereMeta:
    return CohereMeta({"version": version}, {unit: count})


COHERE = Dialect(
    name="Cohere",
    routes=(
        *(
            Route(
                paths=(f"/v{version}/embed", f"/cohere/v{version}/embed"),
                body=CohereEmbedBody,
                parse=parse_embed,
                render=render_embed(version),
                answer=CohereEmbedAnswer,
                summary="Vectors of texts, in several types",
                names={"input": ("texts", "inputs"), "dimensions": ("output_dimension",)},
            )
            for version in ("1", "2")
        ),
        *(
            Route(
                paths=(f"/cohere/v{version}/rerank", f"/v{version}/rerank"),
                body=CohereRerankBody,
                parse=parse_rerank,
                render=render_rerank(version),
                answer=CohereRerankAnswer,
                summary="Documents by their relevance to a query",
                when=is_cohere if version == "1" else None,
                names={"input": ("documents",), "second_tokens": ("max_tokens_per_doc",)},
            )
            for version in ("1", "2")
        ),
        Route(
            paths=("/v1/tokenize", "/cohere/v1/tokenize"),
            body=CohereTokenizeBody,
            parse=parse_tokenize,
            render=render_tokenize,
            answer=CohereTokens,
            summary="Tokens of a text",
            names={"input": ("text",)},
        ),
        Route(
            paths=("/v1/detokenize", "/cohere/v1/detokenize"),
            body=CohereDetokenizeBody,
            parse=parse_detokenize,
            render=render_detokenize,
            answer=CohereText,
            summary="The text of tokens",
            names={"input": ("tokens",)},
        ),
    ),
    render_error=render_error,
    error=CohereError,
    owns=("/cohere/", "/v2/chat", "/v2/embed", "/v2/rerank"),
)
