"""The clients that were generated from TEI's and Infinity's OpenAPI documents; both want an httpx before 0.28."""

from typing import Any

import infinity_client
import text_embeddings_inference_client as tei
from client import Classifier, Client, Ranker
from infinity_client.api.default import classify, embeddings, rerank
from infinity_client.errors import UnexpectedStatus
from infinity_client.models import ClassifyInput, HTTPValidationError, OpenAIEmbeddingInputText, RerankInput
from text_embeddings_inference_client.api.text_embeddings_inference import embed
from text_embeddings_inference_client.errors import UnexpectedStatus as UnexpectedTEIStatus
from text_embeddings_inference_client.models import EmbedRequest, ErrorResponse


class ToldError(Exception):
    """An error that the OpenAPI document knows: these libraries return it, parsed."""


def tei_embed(url: str, _: str, texts: list[str]) -> Any:
    client = tei.Client(url, raise_on_unexpected_status=True)
    answer = embed.sync(client=client, json_body=EmbedRequest(texts))
    if isinstance(answer, ErrorResponse):
        raise ToldError(answer.error, answer.error_type)
    return answer


def infinity(url: str) -> Any:
    return infinity_client.Client(url, raise_on_unexpected_status=True)


def infinity_embed(url: str, model: str, texts: list[str]) -> Any:
    answer: Any = embeddings.sync(client=infinity(url), body=OpenAIEmbeddingInputText(texts, model=model))
    if isinstance(answer, HTTPValidationError):
        raise ToldError([one.msg for one in answer.detail])
    return [one.embedding for one in answer.data]


def infinity_rank(url: str, query: str, texts: list[str]) -> Any:
    answer: Any = rerank.sync(client=infinity(url), body=RerankInput(query, texts))
    return [(one.index, one.relevance_score) for one in answer.results]


def infinity_classify(url: str, texts: list[str]) -> Any:
    answer: Any = classify.sync(client=infinity(url), body=ClassifyInput(texts))
    return [{one.label: one.score for one in row} for row in answer.data]


ROWS = [
    Client(name="TEI", embed=tei_embed, unknown=None, empty=UnexpectedTEIStatus, refused=ToldError),
    Client(name="Infinity", embed=infinity_embed, unknown=UnexpectedStatus, empty=ToldError, refused=UnexpectedStatus),
    Ranker(name="Infinity", rank=infinity_rank),
    Classifier(name="Infinity", classify=infinity_classify),
]
