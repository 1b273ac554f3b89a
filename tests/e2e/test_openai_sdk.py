"""OpenAI's own clients against a real server: what they send, they get an answer to."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai.types import CreateEmbeddingResponse
from running import Running, running

from conftest import Serve
from vecmill.core import Request
from vecmill.serving.served import ServedModel

TEXTS = ["the cat sat on the mat", "hello", "hello world"]


@pytest.fixture(scope="module")
def server(tiny_folder: Path) -> Iterator[Running]:
    """A server with the tiny model under two names."""
    with running(f"org/tiny={tiny_folder}", f"two={tiny_folder}") as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    """OpenAI's client, given another base_url and nothing else."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as one:
        yield one


@pytest.fixture
def model(serve: Serve) -> ServedModel:
    """The same model in this process."""
    return serve()


def rows(answer: CreateEmbeddingResponse) -> Any:
    """The vectors of an answer, float32 [inputs, dims]."""
    return np.array([one.embedding for one in answer.data], dtype=np.float32)


@pytest.mark.parametrize("given", [TEXTS, TEXTS[0]])
@pytest.mark.parametrize("extra", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_vectors_arrive(client: openai.OpenAI, model: ServedModel, given: Any, extra: dict[str, Any]) -> None:
    """Texts come back as the in-process vectors, by the client's default encoding (base64) and as numbers."""
    answer = client.embeddings.create(model="org/tiny", input=given, **extra)
    wanted = model.compute(Request(model=None, inputs=[given] if isinstance(given, str) else given))
    if extra.get("encoding_format") == "base64":  # then the client hands over what came
        given_on: list[Any] = [one.embedding for one in answer.data]
        assert [len(base64.b64decode(one, validate=True)) for one in given_on] == [64] * len(wanted.rows)
    else:
        assert np.abs(rows(answer) - wanted.rows).max() < 1e-5
    assert [one.index for one in answer.data] == list(range(len(wanted.rows)))
    assert (answer.model, answer.usage.prompt_tokens) == ("org/tiny", sum(wanted.tokens))


async def test_the_asynchronous_client(server: Running, client: openai.OpenAI) -> None:
    """The asynchronous client gets what the synchronous one gets."""
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as other:
        answer = await other.embeddings.create(model="org/tiny", input=TEXTS)
    assert np.array_equal(rows(answer), rows(client.embeddings.create(model="org/tiny", input=TEXTS)))


@pytest.mark.parametrize("extra", [{}, {"encoding_format": "float"}])
def test_dimensions(client: openai.OpenAI, extra: dict[str, Any]) -> None:
    """`dimensions` gives vectors of that size and of length 1."""
    found = rows(client.embeddings.create(model="org/tiny", input=TEXTS, dimensions=5, **extra))
    assert found.shape == (3, 5)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)


def test_token_ids(client: openai.OpenAI) -> None:
    """Arrays of the model's token ids, framed by its special tokens, give the text's vectors."""
    ids = client.embeddings.create(model="org/tiny", input=[[2, 5, 6, 8, 9, 5, 10, 3], [2, 11, 12, 3]])
    texts = client.embeddings.create(model="org/tiny", input=["the cat sat on the mat", "hello world"])
    assert np.array_equal(rows(ids), rows(texts))


def test_extra_fields(client: openai.OpenAI) -> None:
    """`user` is tolerated, and our own fields and headers travel the client's own ways."""
    raw = client.embeddings.with_raw_response.create(
        model="org/tiny", input="the cat " * 50, user="someone", extra_body={"prompt_name": "query"}
    )
    assert raw.headers["x-vecmill-truncated"] == "1"
    assert raw.parse().usage.total_tokens == 40


def test_a_wrong_request(client: openai.OpenAI) -> None:
    """What is wrong with a request is a BadRequestError with the message, the field and the request's id."""
    with pytest.raises(openai.BadRequestError, match=r"input\[1\] is an empty string") as refused:
        client.embeddings.create(model="org/tiny", input=["the cat", ""], extra_headers={"x-request-id": "mine"})
    error = refused.value
    assert (error.param, error.type, error.request_id) == ("input", "invalid_request_error", "mine")


def test_an_unknown_model(client: openai.OpenAI) -> None:
    """An unknown model is a NotFoundError that lists those that are served."""
    with pytest.raises(openai.NotFoundError, match="served: org/tiny, two") as refused:
        client.embeddings.create(model="text-embedding-3-small", input="the cat")
    assert refused.value.code == "model_not_found"


def test_a_text_too_long(client: openai.OpenAI) -> None:
    """Where truncation is refused, a text too long is OpenAI's own error."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="two", input="the cat " * 50, extra_body={"truncate": False})
    assert refused.value.code == "context_length_exceeded"


def test_models(client: openai.OpenAI) -> None:
    """The client lists the models and finds one by its name, slash and all."""
    assert [one.id for one in client.models.list()] == ["org/tiny", "two"]
    found = client.models.retrieve("org/tiny")
    assert (found.id, found.object, found.owned_by) == ("org/tiny", "model", "vecmill")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("three")


def test_azures_client(tiny_folder: Path) -> None:
    """The client for Azure gets what the other one gets, and its key is seen."""
    with running(tiny_folder, VECMILL_API_KEY="secret") as server:
        plain = openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret")
        azure, wrong = (
            openai.AzureOpenAI(azure_endpoint=server.url, api_key=key, api_version="2024-02-01")
            for key in ("secret", "guess")
        )
        with plain, azure, wrong:
            wanted = plain.embeddings.create(model="tiny", input=["hello", "world"])
            assert azure.embeddings.create(model="tiny", input=["hello", "world"]).data == wanted.data
            with pytest.raises(openai.AuthenticationError):
                wrong.embeddings.create(model="tiny", input="hello")
