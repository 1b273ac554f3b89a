"""What texts are for, however it is said."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from edge import fakes

from conftest import Serve, client_of
from vecmill.api.prompts import PROMPTS, ROLES, prompts_for
from vecmill.engine.fake import fake_row
from vecmill.errors import InvalidRequest
from vecmill.model.spec import ModelSpec
from vecmill.model.tokenizer import Tokenizer
from vecmill.serving.events import Events

SAID = [
    ("/openai/v1/embeddings", {"input": "hello", "input_type": "query"}, "query : "),
    ("/openai/v1/embeddings", {"input": "hello", "input_type": "passage"}, "passage : "),
    ("/v2/embed", {"texts": ["hello"], "input_type": "search_query"}, "query : "),
    ("/v2/embed", {"texts": ["hello"], "input_type": "search_document"}, "passage : "),
    ("/v2/embed", {"texts": ["hello"], "input_type": "clustering"}, ""),
    ("/jina/v1/embeddings", {"input": ["hello"], "task": "retrieval.query"}, "query : "),
    ("/jina/v1/embeddings", {"input": ["hello"], "task": "text-matching"}, ""),
    ("/voyage/v1/embeddings", {"input": "hello", "input_type": "document"}, "passage : "),
    ("/nvidia/v1/embeddings", {"input": "hello", "input_type": "passage"}, "passage : "),
    ("/embed", {"inputs": "hello", "prompt_name": "query"}, "query : "),
]


@pytest.fixture
async def client(serve: Serve, tiny_spec: ModelSpec, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose model has the prompts "query" and "passage"."""
    ((engine, name),) = fakes(tiny_spec, "tiny")
    async with client_of([serve(engine, name)], events) as one:
        yield one


def first_vector(answer: Any) -> Any:
    """The first list of numbers in an answer."""
    if isinstance(answer, list) and isinstance(answer[0], float):
        return answer
    inner = answer.values() if isinstance(answer, dict) else answer
    return next((found for one in inner if isinstance(one, dict | list) and (found := first_vector(one))), None)


@pytest.mark.parametrize(("path", "body", "prompt"), SAID)
async def test_one_table_behind_all_spellings(
    client: httpx.AsyncClient, tiny_spec: ModelSpec, path: str, body: dict[str, Any], prompt: str
) -> None:
    """Each dialect's word for a purpose puts the model's prompt for it before the text, or none where it has none."""
    reply = await client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    (tokens,) = Tokenizer(tiny_spec).encode([f"{prompt}hello"])
    assert np.allclose(first_vector(reply.json()), fake_row(tokens.ids, 16), atol=1e-6)


def test_every_spelling_has_prompts() -> None:
    """Each spelling leads to a role, each role to names of prompts."""
    assert {prompts_for(spelling, "task") for spelling in ROLES} == set(PROMPTS.values())


def test_an_unknown_spelling_is_refused() -> None:
    """A word that no dialect has is refused with those that are known, under the field's own name."""
    with pytest.raises(InvalidRequest, match="taskType is 'quest'; known: query, document") as refused:
        prompts_for("quest", "taskType")
    assert refused.value.param == "taskType"
