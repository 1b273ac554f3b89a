"""Late chunking over HTTP, on the real engine: the same vectors in every dialect that has it."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

CHUNKS = ["the cat sat on the mat.", "it was a dog", "hello"]
JINA, OPENAI, VOYAGE = "/jina/v1/embeddings", "/v1/embeddings", "/v1/contextualizedembeddings"


async def data_of(client: httpx.AsyncClient, path: str, **body: Any) -> list[dict[str, Any]]:
    """What stands under `data`."""
    reply = await client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["data"]
    return found


async def test_every_dialect_gives_the_same(client: httpx.AsyncClient) -> None:
    """Jina's, Voyage's and ours are one question, and another one than that for the texts alone."""
    ours = await data_of(client, OPENAI, input=CHUNKS, one_document=True)
    jina = await data_of(client, OPENAI, input=CHUNKS, late_chunking=True)
    voyage = await data_of(client, VOYAGE, inputs=[CHUNKS, CHUNKS[:1]])
    texts = await data_of(client, OPENAI, input=CHUNKS)
    rows = [one["embedding"] for one in ours]
    assert [one["embedding"] for one in jina] == [one["embedding"] for one in voyage[0]["data"]] == rows
    assert np.abs(np.subtract(rows, [one["embedding"] for one in texts])).max() > 1e-2
    assert voyage[1]["data"][0]["embedding"] == pytest.approx(texts[0]["embedding"], abs=1e-6)
    assert [one["token_range"] for one in ours] == [one["token_range"] for one in jina] == [[0, 7], [7, 11], [11, 12]]
    document = " ".join(CHUNKS)
    assert [document[slice(*one["character_range"])] for one in ours] == CHUNKS
    assert not {"token_range", "character_range"} & texts[0].keys()


async def test_all_types(client: httpx.AsyncClient) -> None:
    """Every embedding type is the usual one of the same vectors."""
    floats = [one["embedding"] for one in await data_of(client, JINA, input=CHUNKS, late_chunking=True)]
    encoded = await data_of(client, OPENAI, input=CHUNKS, one_document=True, encoding_format="base64")
    assert [np.frombuffer(base64.b64decode(one["embedding"]), "<f4").tolist() for one in encoded] == [
        np.float32(row).tolist() for row in floats
    ]
    kinds = ["binary", "ubinary", "int8", "base64"]
    several = await data_of(client, JINA, input=CHUNKS, late_chunking=True, embedding_type=kinds)
    assert [one["embedding"]["ubinary"] for one in several] == np.packbits(np.array(floats) >= 0, axis=1).tolist()
    assert [one["embedding"]["base64"] for one in several] == [one["embedding"] for one in encoded]


async def test_length_and_task(client: httpx.AsyncClient) -> None:
    """`normalized` false leaves lengths alone; a task's prompt goes before the document and is counted once."""
    reply = await client.post(JINA, json={"input": CHUNKS, "late_chunking": True, "normalized": False})
    assert max(abs(np.linalg.norm(one["embedding"]) - 1) for one in reply.json()["data"]) > 1e-2
    assert reply.json()["usage"]["total_tokens"] == 14
    body = {"input": CHUNKS, "late_chunking": True, "task": "retrieval.passage"}
    reply = await client.post(JINA, json=body)
    assert reply.json()["usage"]["total_tokens"] == 16
    assert reply.json()["data"][0]["token_range"] == [0, 7]


async def test_long_documents(client: httpx.AsyncClient) -> None:
    """Nothing is cut of a document longer than the model takes, and what goes through it twice is counted twice."""
    reply = await client.post(JINA, json={"input": ["the cat sat"] * 20, "late_chunking": True})
    assert len(reply.json()["data"]) == 20
    assert reply.json()["usage"]["total_tokens"] == 2 * 40
    assert reply.headers["x-vecmill-truncated"] == "0"
    body = {"input": ["the cat sat " * 20, "hello"], "late_chunking": True, "truncate": False}
    reply = await client.post(JINA, json=body)
    assert reply.status_code == 422
    assert reply.json()["detail"].startswith("input[0] has 60 tokens, more than the 38")
