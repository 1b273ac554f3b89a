"""What LangChain, LlamaIndex, LiteLLM, Haystack and Chroma make requests with."""

import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from client import MODEL, Client, Ranker
from servers import PYTHON

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the internet for prices
os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(sys.prefix) / "tiktoken")  # what it downloads: see `write_cl100k`

import cohere
import litellm
import ollama
import openai
from chromadb.utils.embedding_functions import (
    HuggingFaceEmbeddingServer,
    OllamaEmbeddingFunction,
    OpenAIEmbeddingFunction,
)
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPIDocumentEmbedder
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from huggingface_hub import InferenceClient
from huggingface_hub.errors import BadRequestError, HfHubHTTPError
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_community.embeddings import InfinityEmbeddings
from langchain_core.documents import Document as LangChainDocument
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_nvidia_ai_endpoints import NVIDIAEmbeddings, NVIDIARerank
from langchain_ollama import OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TEIRerank
from pydantic import ValidationError

KEY: Any = "unused"

litellm.suppress_debug_info = True  # it prints advice at every error


@cache
def write_cl100k() -> None:
    """Write OpenAI's vocabulary where tiktoken keeps it, from ours: tiktoken takes it by its hash, so ours is exact."""
    name = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # tiktoken's, of the address
    program = """if True:
        import base64, pathlib, sys
        from vecmill.model.cl100k import tokens
        lines = (base64.b64encode(token) + b" %d\\n" % rank for rank, token in enumerate(tokens()))
        pathlib.Path(sys.argv[1]).write_bytes(b"".join(lines))"""
    folder = Path(os.environ["TIKTOKEN_CACHE_DIR"])
    folder.mkdir(exist_ok=True)
    subprocess.run([PYTHON, "-c", program, str(folder / name)], check=True)


def langchain_openai_embed(url: str, model: str, texts: list[str]) -> Any:
    write_cl100k()
    return OpenAIEmbeddings(base_url=f"{url}/v1", api_key=KEY, model=model).embed_documents(texts)


def langchain_openai_strings_embed(url: str, model: str, texts: list[str]) -> Any:
    client = OpenAIEmbeddings(base_url=f"{url}/v1", api_key=KEY, model=model, check_embedding_ctx_length=False)
    return client.embed_documents(texts)


def langchain_cohere_embed(url: str, model: str, texts: list[str]) -> Any:
    client = CohereEmbeddings(cohere_api_key=KEY, base_url=url, model=model, max_retries=1)  # else it repeats any error
    return client.embed_documents(texts)


def langchain_cohere_rank(url: str, query: str, texts: list[str]) -> Any:
    found = CohereRerank(cohere_api_key=KEY, base_url=url, model="tiny").rerank(texts, query, top_n=len(texts))
    return [(one["index"], one["relevance_score"]) for one in found]


def langchain_huggingface_embed(url: str, _: str, texts: list[str]) -> Any:
    client = HuggingFaceEndpointEmbeddings(model=MODEL)
    client.client = InferenceClient(url)  # `model` takes no address
    return client.embed_documents(texts)


def langchain_infinity_embed(url: str, model: str, texts: list[str]) -> Any:
    return InfinityEmbeddings(infinity_api_url=url, model=model).embed_documents(texts)


def langchain_ollama_embed(url: str, model: str, texts: list[str]) -> Any:
    return OllamaEmbeddings(base_url=url, model=model).embed_documents(texts)


def langchain_nvidia_embed(url: str, model: str, texts: list[str]) -> Any:
    return NVIDIAEmbeddings(base_url=f"{url}/v1", api_key=KEY, model=model).embed_documents(texts)


def langchain_nvidia_rank(url: str, query: str, texts: list[str]) -> Any:
    documents = [LangChainDocument(text, metadata={"place": place}) for place, text in enumerate(texts)]
    ranker = NVIDIARerank(base_url=f"{url}/v1", api_key=KEY, model="tiny")
    found = ranker.compress_documents(documents, query)
    return [(one.metadata["place"], one.metadata["relevance_score"]) for one in found]


def llama_index_openai_embed(url: str, model: str, texts: list[str]) -> Any:
    return OpenAILikeEmbedding(model, api_base=f"{url}/v1").get_text_embedding_batch(texts)


def llama_index_tei_embed(url: str, model: str, texts: list[str]) -> Any:
    return TextEmbeddingsInference(model, base_url=url).get_text_embedding_batch(texts)


def llama_index_rank(url: str, query: str, texts: list[str]) -> Any:
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(place))) for place, text in enumerate(texts)]
    found = TEIRerank(base_url=url).postprocess_nodes(nodes, QueryBundle(query))
    return [(int(one.node_id), one.score) for one in found]


def litellm_openai_embed(url: str, model: str, texts: list[str]) -> Any:
    answer = litellm.embedding(f"openai/{model}", texts, api_base=f"{url}/v1", api_key=KEY, encoding_format="float")
    return [one["embedding"] for one in answer.data]


def litellm_infinity_embed(url: str, model: str, texts: list[str]) -> Any:
    answer = litellm.embedding(f"infinity/{model}", texts, api_base=url, dimensions=384)
    return [one["embedding"] for one in answer.data]


def litellm_huggingface_embed(url: str, _: str, texts: list[str]) -> Any:
    """It sends no model, and would ask similarities of one whose name says sentence-transformers."""
    answer = litellm.embedding("huggingface/served", texts, api_base=url, api_key=KEY, input_type="feature-extraction")
    return [one["embedding"] for one in answer.data]


def litellm_embed(provider: str, path: str, url: str, model: str, texts: list[str]) -> Any:
    answer = litellm.embedding(f"{provider}/{model}", texts, api_base=f"{url}{path}", api_key=KEY)
    return [one["embedding"] for one in answer.data]


def litellm_rank(provider: str, path: str, url: str, query: str, texts: list[str]) -> Any:
    answer = litellm.rerank(f"{provider}/tiny", query, texts, api_base=f"{url}{path}", api_key=KEY)
    return [(one["index"], one["relevance_score"]) for one in answer.results]


def haystack_openai_embed(url: str, model: str, texts: list[str]) -> Any:
    client = OpenAIDocumentEmbedder(
        Secret.from_token(KEY), model, api_base_url=f"{url}/v1", progress_bar=False, raise_on_failure=True
    )
    return [one.embedding for one in client.run([Document(content=text) for text in texts])["documents"]]


def haystack_tei_embed(url: str, _: str, texts: list[str]) -> Any:
    client = HuggingFaceAPIDocumentEmbedder(
        "text_embeddings_inference", {"url": url}, normalize=True, progress_bar=False
    )
    return [one.embedding for one in client.run([Document(content=text) for text in texts])["documents"]]


def haystack_rank(url: str, query: str, texts: list[str]) -> Any:
    documents = [Document(id=str(place), content=text) for place, text in enumerate(texts)]
    return [(int(one.id), one.score) for one in HuggingFaceTEIRanker(url=url).run(query, documents)["documents"]]


def chroma_openai_embed(url: str, model: str, texts: list[str]) -> Any:
    return OpenAIEmbeddingFunction(KEY, model, api_base=f"{url}/v1")(texts)


def chroma_tei_embed(url: str, _: str, texts: list[str]) -> Any:
    return HuggingFaceEmbeddingServer(f"{url}/embed")(texts)


def chroma_ollama_embed(url: str, model: str, texts: list[str]) -> Any:
    return OllamaEmbeddingFunction(url, model)(texts)


OPENAI: Any = {"unknown": openai.NotFoundError, "empty": openai.BadRequestError}
LITELLM: Any = {"empty": litellm.BadRequestError, "refused": litellm.RateLimitError}
OLLAMA: Any = dict.fromkeys(("unknown", "empty", "refused"), ollama.ResponseError)
HUB: Any = {"unknown": None, "empty": BadRequestError, "refused": HfHubHTTPError}
PLAIN: Any = dict.fromkeys(("unknown", "empty", "refused"), Exception)

ROWS = [
    Client(name="langchain OpenAIEmbeddings", embed=langchain_openai_embed, **OPENAI),
    Client(name="langchain OpenAIEmbeddings, strings", embed=langchain_openai_strings_embed, **OPENAI),
    Client(
        name="langchain CohereEmbeddings",
        embed=langchain_cohere_embed,
        unknown=cohere.NotFoundError,
        empty=cohere.BadRequestError,
    ),
    Client(name="langchain HuggingFaceEndpointEmbeddings", embed=langchain_huggingface_embed, **HUB),
    Client(name="langchain InfinityEmbeddings", embed=langchain_infinity_embed, **PLAIN),
    Client(name="langchain OllamaEmbeddings", embed=langchain_ollama_embed, **OLLAMA),
    Client(name="langchain NVIDIAEmbeddings", embed=langchain_nvidia_embed, **PLAIN),
    Client(name="llama_index OpenAILikeEmbedding", embed=llama_index_openai_embed, **OPENAI),
    # It takes an error for vectors, and fails when it reads them.
    Client(
        name="llama_index TextEmbeddingsInference",
        embed=llama_index_tei_embed,
        unknown=None,
        empty=ValidationError,
        refused=ValidationError,
    ),
    Client(
        name="litellm openai",
        embed=litellm_openai_embed,
        unknown=litellm.NotFoundError,
        empty=litellm.BadRequestError,
    ),
    Client(
        name="litellm hosted_vllm",
        embed=partial(litellm_embed, "hosted_vllm", "/v1"),
        unknown=litellm.NotFoundError,
        **LITELLM,
    ),
    Client(name="litellm infinity", embed=litellm_infinity_embed, unknown=litellm.BadRequestError, **LITELLM),
    Client(name="litellm huggingface", embed=litellm_huggingface_embed, unknown=None, **LITELLM),
    Client(
        name="litellm cohere",
        embed=partial(litellm_embed, "cohere", "/v1/embed"),
        unknown=litellm.NotFoundError,
        **LITELLM,
    ),
    Client(
        name="litellm jina_ai", embed=partial(litellm_embed, "jina_ai", "/v1"), unknown=litellm.NotFoundError, **LITELLM
    ),
    Client(name="haystack OpenAIDocumentEmbedder", embed=haystack_openai_embed, **OPENAI),
    Client(name="haystack HuggingFaceAPIDocumentEmbedder", embed=haystack_tei_embed, **HUB),
    Client(name="chromadb OpenAIEmbeddingFunction", embed=chroma_openai_embed, **OPENAI),
    # As LlamaIndex's.
    Client(
        name="chromadb HuggingFaceEmbeddingServer",
        embed=chroma_tei_embed,
        unknown=None,
        empty=ValueError,
        refused=ValueError,
    ),
    Client(name="chromadb OllamaEmbeddingFunction", embed=chroma_ollama_embed, **OLLAMA),
    Ranker(name="langchain CohereRerank", rank=langchain_cohere_rank),
    Ranker(name="langchain NVIDIARerank", rank=langchain_nvidia_rank, raw=True),
    Ranker(name="llama_index TextEmbeddingInference", rank=llama_index_rank),
    Ranker(name="litellm infinity", rank=partial(litellm_rank, "infinity", "")),
    Ranker(name="litellm hosted_vllm", rank=partial(litellm_rank, "hosted_vllm", "/vllm")),
    Ranker(name="litellm cohere", rank=partial(litellm_rank, "cohere", "/v2/rerank")),
    Ranker(name="litellm jina_ai", rank=partial(litellm_rank, "jina_ai", "")),
    Ranker(name="litellm huggingface", rank=partial(litellm_rank, "huggingface", "")),
    Ranker(name="haystack HuggingFaceTEIRanker", rank=haystack_rank),
]
