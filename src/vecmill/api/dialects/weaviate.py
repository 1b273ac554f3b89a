"""What Weaviate asks of its inference containers, text2vec-transformers and reranker-transformers.

Its requests name no model: where several are served, the address that Weaviate is given ends with /weaviate/MODEL.
Pooling is the model's own, whatever `pooling_strategy` says.
"""

from typing import Any

import msgspec

from vecmill import errors
from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Keys, Nothing, Route, entry
from vecmill.api.encode import as_numbers
from vecmill.api.inputs import pairs, texts
from vecmill.api.prompts import prompts_for
from vecmill.api.ranking import shortest
from vecmill.asks import InfoRequest, ListRequest, ModelInfo
from vecmill.core import Options, Request, Result


class WeaviateConfig(msgspec.Struct, kw_only=True):
    """What the text is for, and how many numbers are wanted; 0 is all."""

    task_type: str | None = None
    dimensions: int | None = None


class WeaviateVectorBody(msgspec.Struct, kw_only=True):
    """A request for the vector of one text."""

    text: str
    config: WeaviateConfig | None = None


class WeaviateVector(msgspec.Struct):
    """The text and its vector; `dim` as the container says it, `dims` as the database reads it."""

    text: str
    vector: Any
    dim: int
    dims: int


class WeaviateRerankBody(msgspec.Struct, kw_only=True):
    """A request for the scores of documents, or of one text under `property`."""

    query: str
    documents: list[str] | None = None
    property: str | None = None


class WeaviateScore(msgspec.Struct):
    """A document and its score."""

    document: str
    score: float


class WeaviateScores(msgspec.Struct):
    """The scores, in the order of the documents."""

    query: str
    scores: list[WeaviateScore]


class WeaviatePropertyScore(msgspec.Struct):
    """The score of the one text."""

    query: str
    property: str
    score: float


class WeaviateModel(msgspec.Struct):
    """What is told of a model."""

    model_type: str
    task: str
    dim: int
    max_tokens: int


class WeaviateMeta(msgspec.Struct):
    """The served models, by name."""

    models: dict[str, WeaviateModel]


class WeaviateError(msgspec.Struct):
    """Every error has this body."""

    error: str


def parse_vector(body: WeaviateVectorBody, _: Headers) -> Request:
    """One vector, as the model gives it.

    Raises:
        InvalidRequest: The task is unknown.
    """
    config = body.config or WeaviateConfig()
    wishes = Options(
        role=prompts_for(config.task_type or None, "config.task_type"), dimensions=config.dimensions or None
    )
    return Request(model=None, inputs=texts(body.text), options=wishes)


def render_vector(body: WeaviateVectorBody, result: Result) -> WeaviateVector:
    """The text beside its vector."""
    (row,) = result.rows
    return WeaviateVector(body.text, as_numbers(row), len(row), len(row))


def parse_rerank(body: WeaviateRerankBody, _: Headers) -> Request:
    """Scores of documents for a query."""
    return Request(model=None, inputs=pairs(body.query, _documents(body)), outputs=("scores",), ranks=True)


def render_rerank(body: WeaviateRerankBody, result: Result) -> WeaviatePropertyScore | WeaviateScores:
    """The scores in the order of the documents."""
    scores = shortest(result.scores[:, 0])
    if not body.documents:
        return WeaviatePropertyScore(body.query, body.property or "", *scores)
    rows = [WeaviateScore(*row) for row in zip(body.documents, scores, strict=True)]
    return WeaviateScores(body.query, rows)


def parse_meta(_: Nothing, __: Headers) -> ListRequest:
    """The served models."""
    return ListRequest()


def render_meta(_: Nothing, models: list[ModelInfo]) -> WeaviateMeta:
    """What each is."""
    told = {one.model: WeaviateModel(one.family, one.task, one.dims, one.max_tokens) for one in models}
    return WeaviateMeta(told)


def parse_one(_: Nothing, __: Headers) -> InfoRequest:
    """The model of the path."""
    return InfoRequest(model=None)


def render_one(body: Nothing, model: ModelInfo) -> WeaviateMeta:
    """What it is."""
    return render_meta(body, [model])


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUSES, error), msgspec.json.encode(WeaviateError(str(error))))


def is_weaviate(keys: Keys, _: Headers) -> bool:
    """Whether a body for /rerank is Weaviate's, which always names a property and never a model."""
    return "property" in keys and "model" not in keys


def _documents(body: WeaviateRerankBody) -> list[str]:
    documents = body.documents or ([body.property] if body.property else [])
    if not documents:
        raise errors.EmptyInput("documents is empty; at least one is needed", param="documents")
    return documents


WEAVIATE = Dialect(
    name="Weaviate",
    routes=(
        Route(
            paths=("/vectors", "/vectors/", "/weaviate/vectors", "/weaviate/vectors/", "/weaviate/{model}/vectors"),
            body=WeaviateVectorBody,
            parse=parse_vector,
            render=render_vector,
            answer=WeaviateVector,
            summary="The vector of a text",
            names={"input": ("text",), "dimensions": ("config.dimensions",)},
        ),
        Route(
            paths=("/weaviate/rerank", "/rerank", "/weaviate/{model}/rerank"),
            body=WeaviateRerankBody,
            parse=parse_rerank,
            render=render_rerank,
            answer=(WeaviateScores, WeaviatePropertyScore),
            summary="Scores of documents, in their order",
            when=is_weaviate,
            names={"input": ("documents", "property")},
        ),
        Route(
            paths=("/meta", "/weaviate/meta"),
            method="GET",
            body=Nothing,
            parse=parse_meta,
            render=render_meta,
            answer=WeaviateMeta,
            summary="The served models, as the database looks for them when it starts",
        ),
        Route(
            paths=("/weaviate/{model}/meta",),
            method="GET",
            body=Nothing,
            parse=parse_one,
            render=render_one,
            answer=WeaviateMeta,
            summary="The model of the address, where several are served",
        ),
    ),
    render_error=render_error,
    error=WeaviateError,
    owns=("/weaviate/",),
)
