"""The clients that were generated from TEI's and Infinity's OpenAPI documents; both want an httpx before 0.28.

And `tei_client`, whose messages for gRPC were generated from TEI's.
"""

from typing import Any

import infinity_client
import text_embeddings_inference_client as tei
from client import Classifier, Client, Ranker
from grpc._channel import _MultiThreadedRendezvous as FailedCall
from infinity_client.api.default import classify, embeddings, rerank
from infinity_client.errors import UnexpectedStatus
from infinity_client.models import ClassifyInput, HTTPValidationError, OpenAIEmbeddingInputText, RerankInput
from servers import grpc_address
from tei_client import GrpcClient, HttpClient
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


def told(answer: Any) -> Any:
    """What `HttpClient` returns, which looks at no status."""
    if isinstance(answer, dict):
        raise ToldError(answer["error"], answer["error_type"])
    return answer


def http_embed(url: str, _: str, texts: list[str]) -> Any:
    return told(HttpClient(url).embed(texts))


def grpc_embed(url: str, _: str, texts: list[str]) -> Any:
    return [list(row) for row in GrpcClient(grpc_address(url)).embed(texts)]


def rank(client: Any, query: str, texts: list[str]) -> Any:
    return [(one.index, one.score) for one in client.rerank(query, texts).ranks]


def labels(client: Any, texts: list[str]) -> Any:
    return [{one.label: one.score for one in row.scores} for row in client.classify(texts)]


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
    Client(name="tei_client.HttpClient", embed=http_embed, unknown=None, empty=ToldError, refused=ToldError),
    # It asks by streams alone, and these wait where a call would be refused.
    Client(name="tei_client.GrpcClient", embed=grpc_embed, unknown=None, empty=FailedCall),
    Ranker(name="Infinity", rank=infinity_rank),
    Ranker(name="tei_client.HttpClient", rank=lambda url, *asked: rank(HttpClient(url), *asked)),
    Ranker(name="tei_client.GrpcClient", rank=lambda url, *asked: rank(GrpcClient(grpc_address(url)), *asked)),
    Classifier(name="Infinity", classify=infinity_classify),
    Classifier(name="tei_client.HttpClient", classify=lambda url, texts: labels(HttpClient(url), texts)),
    Classifier(name="tei_client.GrpcClient", classify=lambda url, texts: labels(GrpcClient(grpc_address(url)), texts)),
]
