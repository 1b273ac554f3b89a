"""Requests whose inputs may fail one by one."""

from typing import Any

import httpx
import numpy as np
import pytest

from checkpoints import VOCABULARY
from conftest import Serve, client_of
from vecmill.core import Options, Request, Result
from vecmill.engine.fake import FakeEngine
from vecmill.errors import EmptyInput, EngineFailed, InputTooLong, InvalidRequest, TooManyInputs
from vecmill.serving.events import Events
from vecmill.serving.served import ServedModel

LONG = "the cat sat on the mat " * 20
POISON = "hello"


async def ask(model: ServedModel, *inputs: Any, **options: Any) -> Result:
    """A lenient request."""
    return await model.submit(Request(model=None, inputs=list(inputs), lenient=True, options=Options(**options)))


@pytest.fixture
def poisoned(fake: FakeEngine) -> FakeEngine:
    """An engine that fails on a word."""
    fake.faults[VOCABULARY[POISON]] = "raise"
    return fake


@pytest.mark.parametrize("cache_mb", [0, 32])
async def test_each_has_its_own(serve: Serve, poisoned: FakeEngine, cache_mb: int) -> None:
    """Empty, long and poisonous inputs have their errors, the others the vectors that they get alone."""
    model = serve(poisoned, result_cache_mb=cache_mb)
    given = await ask(model, "the cat", "", LONG, POISON, "a dog", POISON, "the cat", truncate=False)
    assert {place: type(error) for place, error in given.errors.items()} == {
        1: EmptyInput, 2: InputTooLong, 3: EngineFailed, 5: EngineFailed
    }  # fmt: skip
    cat, dog = [(await ask(model, text)).rows[0] for text in ("the cat", "a dog")]
    assert np.array_equal(given.rows, [cat, dog, cat])
    assert given.tokens == [4, 4, 4]
    assert [str(given.errors[place]).split()[0] for place in (1, 2)] == ["input[1]", "input[2]"]
    assert str(given.errors[3]).startswith("input 3: ")


async def test_all_may_fail(serve: Serve, poisoned: FakeEngine) -> None:
    """A request all of whose inputs fail has errors alone."""
    given = await ask(serve(poisoned), POISON, "")
    assert sorted(given.errors) == [0, 1]
    assert len(given.rows) == len(given.tokens) == 0


@pytest.mark.parametrize("fault", ["nan", "zero", "raise"])
async def test_every_fault_is_its_inputs(serve: Serve, fake: FakeEngine, fault: str) -> None:
    """Numbers that are no vector fail the input that has them; so do chunks, with their input."""
    fake.faults[VOCABULARY[POISON]] = fault
    given = await ask(serve(fake), "the cat", LONG + POISON, LONG, chunked=True)
    assert sorted(given.errors) == [1]
    assert given.rows.shape == (2, 16)


async def test_an_engine_that_is_lost_fails_all(serve: Serve, fake: FakeEngine) -> None:
    """Where no engine is left the request fails as a whole."""
    fake.faults[VOCABULARY[POISON]] = "exit"
    with pytest.raises(EngineFailed):
        await ask(serve(fake), "the cat", POISON)


async def test_what_concerns_all_fails_all(serve: Serve, fake: FakeEngine) -> None:
    """A wrong option and too many inputs are errors of the request."""
    with pytest.raises(InvalidRequest, match="dimensions is 99"):
        await ask(serve(fake), "the cat", "", dimensions=99)
    with pytest.raises(TooManyInputs):
        await ask(serve(fake, max_inputs=1), "the cat", "")


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_over_http(serve: Serve, poisoned: FakeEngine, events: Events, encoding: str) -> None:
    """An error stands in the place of the vector; without the option the request fails."""
    body = {"input": ["the cat", "", "a dog"], "encoding_format": encoding}
    async with client_of([serve(poisoned)], events) as client:
        reply = await client.post("/v1/embeddings", json=body | {"item_errors": True})
        refused: httpx.Response = await client.post("/v1/embeddings", json=body)
    assert (reply.status_code, refused.status_code) == (200, 400)
    assert reply.headers["x-vecmill-failed"] == "1"
    first, second, third = reply.json()["data"]
    assert second == {"object": "error", "index": 1, "embedding": None, "error": refused.json()["error"]}
    assert [(row["object"], row["index"]) for row in (first, third)] == [("embedding", 0), ("embedding", 2)]
    assert first["embedding"]
    assert "error" not in first
