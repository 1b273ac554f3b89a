"""Voyage's embeddings and rerank API, as its SDK sends and reads it: base64 follows `output_dtype`."""

from functools import partial
from typing import Any, Literal

import msgspec

from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Keys, Route, entry
from vecmill.api.encode import encoded
from vecmill.api.inputs import dimensions_of, pairs, texts
from vecmill.api.prompts import prompts_for
from vecmill.api.ranking import check_top, ranked
from vecmill.asks import Several
from vecmill.core import Options, Request, Result
from vecmill.errors import EmptyInput, VecmillError

Dtype = Literal["float", "int8", "uint8", "binary", "ubinary"]


class VoyageEmbeddingsBody(msgspec.Struct, kw_only=True):
    """A request for vectors. OpenAI's clients call `output_dimension` `dimensions`."""

    input: str | list[str]
    model: str | None = None
    input_type: str | None = None
    truncation: bool | None = None
    dimensions: int | None = None
    output_dimension: int | None = None
    output_dtype: Dtype | None = None
    encoding_format: Literal["float", "base64"] | None = None


class VoyageEmbedding(msgspec.Struct):
    """One vector: numbers, or base64 of numbers of the type that was asked for."""

    index: int
    embedding: Any
    object: Literal["embedding"] = "embedding"


class VoyageUsage(msgspec.Struct):
    """Tokens that went through the model; OpenAI's name for them is there for clients of both."""

    total_tokens: int
    prompt_tokens: int


class VoyageEmbeddingsAnswer(msgspec.Struct):
    """The vectors, in the order of the inputs."""

    data: list[VoyageEmbedding]
    model: str
    usage: VoyageUsage
    object: Literal["list"] = "list"


class VoyageDocumentsBody(msgspec.Struct, kw_only=True):
    """A request for vectors of chunks, each list of which is one document."""

    inputs: list[list[str]]
    model: str | None = None
    input_type: str | None = None
    output_dimension: int | None = None
    output_dtype: Dtype | None = None
    encoding_format: Literal["float", "base64"] | None = None


class VoyageDocument(msgspec.Struct):
    """The vectors of a document's chunks, in their order."""

    index: int
    data: list[VoyageEmbedding]
    object: Literal["list"] = "list"


class VoyageDocumentsAnswer(msgspec.Struct):
    """The documents, in their order."""

    data: list[VoyageDocument]
    model: str
    usage: VoyageUsage
    object: Literal["list"] = "list"


class VoyageRerankBody(msgspec.Struct, kw_only=True):
    """A request to put documents in order."""

    query: str
    documents: list[str]
    model: str | None = None
    top_k: int | None = None
    truncation: bool | None = None
    return_documents: bool | None = None


class VoyageRank(msgspec.Struct):
    """A document's place and score, and with `return_documents` the document."""

    index: int
    relevance_score: float
    document: str | msgspec.UnsetType = msgspec.UNSET


class VoyageRerankAnswer(msgspec.Struct):
    """The documents by their scores, the best first, under `data`."""

    data: list[VoyageRank]
    model: str
    usage: VoyageUsage
    object: Literal["list"] = "list"


class VoyageError(msgspec.Struct):
    """Every error has this body."""

    detail: str


def parse(body: VoyageEmbeddingsBody, _: Headers) -> Request:
    """Vectors of texts, as queries or documents.

    Raises:
        InvalidRequest: The purpose is unknown, or two numbers of dimensions are asked for.
    """
    return Request(
        model=body.model,
        inputs=texts(body.input),
        options=Options(
            role=prompts_for(body.input_type, "input_type"),
            truncate=body.truncation is not False,
            dimensions=dimensions_of(body.dimensions, body.output_dimension),
        ),
    )


def render(body: VoyageEmbeddingsBody, result: Result) -> VoyageEmbeddingsAnswer:
    """The vectors, each encoded as asked."""
    return VoyageEmbeddingsAnswer(_vectors(body, result), result.model, _usage(result))


def parse_documents(body: VoyageDocumentsBody, _: Headers) -> Several:
    """Vectors of chunks, a question for each document.

    Raises:
        EmptyInput: There is no document, or one has no chunk or an empty one.
    """
    if not body.inputs:
        raise EmptyInput("inputs is an empty list; at least one document is needed", param="inputs")
    for number, chunks in enumerate(body.inputs):
        if not chunks:
            raise EmptyInput(f"inputs[{number}] is an empty list; every document needs a chunk", param="inputs")
        if "" in chunks:
            place = f"inputs[{number}][{chunks.index('')}]"
            raise EmptyInput(f"{place} is an empty string; every chunk needs content", param="inputs")
    options = Options(
        role=prompts_for(body.input_type, "input_type"), dimensions=body.output_dimension, one_document=True
    )
    places = [partial("inputs[{}][{}]".format, number) for number in range(len(body.inputs))]
    return Several(
        [
            Request(model=body.model, inputs=texts(chunks), options=options, place=place)
            for chunks, place in zip(body.inputs, places, strict=True)
        ]
    )


def render_documents(body: VoyageDocumentsBody, results: list[Result]) -> VoyageDocumentsAnswer:
    """The vectors by documents, each encoded as asked."""
    data = [VoyageDocument(number, _vectors(body, result)) for number, result in enumerate(results)]
    total = sum(sum(result.tokens) for result in results)
    return VoyageDocumentsAnswer(data, results[0].model, VoyageUsage(total, total))


def parse_rerank(body: VoyageRerankBody, _: Headers) -> Request:
    """Scores of documents for a query.

    Raises:
        InvalidRequest: `top_k` is below 1.
    """
    check_top(body.top_k, "top_k")
    return Request(
        model=body.model,
        inputs=pairs(body.query, body.documents),
        outputs=("scores",),
        ranks=True,
        options=Options(truncate=body.truncation is not False),
    )


def render_rerank(body: VoyageRerankBody, result: Result) -> VoyageRerankAnswer:
    """The documents by their scores, the best first."""
    rows = [
        VoyageRank(place, score, body.documents[place] if body.return_documents else msgspec.UNSET)
        for place, score in ranked(result, body.top_k)
    ]
    return VoyageRerankAnswer(rows, result.model, _usage(result))


def render_error(error: VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUSES, error), msgspec.json.encode(VoyageError(str(error))))


def _vectors(body: VoyageEmbeddingsBody | VoyageDocumentsBody, result: Result) -> list[VoyageEmbedding]:
    rows = encoded(result.rows, body.output_dtype, body.encoding_format)
    return [VoyageEmbedding(number, row) for number, row in enumerate(rows)]


def _usage(result: Result) -> VoyageUsage:
    total = sum(result.tokens)
    return VoyageUsage(total, total)


def is_embedding(keys: Keys, _: Headers) -> bool:
    """Whether a body for /v1/embeddings is Voyage's: its SDK always says `truncation`."""
    return "truncation" in keys or ("input_type" in keys and bool({"output_dtype", "output_dimension"} & keys.keys()))


def is_rerank(keys: Keys, _: Headers) -> bool:
    """Whether a body for /v1/rerank is Voyage's."""
    return bool({"top_k", "truncation"} & keys.keys())


VOYAGE = Dialect(
    name="Voyage",
    routes=(
        Route(
            paths=("/voyage/v1/embeddings", "/v1/embeddings"),
            body=VoyageEmbeddingsBody,
            parse=parse,
            render=render,
            answer=VoyageEmbeddingsAnswer,
            summary="Vectors of texts, in several types",
            names={"dimensions": ("dimensions", "output_dimension")},
            when=is_embedding,
        ),
        Route(
            paths=("/v1/contextualizedembeddings", "/voyage/v1/contextualizedembeddings"),
            body=VoyageDocumentsBody,
            parse=parse_documents,
            render=render_documents,
            answer=VoyageDocumentsAnswer,
            summary="Vectors of the chunks of documents, each read as a whole",
            names={"input": ("inputs",), "dimensions": ("output_dimension",)},
        ),
        Route(
            paths=("/voyage/v1/rerank", "/v1/rerank"),
            body=VoyageRerankBody,
            parse=parse_rerank,
            render=render_rerank,
            answer=VoyageRerankAnswer,
            summary="Documents by their relevance to a query",
            when=is_rerank,
            names={"input": ("documents",)},
        ),
    ),
    render_error=render_error,
    error=VoyageError,
    owns=("/voyage/",),
)
