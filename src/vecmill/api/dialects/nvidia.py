"""The API of NVIDIA's retrieval microservices (NIM), as its clients send and read it.

As there, a long text is an error unless `truncate` says which end may be cut off, and a ranking gives logits.
"""

from typing import Any, Literal

import msgspec

from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Keys, Route, entry
from vecmill.api.encode import encoded
from vecmill.api.inputs import pairs, text_of, texts, texts_of
from vecmill.api.prompts import prompts_for
from vecmill.api.ranking import ranked
from vecmill.core import Options, Request, Result
from vecmill.errors import InvalidRequest, VecmillError

Truncate = Literal["NONE", "START", "END"]


class NvidiaEmbeddingsBody(msgspec.Struct, kw_only=True):
    """A request for vectors."""

    input: str | list[str]
    model: str | None = None
    input_type: str | None = None
    truncate: Truncate | None = None
    embedding_type: Literal["float", "int8", "uint8", "binary", "ubinary"] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class NvidiaEmbedding(msgspec.Struct):
    """One vector: numbers, or base64 of numbers of the type that was asked for."""

    index: int
    embedding: Any
    object: Literal["embedding"] = "embedding"


class NvidiaUsage(msgspec.Struct):
    """Tokens that went through the model."""

    prompt_tokens: int
    total_tokens: int


class NvidiaEmbeddingsAnswer(msgspec.Struct):
    """The vectors, in the order of the inputs."""

    data: list[NvidiaEmbedding]
    model: str
    usage: NvidiaUsage
    object: Literal["list"] = "list"


class NvidiaRankingBody(msgspec.Struct, kw_only=True):
    """A request to put passages in order."""

    query: dict[str, Any]
    passages: list[dict[str, Any]]
    model: str | None = None
    truncate: Truncate | None = None


class NvidiaRank(msgspec.Struct):
    """A passage's place, and its score as the network gives it."""

    index: int
    logit: float


class NvidiaRankingAnswer(msgspec.Struct):
    """The passages by their scores, the best first."""

    rankings: list[NvidiaRank]
    usage: NvidiaUsage


class NvidiaError(msgspec.Struct):
    """Every error has this body."""

    detail: str


def parse(body: NvidiaEmbeddingsBody, _: Headers) -> Request:
    """Vectors of texts, as queries or passages."""
    return Request(
        model=body.model,
        inputs=texts(body.input),
        options=Options(
            role=prompts_for(body.input_type, "input_type"),
            truncate=_may_cut(body.truncate),
            truncation_side="left" if body.truncate == "START" else "right",
            dimensions=body.dimensions,
        ),
    )


def render(body: NvidiaEmbeddingsBody, result: Result) -> NvidiaEmbeddingsAnswer:
    """The vectors, each encoded as asked."""
    rows = encoded(result.rows, body.embedding_type, body.encoding_format)
    data = [NvidiaEmbedding(number, row) for number, row in enumerate(rows)]
    return NvidiaEmbeddingsAnswer(data, result.model, _usage(result))


def parse_ranking(body: NvidiaRankingBody, _: Headers) -> Request:
    """Scores of passages for a query.

    Raises:
        InvalidRequest: The query or a passage has no text.
    """
    return Request(
        model=body.model,
        inputs=pairs(text_of(body.query, "query"), texts_of(body.passages, "passages")),
        outputs=("scores",),
        ranks=True,
        options=Options(raw_scores=True, truncate=_may_cut(body.truncate)),
    )


def render_ranking(_: object, result: Result) -> NvidiaRankingAnswer:
    """The passages by their scores, the best first."""
    rows = [NvidiaRank(place, score) for place, score in ranked(result)]
    return NvidiaRankingAnswer(rows, _usage(result))


STATUS = STATUSES | {InvalidRequest: 422}


def render_error(error: VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUS, error), msgspec.json.encode(NvidiaError(str(error))))


def is_nvidia(keys: Keys, _: Headers) -> bool:
    """Whether a body for /v1/embeddings is NVIDIA's: a passage, or beside a purpose an end to cut off or a type."""
    if "input_type" in keys and ("embedding_type" in keys or bytes(keys["input_type"]) == b'"passage"'):
        return True
    return "truncate" in keys and bytes(keys["truncate"]) in {b'"NONE"', b'"START"', b'"END"'}


def _may_cut(truncate: Truncate | None) -> bool:
    return truncate not in {None, "NONE"}


def _usage(result: Result) -> NvidiaUsage:
    total = sum(result.tokens)
    return NvidiaUsage(total, total)


NVIDIA = Dialect(
    name="NVIDIA",
    routes=(
        Route(
            paths=("/nvidia/v1/embeddings", "/v1/embeddings"),
            body=NvidiaEmbeddingsBody,
            parse=parse,
            render=render,
            answer=NvidiaEmbeddingsAnswer,
            summary="Vectors of texts, as queries or passages",
            when=is_nvidia,
        ),
        Route(
            paths=(
                *("/v1/ranking", "/ranking", "/v1/retrieval/nvidia/reranking"),
                *("/nvidia/v1/ranking", "/nvidia/ranking", "/nvidia/v1/retrieval/nvidia/reranking"),
            ),
            body=NvidiaRankingBody,
            parse=parse_ranking,
            render=render_ranking,
            answer=NvidiaRankingAnswer,
            summary="Passages by their relevance to a query",
            names={"input": ("passages",)},
        ),
    ),
    render_error=render_error,
    error=NvidiaError,
    owns=("/nvidia/",),
)
