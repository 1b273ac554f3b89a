"""What OpenAI's clients add to a body is answered in whichever dialect its other keys make of it."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

OF_DIALECTS: dict[str, dict[str, Any]] = {
    "OpenAI": {},
    "Jina": {"task": "text-matching"},
    "NVIDIA": {"truncate": "END"},
    "vLLM": {"truncate_prompt_tokens": 30},
    "Voyage": {"truncation": True},
    "Mistral": {"output_dtype": "float"},
    "Infinity": {"modality": "text"},
}
"""A field by which a body on a shared path is known to be of a dialect."""

TEXT = "the cat sat"
KINDS = {"int8": "i1", "uint8": "u1", "binary": "i1", "ubinary": "u1"}


async def vector(client: httpx.AsyncClient, path: str = "/v1/embeddings", **body: Any) -> Any:
    """The vector of a text as it came."""
    reply = await client.post(path, json={"model": "tiny", "input": TEXT, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()["data"][0]["embedding"]


def unpacked(row: str, dtype: str = "<f4") -> list[float]:
    """The numbers in base64."""
    numbers: list[float] = np.frombuffer(base64.b64decode(row, validate=True), dtype=dtype).tolist()
    return numbers


@pytest.mark.parametrize("name", OF_DIALECTS)
async def test_the_encoding_is_the_one_asked_for(client: httpx.AsyncClient, name: str) -> None:
    """base64 holds the float32 that a list has, and `float` is a list: a client decodes what it asked for."""
    numbers = await vector(client)
    assert await vector(client, **OF_DIALECTS[name], encoding_format="float") == numbers
    packed = await vector(client, **OF_DIALECTS[name], encoding_format="base64")
    assert unpacked(packed) == pytest.approx(numbers, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
async def test_jinas_types_in_base64(client: httpx.AsyncClient, kind: str) -> None:
    """A type of numbers that is asked for in base64 holds the numbers that it has as a list."""
    numbers = await vector(client, embedding_type=kind)
    assert unpacked(await vector(client, embedding_type=kind, encoding_format="base64"), KINDS[kind]) == numbers


async def test_several_of_jinas_types_in_base64(client: httpx.AsyncClient) -> None:
    """Each of several types is encoded under its name."""
    rows = await vector(client, embedding_type=["float", "int8"], encoding_format="base64")
    assert unpacked(rows["float"]) == pytest.approx(await vector(client), abs=1e-7)
    assert unpacked(rows["int8"], "i1") == await vector(client, embedding_type="int8")


async def test_jinas_token_vectors_in_base64(client: httpx.AsyncClient) -> None:
    """So are the vectors of tokens."""
    body = {"model": "tiny", "input": TEXT, "return_multivector": True}
    lists = (await client.post("/v1/embeddings", json=body)).json()["data"][0]["embeddings"]
    reply = await client.post("/v1/embeddings", json={**body, "encoding_format": "base64"})
    packed = np.array(unpacked(reply.json()["data"][0]["embeddings"]))
    assert packed.reshape(np.shape(lists)) == pytest.approx(np.array(lists), abs=1e-7)


@pytest.mark.parametrize("name", OF_DIALECTS)
async def test_the_length_is_the_one_asked_for(client: httpx.AsyncClient, name: str) -> None:
    """`dimensions` counts in every dialect; Infinity's does not scale what is left."""
    row = await vector(client, **OF_DIALECTS[name], dimensions=3)
    numbers = (await vector(client))[:3] if name == "Infinity" else await vector(client, dimensions=3)
    assert row == pytest.approx(numbers, abs=1e-7)


@pytest.mark.parametrize("path", ["/mistral/v1/embeddings", "/voyage/v1/embeddings", "/infinity/embeddings"])
async def test_two_lengths(client: httpx.AsyncClient, path: str) -> None:
    """The dialect's own name beside it may say the same; where it says another the request is refused."""
    assert await vector(client, path, dimensions=3, output_dimension=3) == await vector(client, path, dimensions=3)
    assert len(await vector(client, path, output_dimension=3)) == 3
    reply = await client.post(path, json={"input": TEXT, "dimensions": 3, "output_dimension": 4})
    assert reply.status_code in {400, 422}
    assert "output_dimension is 4 and dimensions is 3; send one of them" in reply.text
