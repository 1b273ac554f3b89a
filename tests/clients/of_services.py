"""The libraries that services and servers publish themselves, and the one of Hugging Face for TEI."""

import asyncio
import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import cohere
import numpy as np
import ollama
import openai
import pytest
import requests
import tritonclient.http as triton
import voyageai
from baseten_performance_client import PerformanceClient
from client import Classifier, Client, Ranker
from huggingface_hub import InferenceClient
from huggingface_hub.errors import BadRequestError, HfHubHTTPError
from mistralai.client import Mistral
from mistralai.client.errors import SDKError
from mistralai.client.utils import BackoffStrategy, RetryConfig
from servers import ROOT
from tritonclient.utils import InferenceServerException

KEY = "unused"


def openai_embed(url: str, model: str, texts: list[str]) -> Any:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        return [one.embedding for one in client.embeddings.create(model=model, input=texts).data]


def openai_embed_asynchronously(url: str, model: str, texts: list[str]) -> Any:
    async def embed() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
            return await client.embeddings.create(model=model, input=texts, encoding_format="float")

    return [one.embedding for one in asyncio.run(embed()).data]


class NodeNotFoundError(Exception):
    """OpenAI's library for Node had its NotFoundError."""


class NodeBadRequestError(Exception):
    """OpenAI's library for Node had its BadRequestError."""


BACKOFF = BackoffStrategy(initial_interval=500, max_interval=2000, exponent=1.5, max_elapsed_time=20000)
"""In milliseconds; `retry-after` counts for more."""

NODE = ROOT / ".venv-clients-node/node_modules"
NODE_ERRORS = {"NotFoundError": NodeNotFoundError, "BadRequestError": NodeBadRequestError}


def openai_node_embed(url: str, model: str, texts: list[str]) -> Any:
    if not NODE.is_dir():
        pytest.skip("no node here")
    command = ["node", str(Path(__file__).with_name("embed.cjs")), f"{url}/v1", model]
    variables = os.environ | {"NODE_PATH": str(NODE)}
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True, env=variables)
    told = json.loads(done.stdout)
    if "error" in told:
        raise NODE_ERRORS[told["error"]](told["message"])
    return told["vectors"]


def azure_embed(url: str, model: str, texts: list[str]) -> Any:
    with openai.AzureOpenAI(azure_endpoint=url, api_key=KEY, api_version="2024-02-01") as client:
        return [one.embedding for one in client.embeddings.create(model=model, input=texts).data]


def cohere_embed(url: str, model: str, texts: list[str]) -> Any:
    client = cohere.ClientV2(KEY, base_url=url)
    kinds = {"input_type": "search_document", "embedding_types": ["float"]}
    return client.embed(model=model, texts=texts, **kinds).embeddings.float_


def cohere_v1_embed(url: str, model: str, texts: list[str]) -> Any:
    client = cohere.Client(KEY, base_url=url)
    return client.embed(model=model, texts=texts, input_type="search_document").embeddings


def cohere_rank(url: str, query: str, texts: list[str]) -> Any:
    answer = cohere.ClientV2(KEY, base_url=url).rerank(model="tiny", query=query, documents=texts)
    return [(one.index, one.relevance_score) for one in answer.results]


def cohere_v1_rank(url: str, query: str, texts: list[str]) -> Any:
    answer = cohere.Client(KEY, base_url=url).rerank(model="tiny", query=query, documents=texts)
    return [(one.index, one.relevance_score) for one in answer.results]


def voyage_embed(url: str, model: str, texts: list[str]) -> Any:
    client = voyageai.Client(KEY, base_url=f"{url}/voyage/v1", max_retries=3)
    return client.embed(texts, model=model, input_type="document").embeddings


def voyage_embed_chunks(url: str, model: str, texts: list[str]) -> Any:
    """Each text is the only chunk of its document."""
    client = voyageai.Client(KEY, base_url=f"{url}/v1", max_retries=3)
    documents = client.contextualized_embed([[text] for text in texts], model=model, input_type="document").results
    return [vector for document in documents for vector in document.embeddings]


def voyage_rank(url: str, query: str, texts: list[str]) -> Any:
    answer = voyageai.Client(KEY, base_url=f"{url}/v1", max_retries=1).rerank(query, texts, model="tiny")
    return [(one.index, one.relevance_score) for one in answer.results]


def mistral_embed(url: str, model: str, texts: list[str], retry_config: RetryConfig | None = None) -> Any:
    with Mistral(KEY, server_url=url, retry_config=retry_config) as client:
        return [one.embedding for one in client.embeddings.create(model=model, inputs=texts).data]


def ollama_embed(url: str, model: str, texts: list[str]) -> Any:
    return ollama.Client(url).embed(model, texts).embeddings


def baseten_embed(url: str, model: str, texts: list[str]) -> Any:
    return PerformanceClient(url, KEY).embed(texts, model).numpy()


def baseten_rank(url: str, query: str, texts: list[str]) -> Any:
    return [(one.index, one.score) for one in PerformanceClient(url, KEY).rerank(query, texts).data]


def baseten_classify(url: str, texts: list[str]) -> Any:
    return [{one.label: one.score for one in row} for row in PerformanceClient(url, KEY).classify(texts).data]


def triton_tensor(name: str, texts: list[str], *, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput(name, [len(texts)], "BYTES")
    return tensor.set_data_from_numpy(np.array(texts, object), binary_data=binary)


def triton_embed(url: str, model: str, texts: list[str], *, binary: bool = True) -> Any:
    wanted = None if binary else [triton.InferRequestedOutput("embedding", binary_data=False)]
    with triton.InferenceServerClient(url.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
        assert client.get_model_metadata(model)["name"] == model  # the error of a model that is not served comes here
        assert client.get_model_config(model)["output"][0]["dims"] == [-1, 384]
        assert client.is_model_ready(model)
        return client.infer(model, [triton_tensor("text", texts, binary=binary)], outputs=wanted).as_numpy("embedding")


def triton_rank(url: str, query: str, texts: list[str]) -> Any:
    with triton.InferenceServerClient(url.removeprefix("http://")) as client:
        given = [triton_tensor("query", [query]), triton_tensor("text", texts)]
        scores = client.infer("tiny", given).as_numpy("scores")[:, 0]
    return [(int(place), float(scores[place])) for place in np.argsort(-scores, stable=True)]


def triton_classify(url: str, texts: list[str]) -> Any:
    with triton.InferenceServerClient(url.removeprefix("http://")) as client:
        scores = client.infer("tiny", [triton_tensor("text", texts)]).as_numpy("scores")
    # The protocol has no place for labels: their order is the model's, here that of their names.
    labels = sorted({label for row in hub_classify(url, texts[:1]) for label in row})
    return [dict(zip(labels, map(float, row), strict=True)) for row in scores]


def hub_embed(url: str, _: str, texts: list[str]) -> Any:
    return InferenceClient(url).feature_extraction(texts)


def hub_classify(url: str, texts: list[str]) -> Any:
    client: Any = InferenceClient(url)
    # A text that is no list gets its labels as one flat list, from TEI too, and the library would take the first.
    return [{one.label: one.score for one in client.text_classification([[text]])} for text in texts]


ROWS = [
    Client(name="OpenAI", embed=openai_embed, unknown=openai.NotFoundError, empty=openai.BadRequestError),
    Client(
        name="AsyncOpenAI",
        embed=openai_embed_asynchronously,
        unknown=openai.NotFoundError,
        empty=openai.BadRequestError,
    ),
    Client(name="AzureOpenAI", embed=azure_embed, unknown=openai.NotFoundError, empty=openai.BadRequestError),
    Client(name="OpenAI, Node", embed=openai_node_embed, unknown=NodeNotFoundError, empty=NodeBadRequestError),
    Client(name="cohere.ClientV2", embed=cohere_embed, unknown=cohere.NotFoundError, empty=cohere.BadRequestError),
    Client(name="cohere.Client", embed=cohere_v1_embed, unknown=cohere.NotFoundError, empty=cohere.BadRequestError),
    Client(
        name="voyageai.Client",
        embed=voyage_embed,
        unknown=voyageai.error.APIError,
        empty=voyageai.error.InvalidRequestError,
    ),
    Client(
        name="voyageai.Client, contextualized_embed",
        embed=voyage_embed_chunks,
        unknown=voyageai.error.APIError,
        empty=voyageai.error.InvalidRequestError,
    ),
    Client(name="Mistral", embed=mistral_embed, unknown=SDKError, empty=SDKError, refused=SDKError),
    Client(
        name="Mistral, retry_config",
        embed=partial(mistral_embed, retry_config=RetryConfig("backoff", BACKOFF, retry_connection_errors=True)),
        unknown=SDKError,
        empty=SDKError,
    ),
    Client(
        name="ollama.Client",
        embed=ollama_embed,
        unknown=ollama.ResponseError,
        empty=ollama.ResponseError,
        refused=ollama.ResponseError,
    ),
    Client(
        name="PerformanceClient",
        embed=baseten_embed,
        unknown=requests.exceptions.HTTPError,
        empty=requests.exceptions.HTTPError,
    ),
    Client(
        name="InferenceServerClient",
        embed=triton_embed,
        unknown=InferenceServerException,
        empty=InferenceServerException,
        refused=InferenceServerException,
    ),
    Client(
        name="InferenceServerClient, JSON",
        embed=partial(triton_embed, binary=False),
        unknown=InferenceServerException,
        empty=InferenceServerException,
        refused=InferenceServerException,
    ),
    Client(name="InferenceClient", embed=hub_embed, unknown=None, empty=BadRequestError, refused=HfHubHTTPError),
    Ranker(name="cohere.ClientV2", rank=cohere_rank),
    Ranker(name="cohere.Client", rank=cohere_v1_rank),
    Ranker(name="voyageai.Client", rank=voyage_rank),
    Ranker(name="PerformanceClient", rank=baseten_rank),
    Ranker(name="InferenceServerClient", rank=triton_rank),
    Classifier(name="PerformanceClient", classify=baseten_classify),
    Classifier(name="InferenceServerClient", classify=triton_classify),
    Classifier(name="InferenceClient", classify=hub_classify),
]
