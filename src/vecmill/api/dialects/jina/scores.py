"""/v1/rerank and /v1/classify."""

from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np

from vecmill.api.dialect import Headers, Keys, Route
from vecmill.api.dialects.jina.wire import JinaUsage, usage
from vecmill.api.inputs import pairs, places, texts, texts_of
from vecmill.api.prompts import prompts_for
from vecmill.api.ranking import check_top, labelled, ranked
from vecmill.asks import ByTask
from vecmill.core import Options, Request, Result
from vecmill.errors import EmptyInput, InvalidRequest


class JinaRerankBody(msgspec.Struct, kw_only=True):
    """A request to put documents in order; 0 of `top_n` is all."""

    query: str | dict[str, Any]
    documents: list[str | dict[str, Any]]
    model: str | None = None
    top_n: int | None = None
    return_documents: bool | None = None
    max_doc_length: int | None = None


class JinaRank(msgspec.Struct):
    """A document's place and score, and with `return_documents` its text."""

    index: int
    relevance_score: float
    document: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class JinaRerankAnswer(msgspec.Struct):
    """The documents by their scores, the best first."""

    model: str
    usage: JinaUsage
    results: list[JinaRank]
    object: Literal["list"] = "list"


class JinaClassifyBody(msgspec.Struct, kw_only=True):
    """A request for the labels of texts: of those that are given, or of a classifier's own."""

    input: str | list[str | dict[str, Any]]
    labels: list[str] | None = None
    model: str | None = None
    classifier_id: str | None = None


class JinaLabel(msgspec.Struct):
    """A label and its probability."""

    label: str
    score: float


class JinaClass(msgspec.Struct):
    """The best label of an input, and all of them, the best first."""

    index: int
    prediction: str
    score: float
    predictions: list[JinaLabel]
    object: Literal["classification"] = "classification"


class JinaClassifyAnswer(msgspec.Struct):
    """The labels, in the order of the inputs."""

    usage: JinaUsage
    data: list[JinaClass]


def parse_rerank(body: JinaRerankBody, _: Headers) -> Request:
    """Scores of documents for a query.

    Raises:
        InvalidRequest: A document has no text, or `top_n` is negative.
    """
    check_top(body.top_n, least=0)
    (query,) = texts_of([body.query], "query")
    return Request(
        model=body.model,
        inputs=pairs(query, texts_of(body.documents, "documents")),
        outputs=("scores",),
        ranks=True,
        options=Options(second_tokens=body.max_doc_length),
    )


def render_rerank(body: JinaRerankBody, result: Result) -> JinaRerankAnswer:
    """The documents by their scores; without `return_documents` no document, as some clients read it as a string."""
    given = texts_of(body.documents, "documents") if body.return_documents else []
    rows = [
        JinaRank(place, score, {"text": given[place]} if given else msgspec.UNSET)
        for place, score in ranked(result, body.top_n or None)
    ]
    return JinaRerankAnswer(result.model, usage(result), rows)


def parse_classify(body: JinaClassifyBody, _: Headers) -> ByTask:
    """The texts before the labels, as vectors; or the texts alone for a classifier, which has labels of its own.

    Raises:
        InvalidRequest: A trained classifier is asked for, an input holds no text, or there are no labels.
    """
    if body.classifier_id is not None:
        raise InvalidRequest("classifier_id is not served; send labels", param="classifier_id")
    given = texts(texts_of([body.input] if isinstance(body.input, str) else body.input, "input"))
    if not given:
        raise EmptyInput("input is empty; at least one text is needed", param="input")
    if body.labels is None:
        asked = partial(Request, model=body.model, inputs=given, outputs=("scores",))
        return ByTask(model=body.model, readings={"classify": asked})
    if not body.labels or not all(body.labels):
        raise EmptyInput("labels is empty or holds an empty string; at least one label is needed", param="labels")
    role = Options(role=prompts_for("classification", "task"))
    place = places(("input", body.input), ("labels", body.labels))
    asked = partial(Request, model=body.model, inputs=given + texts(body.labels), options=role, place=place)
    return ByTask(model=body.model, readings={"embed": asked})


def render_classify(body: JinaClassifyBody, result: Result) -> JinaClassifyAnswer:
    """For each text the best label, and all."""
    found = result if body.labels is None else _compared(result, body.labels)
    data = []
    for number in range(len(found.scores)):
        best = labelled(found, number)
        data.append(JinaClass(number, *best[0], [JinaLabel(*one) for one in best]))
    return JinaClassifyAnswer(usage(result), data)


def is_zero_shot(keys: Keys, _: Headers) -> bool:
    """Whether a body for /v1/classify is Jina's: it brings its labels, or names a classifier that was trained."""
    return bool({"labels", "classifier_id"} & keys.keys())


def _compared(result: Result, labels: list[str]) -> Result:
    """The softmax of the cosines of each text and the labels, which stand last."""
    rows = result.rows / np.linalg.norm(result.rows, axis=1, keepdims=True)
    powers = np.exp(rows[: -len(labels)] @ rows[-len(labels) :].T)
    scores = powers / powers.sum(axis=1, keepdims=True)
    return Result(model=result.model, scores=scores, labels=tuple(labels), tokens=result.tokens, timings=result.timings)


ROUTES = (
    Route(
        paths=("/jina/v1/rerank", "/v1/rerank"),
        body=JinaRerankBody,
        parse=parse_rerank,
        render=render_rerank,
        answer=JinaRerankAnswer,
        summary="Documents by their relevance to a query",
        names={"input": ("documents",), "second_tokens": ("max_doc_length",)},
    ),
    Route(
        paths=("/jina/v1/classify", "/v1/classify"),
        body=JinaClassifyBody,
        parse=parse_classify,
        render=render_classify,
        answer=JinaClassifyAnswer,
        summary="The best of the given labels for each text",
        when=is_zero_shot,
    ),
)
