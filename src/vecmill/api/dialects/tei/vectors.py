"""/embed, /embed_all, /embed_sparse and /similarity."""

from typing import Any

import msgspec
import numpy as np

from vecmill.api.dialect import Headers, Route
from vecmill.api.dialects.tei.wire import (
    TeiCounted,
    TeiEmbedBody,
    TeiSimilarityBody,
    TeiTokensBody,
    TeiWeight,
    characters_of,
    headers,
    options,
)
from vecmill.api.encode import as_numbers
from vecmill.api.inputs import places, read, texts, token_vocabulary
from vecmill.core import Options, Output, Request, Result
from vecmill.errors import EmptyInput


def embed(body: TeiEmbedBody, heads: Headers) -> Request:
    """Vectors, of length 1 unless the request says otherwise.

    Raises:
        InvalidRequest: Inputs of different kinds are mixed, or a header has no such value.
    """
    return _request(body, "dense", heads, normalize=body.normalize is not False, dimensions=body.dimensions)


def embed_all(body: TeiTokensBody, heads: Headers) -> Request:
    """A vector for each token; raises as `embed`."""
    return _request(body, "multi", heads)


def embed_sparse(body: TeiTokensBody, heads: Headers) -> Request:
    """Weights of vocabulary entries; raises as `embed`."""
    return _request(body, "sparse", heads)


def similarity(body: TeiSimilarityBody, _: Headers) -> Request:
    """The sentence first, then those that it is compared with.

    Raises:
        EmptyInput: There are none.
    """
    if not body.inputs.sentences:
        raise EmptyInput("inputs.sentences is empty; at least one sentence is needed", param="inputs")
    parameters = body.parameters
    wishes = options(parameters, prompt_name=parameters.prompt_name) if parameters else Options()
    sentences = [body.inputs.source_sentence, *body.inputs.sentences]
    place = places(("inputs.source_sentence", sentences[0]), ("inputs.sentences", body.inputs.sentences))
    return Request(model=body.model, inputs=texts(sentences), options=wishes, place=place)


def render_embed(body: TeiEmbedBody, result: Result) -> object:
    """A list of vectors, also for one text; beside their tokens where those are asked for."""
    rows = [as_numbers(row) for row in result.rows]
    if body.return_tokens:
        return {"embeddings": rows, "num_tokens": sum(result.tokens)}
    return rows


def render_all(_: object, result: Result) -> list[msgspec.Raw]:
    """For each text a list of vectors."""
    return [as_numbers(tokens) for tokens in result.multi]


def render_sparse(_: object, result: Result) -> list[list[dict[str, Any]]]:
    """For each text its entries, by index."""
    pairs = [zip(one.indices.tolist(), map(_number, one.values), strict=True) for one in result.sparse]
    return [[{"index": index, "value": value} for index, value in entries] for entries in pairs]


def render_similarity(_: object, result: Result) -> msgspec.Raw:
    """The cosines of the first vector and each of the others."""
    first, others = result.rows[0], result.rows[1:]
    lengths = np.linalg.norm(others, axis=1) * np.linalg.norm(first)
    return as_numbers(np.clip(np.sum(others * first, axis=1) / lengths, -1, 1).astype(np.float32))


def _request(body: TeiTokensBody, output: Output, heads: Headers, **more: Any) -> Request:  # noqa: ANN401 (of Options)
    wishes = options(body, prompt_name=body.prompt_name, token_vocabulary=token_vocabulary(heads), **more)
    return Request(model=body.model, inputs=read(body.inputs, "inputs"), outputs=(output,), options=wishes)


def _number(value: Any) -> msgspec.Raw:  # noqa: ANN401 (a float32 of numpy)
    return msgspec.Raw(str(value).encode())


def _headers(body: TeiTokensBody, result: Result) -> dict[str, str]:
    return headers(characters_of(body.inputs), result)


def _headers_of_sentences(body: TeiSimilarityBody, result: Result) -> dict[str, str]:
    return headers(characters_of([body.inputs.source_sentence, *body.inputs.sentences]), result)


ROUTES = (
    Route(
        paths=("/embed", "/tei/embed"),
        body=TeiEmbedBody,
        parse=embed,
        render=render_embed,
        answer=(list[list[float]], TeiCounted),
        summary="Vectors of texts",
        headers=_headers,
        names={"input": ("inputs",)},
    ),
    Route(
        paths=("/embed_all", "/tei/embed_all"),
        body=TeiTokensBody,
        parse=embed_all,
        render=render_all,
        answer=list[list[list[float]]],
        summary="A vector for each token",
        headers=_headers,
        names={"input": ("inputs",)},
    ),
    Route(
        paths=("/embed_sparse", "/tei/embed_sparse"),
        body=TeiTokensBody,
        parse=embed_sparse,
        render=render_sparse,
        answer=list[list[TeiWeight]],
        summary="Weights of vocabulary entries",
        headers=_headers,
        names={"input": ("inputs",)},
    ),
    Route(
        paths=("/similarity", "/tei/similarity"),
        body=TeiSimilarityBody,
        parse=similarity,
        render=render_similarity,
        answer=list[float],
        summary="Cosines of a sentence and others",
        headers=_headers_of_sentences,
        names={"input": ("inputs",), "prompt_name": ("parameters.prompt_name",)},
    ),
)
