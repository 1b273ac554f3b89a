"""Bodies that nobody meant: whatever comes, the answer is a vector for each input or the caller's error."""

import base64
import json
import random
from typing import Any

import httpx
import numpy as np
import pytest
from edge import EMBEDDINGS, JSON, error_of

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

ROUNDS = 120
VALID: dict[str, Any] = {
    "input": ["the cat sat", "hello world"],
    "model": "tiny",
    "dimensions": 8,
    "encoding_format": "float",
    "user": "u",
    "truncate": True,
    "prompt_name": "query",
}
ATOMS = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        5,
        16,
        55,
        56,
        100_257,
        2**31,
        2**63,
        2**64,
        10**30,
        -(2**63),
        0.0,
        1.5,
        -0.0,
        1e308,
    ),
    *(
        "",
        " ",
        "tiny",
        "float",
        "base64",
        "query",
        "the cat",
        "\x00",
        "\ud7ff",
        "\uffff",
        "😀",
        "x" * 3000,
        "\n",
        "null",
    ),
    *("the cat sat on the mat " * 30, "[CLS]", "[PAD]", "##s", "\u200b", "\u0301"),
]


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value; small ones more often."""
    kind = rng.randrange(6 if depth < 3 else 3)
    if kind == 3:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind == 4:
        return [rng.randrange(-2, 60) for _ in range(rng.randrange(50))]
    if kind == 5:
        return {rng.choice(["input", "text", "", "a"]): value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice(ATOMS)


def mutant(rng: random.Random) -> bytes:
    """The valid body with some fields changed, and half of the time with some bytes changed."""
    body = dict(VALID)
    for name in rng.sample([*VALID, "extra"], rng.randrange(1, 4)):
        if rng.random() < 0.3:
            body.pop(name, None)
        else:
            body[name] = value(rng)
    data = bytearray(json.dumps(body, ensure_ascii=rng.random() < 0.5).encode())
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        start = rng.randrange(len(data))
        data[start : start + rng.randrange(4)] = rng.choice(
            [b"", b'"', b"\\", b"\xff", b"\\ud800", b"[", b"]", b"}", b",", b"0", b"e9", b"\x00", data[: start // 2]]
        ) or rng.randbytes(rng.randrange(3))
        data = data or bytearray(b"{")
    return bytes(data)


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
        for body in [mutant(rng) for _ in range(ROUNDS)]:
            statuses.add(check(body, await client.post(EMBEDDINGS, content=body, headers=JSON)))
    assert {200, 400} <= statuses
