"""A late-interaction model as a reranker: a pair's score from the vectors of its tokens (ColBERT, arXiv 2004.12832)."""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from vecmill.core import Pair, Request, Result, Timings
from vecmill.errors import InvalidRequest
from vecmill.model.late import DOCUMENT, QUERY

Floats = NDArray[np.float32]


def split(request: Request) -> tuple[Request, Request]:
    """The vectors that the scores of a request's pairs need: of its queries, each once, and of its documents.

    Raises:
        InvalidRequest: An input is no pair.
    """
    pairs = [one for one in request.inputs if isinstance(one, Pair)]
    if len(pairs) < len(request.inputs):
        raise InvalidRequest("input holds something else than a query and a document", param="input")
    queries = list(dict.fromkeys(pair.first for pair in pairs))
    ask = replace(request, outputs=("multi",), ranks=False)
    return (
        replace(ask, inputs=[*queries], options=replace(request.options, prompt_name=QUERY), place=lambda _: "query"),
        replace(ask, inputs=[pair.second for pair in pairs], options=replace(request.options, prompt_name=DOCUMENT)),
    )


def join(request: Request, queries: Result, documents: Result) -> Result:
    """The scores: raw, the sum over the query's tokens of the best match of each; else its mean, which is at most 1."""
    pairs = [one for one in request.inputs if isinstance(one, Pair)]
    places = {text: place for place, text in enumerate(dict.fromkeys(pair.first for pair in pairs))}
    scores, tokens = [], []
    for pair, document, read in zip(pairs, documents.multi, documents.tokens, strict=True):
        place = places[pair.first]
        query = queries.multi[place]
        score = maxsim(query, document)
        scores.append(score if request.options.raw_scores else score / len(query))
        tokens.append(queries.tokens[place] + read)
    timings = [queries.timings, documents.timings]
    return replace(
        documents,
        multi=[],
        scores=np.array(scores, dtype=np.float32)[:, None],
        labels=("relevance",),
        tokens=tokens,
        truncated=queries.truncated + documents.truncated,
        timings=Timings(
            tokenize_s=sum(one.tokenize_s for one in timings),
            compute_s=sum(one.compute_s for one in timings),
            total_s=sum(one.total_s for one in timings),
        ),
    )


def maxsim(query: Floats, document: Floats) -> float:
    """The sum over query tokens of the largest product with a document token.

    Args:
        query: [tokens, dims].
        document: [tokens, dims]; one without tokens scores 0.
    """
    return float((query @ document.T).max(axis=1).sum()) if len(document) else 0.0
