"""Infinity's API (michaelfeil/infinity 0.0.78), as its clients send and read it.

Where it differs on purpose: usage counts tokens, not characters; empty texts and images are refused; `raw_scores` of a
classification does what it says; null means absent.
"""

import time
import uuid
from typing import Any, Literal

import msgspec

from vecmill import errors
from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Keys, Route, entry
from vecmill.api.encode import encoded
from vecmill.api.inputs import dimensions_of, pairs, texts
from vecmill.api.ranking import check_top, labelled, ranked
from vecmill.core import Options, Request, Result

UNNAMED = "default/not-specified"
"""What Infinity's clients send for a model where they were told none."""

UNNAMED_JSON = msgspec.Raw(msgspec.json.encode(UNNAMED))

LENGTHS = ("dimensions", "output_dimension")
"""What asks for so many leading numbers; what is wrong with it has a status of its own."""


class InfinityUsage(msgspec.Struct):
    """Tokens that went through the model."""

    prompt_tokens: int
    total_tokens: int


class InfinityAnswer(msgspec.Struct, kw_only=True):
    """What every answer has."""

    model: str
    usage: InfinityUsage
    id: str
    created: int


class InfinityEmbeddingsBody(msgspec.Struct, kw_only=True):
    """A request for vectors; 0 of `dimensions` is all. LiteLLM calls it `output_dimension`."""

    input: str | list[str]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    output_dimension: int | None = None
    modality: Literal["text", "image", "audio"] | None = None


class InfinityEmbedding(msgspec.Struct):
    """One vector: numbers, or base64 of little-endian float32."""

    index: int
    embedding: Any
    object: Literal["embedding"] = "embedding"


class InfinityEmbeddingsAnswer(InfinityAnswer, kw_only=True):
    """The vectors, in the order of the inputs."""

    data: list[InfinityEmbedding]
    object: Literal["list"] = "list"


class InfinityRerankBody(msgspec.Struct, kw_only=True):
    """A request to put documents in order."""

    query: str
    documents: list[str]
    model: str | None = None
    return_documents: bool | None = None
    raw_scores: bool | None = None
    top_n: int | None = None


class InfinityRank(msgspec.Struct):
    """A document's score and place, and with `return_documents` the document, else null."""

    relevance_score: float
    index: int
    document: str | None


class InfinityRerankAnswer(InfinityAnswer, kw_only=True):
    """The documents by their scores, the best first."""

    results: list[InfinityRank]
    object: Literal["rerank"] = "rerank"


class InfinityClassifyBody(msgspec.Struct, kw_only=True):
    """A request for the scores of labels."""

    input: list[str]
    model: str | None = None
    raw_scores: bool | None = None


class InfinityLabel(msgspec.Struct):
    """A label and its score."""

    score: float
    label: str


class InfinityClassifyAnswer(InfinityAnswer, kw_only=True):
    """For each input all labels, the best first."""

    data: list[list[InfinityLabel]]
    object: Literal["classify"] = "classify"


class InfinityMistake(msgspec.Struct):
    """What is wrong with a body, and where."""

    type: str
    loc: list[str]
    msg: str


class InfinityError(msgspec.Struct, omit_defaults=True):
    """An error: `detail` where the body is wrong or the route is, `error` elsewhere."""

    detail: str | list[InfinityMistake] | None = None
    error: dict[str, Any] | None = None


def parse_embeddings(body: InfinityEmbeddingsBody, _: Headers) -> Request:
    """Vectors of length 1.

    Raises:
        InvalidRequest: The modality is no text, or two numbers of dimensions are asked for.
    """
    dimensions_of(body.dimensions, body.output_dimension)
    if body.modality not in {None, "text"}:
        raise errors.InvalidRequest(f"modality is {body.modality!r}; only text is read here", param="modality")
    return Request(
        model=_model(body.model),
        inputs=texts(body.input),
        options=Options(normalize=True),
    )


def render_embeddings(body: InfinityEmbeddingsBody, result: Result) -> InfinityEmbeddingsAnswer:
    """The vectors, each encoded as asked; leading numbers are taken as they are, without scaling them again.

    Raises:
        InvalidRequest: There are not so many, or they are all zero.
    """
    dims, wanted = result.rows.shape[1], dimensions_of(body.dimensions, body.output_dimension) or 0
    if not 0 <= wanted <= dims:
        name = LENGTHS[body.dimensions is None]
        raise errors.InvalidRequest(f"{name} is {wanted}; {result.model} allows 1 to {dims}, and 0 for all", param=name)
    kept = result.rows[:, : wanted or dims]
    if not kept.any(axis=1).all():
        raise errors.InvalidRequest(f"the first {wanted} numbers of a vector are all zero", param="dimensions")
    rows = encoded(kept, encoding=body.encoding_format)
    data = [InfinityEmbedding(number, row) for number, row in enumerate(rows)]
    return InfinityEmbeddingsAnswer(data=data, **_common(result))


def parse_rerank(body: InfinityRerankBody, _: Headers) -> Request:
    """Scores of documents for a query.

    Raises:
        InvalidRequest: `top_n` is below 1.
    """
    check_top(body.top_n)
    return Request(
        model=_model(body.model),
        inputs=pairs(body.query, body.documents),
        outputs=("scores",),
        ranks=True,
        options=Options(raw_scores=body.raw_scores is True),
    )


def render_rerank(body: InfinityRerankBody, result: Result) -> InfinityRerankAnswer:
    """The documents by their scores, the best first."""
    rows = [
        InfinityRank(score, place, body.documents[place] if body.return_documents else None)
        for place, score in ranked(result, body.top_n)
    ]
    return InfinityRerankAnswer(results=rows, **_common(result))


def parse_classify(body: InfinityClassifyBody, _: Headers) -> Request:
    """Scores of labels."""
    options = Options(raw_scores=body.raw_scores is True)
    return Request(model=_model(body.model), inputs=texts(body.input), outputs=("scores",), options=options)


def render_classify(_: object, result: Result) -> InfinityClassifyAnswer:
    """All labels of each input, the best first."""
    rows = [
        [InfinityLabel(score, label) for label, score in labelled(result, row)] for row in range(len(result.scores))
    ]
    return InfinityClassifyAnswer(data=rows, **_common(result))


REPLIES = STATUSES | {
    errors.InvalidRequest: 422,
    errors.WrongTask: 400,
    errors.UnknownModel: 400,
}
"""Error to status."""


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    status = entry(REPLIES, error)
    if isinstance(error, errors.InvalidRequest) and error.param in LENGTHS:
        status = 400
    if status == entry(REPLIES, errors.InvalidRequest("")):
        where = ["body", *([error.param] if isinstance(error, errors.InvalidRequest) and error.param else [])]
        body = InfinityError(detail=[InfinityMistake("value_error", where, str(error))])
    elif isinstance(error, errors.UnknownRoute | errors.MethodNotAllowed):
        body = InfinityError(detail=str(error))
    else:
        body = InfinityError(error={"message": str(error), "type": None, "param": None, "code": status})
    return ErrorReply(status, msgspec.json.encode(body))


def _model(name: str | None) -> str | None:
    return None if name == UNNAMED else name


def _common(result: Result) -> dict[str, Any]:
    total = sum(result.tokens)
    return {
        "model": result.model,
        "usage": InfinityUsage(total, total),
        "id": f"infinity-{uuid.uuid4()}",
        "created": int(time.time()),
    }


def is_infinity(keys: Keys, _: Headers) -> bool:
    """Whether a body for /embeddings is Infinity's and not OpenAI's."""
    return "modality" in keys or "output_dimension" in keys or keys.get("model") == UNNAMED_JSON


INFINITY = Dialect(
    name="Infinity",
    routes=(
        Route(
            paths=("/infinity/embeddings", "/infinity/v1/embeddings", "/embeddings", "/v1/embeddings"),
            body=InfinityEmbeddingsBody,
            parse=parse_embeddings,
            render=render_embeddings,
            answer=InfinityEmbeddingsAnswer,
            summary="Vectors of texts",
            when=is_infinity,
            any_model=True,
        ),
        Route(
            paths=("/infinity/rerank", "/rerank"),
            body=InfinityRerankBody,
            parse=parse_rerank,
            render=render_rerank,
            answer=InfinityRerankAnswer,
            summary="Documents by their relevance to a query",
            any_model=True,
            names={"input": ("documents",)},
        ),
        Route(
            paths=("/infinity/classify", "/infinity/v1/classify", "/classify", "/v1/classify"),
            body=InfinityClassifyBody,
            parse=parse_classify,
            render=render_classify,
            answer=InfinityClassifyAnswer,
            summary="Scores of labels",
            any_model=True,
        ),
    ),
    render_error=render_error,
    error=InfinityError,
    owns=("/infinity/",),
)
