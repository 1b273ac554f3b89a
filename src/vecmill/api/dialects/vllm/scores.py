"""/score, /rerank and /classify. A model that gives vectors scores by their cosine."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.api.dialect import Headers, Route
from vecmill.api.dialects.vllm.wire import NAMES, VllmAnswer, VllmInputs, VllmOptions, asked, common, is_vllm, options
from vecmill.api.inputs import places, texts, texts_of
from vecmill.api.ranking import check_top, ranked, shortest
from vecmill.asks import ByTask
from vecmill.core import Options, Pair, Request, Result
from vecmill.errors import EmptyInput, InvalidRequest

Side = str | list[str | dict[str, Any]]
"""One text or several."""

Field = tuple[str, str | Sequence[object]]
"""What a side is called, and what it holds."""

SIDES = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))
"""What the two sides of a score are called."""


class VllmScoreBody(VllmOptions, kw_only=True):
    """A request for scores of pairs: one against one, one against several, or several against as many."""

    queries: Side | None = None
    documents: Side | None = None
    items: Side | None = None
    text_1: Side | None = None
    text_2: Side | None = None
    data_1: Side | None = None
    data_2: Side | None = None
    instruction: str | None = None


class VllmScore(msgspec.Struct):
    """The score of a pair."""

    index: int
    score: float
    object: Literal["score"] = "score"


class VllmScoreAnswer(VllmAnswer, kw_only=True):
    """The scores, in the order of the pairs."""

    data: list[VllmScore]
    object: Literal["list"] = "list"


class VllmRerankBody(VllmOptions, kw_only=True):
    """A request to put documents in order; 0 of `top_n` is all."""

    query: str
    documents: list[str | dict[str, Any]]
    top_n: int | None = None
    max_tokens_per_doc: int | None = None
    instruction: str | None = None


class VllmRank(msgspec.Struct):
    """A document with its place and score."""

    index: int
    document: dict[str, str]
    relevance_score: float


class VllmRerankAnswer(VllmAnswer, kw_only=True):
    """The documents by their scores, the best first."""

    results: list[VllmRank]


class VllmClassifyBody(VllmInputs, kw_only=True):
    """A request for the probabilities of labels."""


class VllmLabel(msgspec.Struct):
    """The best label of an input, and the probabilities of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class VllmClassifyAnswer(VllmAnswer, kw_only=True):
    """The labels, in the order of the inputs."""

    data: list[VllmLabel]
    object: Literal["list"] = "list"


def parse_score(body: VllmScoreBody, _: Headers) -> ByTask:
    """Scores of pairs.

    Raises:
        InvalidRequest: A side is missing, or the sides do not fit each other.
    """
    firsts, seconds = _sides(body)
    wishes = options(body, raw_scores=body.use_activation is False, instruction=body.instruction)
    first, second = _names(body)
    fields = ((first, getattr(body, first)), (second, getattr(body, second)))
    return _compared(body.model, firsts, seconds, wishes, fields)


def render_score(body: VllmScoreBody, result: Result) -> VllmScoreAnswer:
    """The scores in order."""
    firsts, _ = _sides(body)
    data = [
        VllmScore(number, score) for number, score in enumerate(shortest(_scored(result, len(firsts)).scores[:, 0]))
    ]
    return VllmScoreAnswer(data=data, **common("score", result))


def parse_rerank(body: VllmRerankBody, _: Headers) -> ByTask:
    """Scores of documents for a query.

    Raises:
        InvalidRequest: A document has no text, or `top_n` is negative.
    """
    check_top(body.top_n, least=0)
    documents = texts_of(body.documents, "documents")
    if not documents:
        raise EmptyInput("documents is empty; at least one is needed", param="documents")
    per_document = body.max_tokens_per_doc or None
    wishes = options(
        body,
        raw_scores=body.use_activation is False,
        instruction=body.instruction,
        **({"second_tokens": per_document, "truncate": True} if per_document else {}),
    )
    fields = (("query", body.query), ("documents", documents))
    return _compared(body.model, [body.query], documents, wishes, fields)


def render_rerank(body: VllmRerankBody, result: Result) -> VllmRerankAnswer:
    """The documents by their scores, the best first."""
    given = texts_of(body.documents, "documents")
    rows = [
        VllmRank(place, {"text": given[place]}, score)
        for place, score in ranked(_scored(result, 1), body.top_n or None)
    ]
    return VllmRerankAnswer(results=rows, **common("rerank", result))


def parse_classify(body: VllmClassifyBody, headers: Headers) -> Request:
    """Probabilities of labels.

    Raises:
        InvalidRequest: There is no input.
    """
    return asked(body, ("scores",), headers, raw_scores=body.use_activation is False)


def render_classify(_: object, result: Result) -> VllmClassifyAnswer:
    """The best label of each input."""
    rows = [
        VllmLabel(number, result.labels[int(np.argmax(scores))], shortest(scores), len(scores))
        for number, scores in enumerate(result.scores)
    ]
    return VllmClassifyAnswer(data=rows, **common("classify", result))


def _sides(body: VllmScoreBody) -> tuple[list[str], list[str]]:
    """The texts of both sides, the first as often as the second where it is one."""
    names = _names(body)
    firsts, seconds = (_texts(getattr(body, name), name) for name in names)
    if not firsts or not seconds:
        raise EmptyInput(f"{names[0]} or {names[1]} is empty; each needs a text", param=names[0])
    if len(firsts) not in {1, len(seconds)}:
        message = f"{len(firsts)} of {names[0]} and {len(seconds)} of {names[1]}; one, or as many on both sides"
        raise InvalidRequest(message, param=names[0])
    return firsts, seconds


def _names(body: VllmScoreBody) -> tuple[str, str]:
    """What the body calls its two sides."""
    names = next((pair for pair in SIDES if all(getattr(body, name) is not None for name in pair)), None)
    if names is None:
        allowed = ", ".join(" and ".join(pair) for pair in SIDES)
        raise InvalidRequest(f"two sides are needed: {allowed}", param="queries")
    return names


def _texts(side: Side, field: str) -> list[str]:
    return texts_of([side] if isinstance(side, str) else side, field)


def _compared(
    model: str | None, firsts: list[str], seconds: list[str], wishes: Options, fields: tuple[Field, Field]
) -> ByTask:
    """Pairs for a model that reads them together, else all texts, the first side before the second."""
    ranked = partial(_pairs, model, firsts, seconds, wishes, fields[1])
    asked = partial(Request, model=model, inputs=texts([*firsts, *seconds]), options=wishes, place=places(*fields))
    return ByTask(model=model, readings={"rerank": ranked, "classify": ranked, "multi": ranked, "embed": asked})


def _pairs(model: str | None, firsts: list[str], seconds: list[str], wishes: Options, second: Field) -> Request:
    many = firsts * len(seconds) if len(firsts) == 1 else firsts
    inputs = [Pair(*pair) for pair in zip(many, seconds, strict=True)]
    return Request(
        model=model, inputs=list(inputs), outputs=("scores",), ranks=True, options=wishes, place=places(second)
    )


def _scored(result: Result, firsts: int) -> Result:
    """The result with scores, cosines where it has vectors."""
    if not len(result.rows):
        return result
    rows = result.rows / np.linalg.norm(result.rows, axis=1, keepdims=True)
    scores: NDArray[np.float32] = np.atleast_2d(np.sum(rows[:firsts] * rows[firsts:], axis=1, dtype=np.float32)).T
    return Result(model=result.model, scores=scores, tokens=result.tokens, timings=result.timings)


ROUTES = (
    Route(
        paths=("/score", "/v1/score", "/vllm/score", "/vllm/v1/score"),
        body=VllmScoreBody,
        parse=parse_score,
        render=render_score,
        answer=VllmScoreAnswer,
        summary="Scores of pairs of texts",
        names={
            "input": tuple(second for _, second in SIDES),
            "query": tuple(first for first, _ in SIDES),
            "max_tokens": ("truncate_prompt_tokens",),
        },
    ),
    Route(
        paths=("/vllm/rerank", "/vllm/v1/rerank", "/vllm/v2/rerank", "/rerank", "/v1/rerank", "/v2/rerank"),
        body=VllmRerankBody,
        parse=parse_rerank,
        render=render_rerank,
        answer=VllmRerankAnswer,
        summary="Documents by their relevance to a query",
        when=is_vllm,
        names={
            "input": ("documents",),
            "max_tokens": ("truncate_prompt_tokens",),
            "second_tokens": ("max_tokens_per_doc",),
        },
    ),
    Route(
        paths=("/vllm/classify", "/classify"),
        body=VllmClassifyBody,
        parse=parse_classify,
        render=render_classify,
        answer=VllmClassifyAnswer,
        summary="The best label of each text",
        names=NAMES,
        when=is_vllm,
    ),
)
