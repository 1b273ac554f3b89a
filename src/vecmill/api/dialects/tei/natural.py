"""POST /, /invocations, /vertex and what Vertex AI sends to /predict: what the model is for."""

from functools import partial
from typing import Any, TypeVar

import msgspec

from vecmill.api.dialect import Headers, Keys, Route
from vecmill.api.dialects.tei import scores, vectors
from vecmill.api.dialects.tei.wire import (
    TeiAnyBody,
    TeiEmbedBody,
    TeiPredictBody,
    TeiRerankBody,
    TeiSimilarityBody,
    TeiTokensBody,
    TeiVertexAnswer,
    TeiVertexBody,
    characters_of,
    headers,
)
from vecmill.asks import Ask, ByTask, Several
from vecmill.core import Request, Result
from vecmill.errors import EmptyInput, InvalidRequest

Body = TypeVar("Body", bound=msgspec.Struct)


def parse(body: TeiAnyBody, heads: Headers) -> Ask:
    """A comparison or a ranking where the body is one, else what the model is for."""
    if isinstance(body.inputs, dict):
        return vectors.similarity(_as(body, TeiSimilarityBody), heads)
    if body.texts is not None:
        return scores.rerank(_as(body, TeiRerankBody), heads)
    return ByTask(
        model=body.model,
        readings={
            "embed": partial(_embed, body, heads),
            "sparse": partial(_sparse, body, heads),
            "multi": partial(_all, body, heads),
            "classify": partial(_predict, body, heads),
            "rerank": partial(_predict, body, heads),
        },
    )


def render(body: TeiAnyBody, result: Result) -> object:
    """As the route of that kind."""
    if isinstance(body.inputs, dict):
        return vectors.render_similarity(body, result)
    if body.texts is not None:
        return scores.render_rerank(_as(body, TeiRerankBody), result)
    if len(result.scores):
        return scores.render_predict(_as(body, TeiPredictBody), result)
    if result.sparse:
        return vectors.render_sparse(body, result)
    if result.multi:
        return vectors.render_all(body, result)
    return vectors.render_embed(_as(body, TeiEmbedBody), result)


def parse_vertex(body: TeiVertexBody, heads: Headers) -> Several:
    """Each instance by itself.

    Raises:
        InvalidRequest: One is wrong; it says which.
    """
    parts: list[Ask] = []
    for number, one in enumerate(body.instances):
        try:
            parts.append(parse(one, heads))
        except InvalidRequest as failure:
            failure.part = f"instances[{number}]"
            raise
    return Several(parts, "instances")


def render_vertex(body: TeiVertexBody, results: list[Result]) -> dict[str, list[object]]:
    """The answers in the order of the instances."""
    return {"predictions": [render(one, result) for one, result in zip(body.instances, results, strict=True)]}


def is_vertex(keys: Keys, _: Headers) -> bool:
    """Whether a body for /predict is in Vertex AI's envelope."""
    return "instances" in keys


def _embed(body: TeiAnyBody, heads: Headers) -> Request:
    return vectors.embed(_as(body, TeiEmbedBody), heads)


def _all(body: TeiAnyBody, heads: Headers) -> Request:
    return vectors.embed_all(_as(body, TeiTokensBody), heads)


def _sparse(body: TeiAnyBody, heads: Headers) -> Request:
    return vectors.embed_sparse(_as(body, TeiTokensBody), heads)


def _predict(body: TeiAnyBody, heads: Headers) -> Request:
    if body.query is not None:
        raise EmptyInput("the request has a query but no texts", param="texts")
    return scores.predict(_as(body, TeiPredictBody), heads)


def _as(body: TeiAnyBody, kind: type[Body]) -> Body:
    """The same body as that of another route.

    Raises:
        InvalidRequest: It is none.
    """
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not None}
    try:
        return msgspec.convert(given, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body is wrong: {error}") from error


def _headers(body: TeiAnyBody, result: Result) -> dict[str, str]:
    given: Any = body.inputs if body.texts is None else body.texts
    sentences = list(given.values()) if isinstance(given, dict) else given
    return headers(characters_of(sentences) + len(body.query or "") * len(body.texts or ()), result)


ROUTES = (
    Route(
        paths=("/", "/invocations", "/tei", "/tei/", "/tei/invocations"),
        body=TeiAnyBody,
        parse=parse,
        render=render,
        answer=list[Any],
        summary="What the model is for: vectors, sparse vectors, vectors of tokens or scores",
        headers=_headers,
        names={"input": ("texts", "inputs")},
    ),
    Route(
        paths=("/vertex", "/predict", "/tei/vertex"),
        body=TeiVertexBody,
        parse=parse_vertex,
        render=render_vertex,
        answer=TeiVertexAnswer,
        summary="Several requests in Vertex AI's envelope",
        when=is_vertex,
        names={"input": ("inputs",)},
    ),
)
