"""Bodies that nobody meant: whatever comes, the answer is a vector for each input or the caller's error."""

import base64
import json
import random
from typing import Any

import httpx
import numpy as np
import pytest
from edge import JSON, error_of
from mutants import mutant

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

ROUNDS = 120
PATH = "/openai/v1/embeddings"
"""No other dialect is found here, whatever keys a body gets."""

VALID: dict[str, Any] = {
    "input": ["the cat sat", "hello world"],
    "model": "tiny",
    "dimensions": 8,
    "encoding_format": "float",
    "user": "u",
    "truncate": True,
    "prompt_name": "query",
}


def rows_wanted(body: bytes) -> int:
    """How many vectors a body asks for; the names of unknown fields may be no UTF-8."""
    given = json.loads(body.decode(errors="replace"))["input"]
    return 1 if isinstance(given, str) or isinstance(given[0], int) else len(given)


def is_vector(row: Any) -> bool:
    """Whether an embedding is a list of numbers, or base64 of some, of length 1."""
    numbers = np.frombuffer(base64.b64decode(row), dtype="<f4") if isinstance(row, str) else np.array(row)
    return bool(abs(np.linalg.norm(numbers) - 1) < 1e-5)


def check(body: bytes, reply: httpx.Response) -> int:
    """An answer has all its vectors, anything else is an error of the caller; the status."""
    if reply.status_code == 200:
        rows = [row["embedding"] for row in reply.json()["data"]]
        assert len(rows) == rows_wanted(body), body
        assert all(map(is_vector, rows)), body
    else:
        assert reply.status_code in {400, 404}, (body, reply.text)
        assert error_of(reply, reply.status_code)["type"] == "invalid_request_error"
    return reply.status_code


@pytest.mark.parametrize("seed", range(8))
async def test_no_body_breaks_the_server(serve: Serve, fake: FakeEngine, events: Events, seed: int) -> None:
    """Hundreds of broken bodies give whole answers or errors of the caller, never a 5xx and never half an answer."""
    rng = random.Random(seed)
    async with client_of([serve(fake)], events) as client:
        statuses = set()
        for body in [mutant(rng, VALID) for _ in range(ROUNDS)]:
            statuses.add(check(body, await client.post(PATH, content=body, headers=JSON)))
    assert {200, 400} <= statuses
