"""/predict and /rerank."""

from typing import Any

import msgspec

from vecmill.api.dialect import Headers, Route
from vecmill.api.dialects.tei.wire import (
    TeiPredictBody,
    TeiPrediction,
    TeiRank,
    TeiRerankBody,
    characters_of,
    headers,
    options,
)
from vecmill.api.inputs import pairs
from vecmill.api.ranking import labelled, ranked
from vecmill.core import Pair, Request, Result
from vecmill.errors import EmptyInput, InvalidRequest


def predict(body: TeiPredictBody, _: Headers) -> Request:
    """Scores of labels.

    Raises:
        InvalidRequest: The lists are of another length than one or two.
    """
    return Request(
        model=body.model,
        inputs=[group[0] if len(group) == 1 else Pair(*group) for group in _groups(body)],
        outputs=("scores",),
        options=options(body, raw_scores=body.raw_scores is True),
    )


def _is_single(body: TeiPredictBody) -> bool:
    """Whether one text or one pair is asked for: the answer has a level less."""
    return isinstance(body.inputs, str) or any(isinstance(one, str) for one in body.inputs)


def _groups(body: TeiPredictBody) -> list[list[str]]:
    """Each text or pair as a list."""
    if isinstance(body.inputs, str):
        return [[body.inputs]]
    strings = [one for one in body.inputs if isinstance(one, str)]
    lists = [one for one in body.inputs if isinstance(one, list)]
    if strings and lists:
        raise InvalidRequest("inputs holds strings beside lists; send only lists of one or two strings", param="inputs")
    groups = [strings] if strings else lists
    wrong = next((group for group in groups if len(group) not in {1, 2}), None)
    if wrong is not None or not groups:
        raise InvalidRequest(
            f"inputs holds a list of {len(wrong or [])} strings; one is a text, two are a pair; several go into lists "
            'of their own: [["a"], ["b", "c"]]',
            param="inputs",
        )
    return groups


def rerank(body: TeiRerankBody, _: Headers) -> Request:
    """Scores of texts for a query.

    Raises:
        EmptyInput: There are no texts.
    """
    if not body.texts:
        raise EmptyInput("texts is empty; at least one text is needed", param="texts")
    return Request(
        model=body.model,
        inputs=pairs(body.query, body.texts),
        outputs=("scores",),
        ranks=True,
        options=options(body, raw_scores=body.raw_scores is True),
    )


def render_predict(body: TeiPredictBody, result: Result) -> list[Any]:
    """All labels with their scores, the best first, for each input."""
    rows = [
        [TeiPrediction(score, label) for label, score in labelled(result, row)] for row in range(len(result.scores))
    ]
    return rows[0] if _is_single(body) else rows


def render_rerank(body: TeiRerankBody, result: Result) -> list[TeiRank]:
    """The texts by their scores, the best first."""
    return [
        TeiRank(index=place, text=body.texts[place] if body.return_text else msgspec.UNSET, score=score)
        for place, score in ranked(result)
    ]


def _headers(body: TeiPredictBody, result: Result) -> dict[str, str]:
    return headers(characters_of(body.inputs), result)


def _headers_of_ranks(body: TeiRerankBody, result: Result) -> dict[str, str]:
    return headers(len(body.query) * len(body.texts) + characters_of(body.texts), result)


ROUTES = (
    Route(
        paths=("/tei/predict", "/predict"),
        body=TeiPredictBody,
        parse=predict,
        render=render_predict,
        answer=(list[TeiPrediction], list[list[TeiPrediction]]),
        summary="Scores of labels",
        headers=_headers,
        names={"input": ("inputs",)},
    ),
    Route(
        paths=("/tei/rerank", "/rerank"),
        body=TeiRerankBody,
        parse=rerank,
        render=render_rerank,
        answer=list[TeiRank],
        summary="Texts by their relevance to a query",
        when=lambda keys, _: "texts" in keys,
        headers=_headers_of_ranks,
        names={"input": ("texts",)},
    ),
)
