"""POST /v1/embeddings where all is well: what goes in, what comes out."""

import asyncio
import base64
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from edge import EMBEDDINGS

from conftest import Serve, client_of
from vecmill.api import endpoint
from vecmill.api.replies import INLINE_NUMBERS
from vecmill.core import Options, Request
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

NATIVE = {"x-token-vocabulary": "native"}
LONG = "the cat sat on the mat " * 20
MIXED = ["the cat sat on the mat", "hello", "the dog", "hello world", "people walk", "the cat sat on the mat", "day"]


@pytest.fixture
async def faked(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that serves "tiny" on the fake engine."""
    async with client_of([serve(fake)], events) as one:
        yield one


@pytest.mark.parametrize("path", [EMBEDDINGS, "/embed"])
async def test_a_large_body_is_read_beside_the_loop(
    faked: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """What takes long to read is read on a thread, errors too; a small body is read at once."""
    read = []

    def decode(*given: Any) -> Any:
        read.append(threading.current_thread() is threading.main_thread())
        return real(*given)

    real = endpoint.decode  # type: ignore[attr-defined]  # no export of its
    monkeypatch.setattr(endpoint, "decode", decode)
    name = "input" if path == EMBEDDINGS else "inputs"
    for text, right in [("the cat", True), (LONG * 3000, True), (LONG * 3000, False)]:
        reply = await faked.post(path, json={name: text if right else {"no": text}})
        assert reply.is_success == right
        assert name in reply.text or right
    assert read == [True, False, False]


async def vectors(client: httpx.AsyncClient, body: dict[str, Any], headers: dict[str, str] | None = None) -> list[Any]:
    """The embeddings of an answer."""
    reply = await client.post(EMBEDDINGS, json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return [row["embedding"] for row in reply.json()["data"]]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings"])
@pytest.mark.parametrize(
    ("given", "rows", "tokens"),
    [
        ("hello world", 1, 4),
        (["hello world"], 1, 4),
        (["the cat", "dog", "the cat"], 3, 11),
        ([6, 7, 8], 1, 5),
        ([[6, 7, 8]], 1, 5),
        ([[6, 7], [8], [9]], 3, 10),
    ],
)
async def test_every_form_of_input(faked: httpx.AsyncClient, path: str, given: Any, rows: int, tokens: int) -> None:
    """A string, strings, one array of token ids and several give their vectors, numbered, with the tokens counted."""
    reply = await faked.post(path, json={"input": given, "model": "tiny"}, headers=NATIVE)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    answer = reply.json()
    assert [(row["object"], row["index"], len(row["embedding"])) for row in answer.pop("data")] == [
        ("embedding", number, 16) for number in range(rows)
    ]
    assert answer == {"object": "list", "model": "tiny", "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


async def test_http_gives_what_the_process_gives(serve: Serve, events: Events) -> None:
    """The numbers of the answer are those of the in-process call, to the last bit."""
    model = serve()
    rows = model.compute(Request(model=None, inputs=list(MIXED))).rows
    async with client_of([model], events) as client:
        given = np.array(await vectors(client, {"input": MIXED}), dtype=np.float32)
    assert np.array_equal(given, rows)


async def test_order_is_kept(faked: httpx.AsyncClient) -> None:
    """Inputs of many lengths, which run in other orders, come back as they stood."""
    together = await vectors(faked, {"input": MIXED})
    assert together == [(await vectors(faked, {"input": text}))[0] for text in MIXED]


async def test_many_callers_get_their_own(faked: httpx.AsyncClient) -> None:
    """Requests at the same time are not mixed up."""
    bodies = [{"input": ["the cat"] * (number % 3) + [word]} for number, word in enumerate("abcdefghijklmnop" * 4)]
    wanted = [await vectors(faked, body) for body in bodies]
    assert await asyncio.gather(*[vectors(faked, body) for body in bodies]) == wanted


async def test_token_ids_are_the_text(client: httpx.AsyncClient) -> None:
    """Ids of the model's own vocabulary give the vector of the text that they spell."""
    ids = [[5, 6, 8, 9, 5, 10], [2, 11, 12, 3]]
    assert await vectors(client, {"input": ids}, NATIVE) == await vectors(
        client, {"input": ["the cat sat on the mat", "hello world"]}
    )


async def test_the_vocabulary_is_told_for_ids_only(faked: httpx.AsyncClient) -> None:
    """An answer to token ids says how they were read; an answer to text does not."""
    ids = await faked.post(EMBEDDINGS, json={"input": [6, 7, 8]}, headers=NATIVE)
    text = await faked.post(EMBEDDINGS, json={"input": "the cat"})
    assert ids.headers["x-token-vocabulary"] == "native"
    assert "x-token-vocabulary" not in text.headers


async def test_dimensions_keep_the_front_and_scale(client: httpx.AsyncClient) -> None:
    """`dimensions` keeps the leading numbers and makes the length 1 again."""
    (full,) = await vectors(client, {"input": "the cat sat"})
    (short,) = await vectors(client, {"input": "the cat sat", "dimensions": 5})
    assert short == pytest.approx(np.array(full[:5]) / np.linalg.norm(full[:5]), abs=1e-6)
    assert np.linalg.norm(short) == pytest.approx(1, abs=1e-6)


async def test_all_dimensions_change_nothing(client: httpx.AsyncClient) -> None:
    """`dimensions` of the model's own size gives the vector as it is."""
    body = {"input": "the cat sat"}
    assert await vectors(client, body | {"dimensions": 16}) == await vectors(client, body)


@pytest.mark.parametrize("extra", [{}, {"encoding_format": None}, {"encoding_format": "float"}])
async def test_numbers_unless_asked_otherwise(faked: httpx.AsyncClient, extra: dict[str, Any]) -> None:
    """Without `encoding_format`, with null and with "float" a vector is a list of numbers."""
    (row,) = await vectors(faked, {"input": "hello", **extra})
    assert [type(number) for number in row] == [float] * 16


@pytest.mark.parametrize("extra", [{}, {"dimensions": 3}])
async def test_base64_is_little_endian_float32(client: httpx.AsyncClient, extra: dict[str, Any]) -> None:
    """base64 holds the bits of the numbers: 4 bytes each, the lowest first."""
    numbers = await vectors(client, {"input": MIXED, **extra})
    encoded = await vectors(client, {"input": MIXED, "encoding_format": "base64", **extra})
    assert [base64.b64decode(row, validate=True) for row in encoded] == [
        np.array(row, dtype="<f4").tobytes() for row in numbers
    ]


@pytest.mark.parametrize(
    "extra",
    [
        {"user": "someone"},
        {"user": None, "model": None, "encoding_format": None, "dimensions": None, "truncate": None},
        {"prompt_name": None},
        {"model": "tiny"},
        {"truncate": True},
        {"priority": 1, "metadata": {"deep": [1, None, {"er": 1.5}]}, "": 0},
    ],
)
async def test_what_changes_nothing(faked: httpx.AsyncClient, extra: dict[str, Any]) -> None:
    """`user`, unknown fields, nulls and defaults give the answer of the plain request, byte for byte."""
    plain = await faked.post(EMBEDDINGS, json={"input": MIXED})
    with_extra = await faked.post(EMBEDDINGS, json={"input": MIXED, **extra})
    assert with_extra.status_code == 200
    assert with_extra.content == plain.content


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/cloud+json", None, "", " "]
)
async def test_content_types_of_json(faked: httpx.AsyncClient, kind: str | None) -> None:
    """JSON is taken under all its names, and without a name; an empty header says as much as none."""
    headers = {"content-type": kind, "content-encoding": ""} if kind is not None else {}
    reply = await faked.post(EMBEDDINGS, content=b'{"input": "hello"}', headers=headers)
    assert reply.status_code == 200


async def test_the_model_is_chosen_by_name(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """With several models served, `model` says which one works, and the answer names it."""
    other = FakeEngine(fake.spec)
    async with client_of([serve(fake, "org/one"), serve(other, "two")], events) as client:
        reply = await client.post(EMBEDDINGS, json={"input": "hello", "model": "two"})
    assert reply.json()["model"] == "two"
    assert (fake.batches, other.batches) == ([], [[3]])


async def test_long_inputs_are_cut_and_counted(faked: httpx.AsyncClient) -> None:
    """By default a text beyond the model's limit is cut; usage counts what was kept, a header how many were cut."""
    reply = await faked.post(EMBEDDINGS, json={"input": [LONG, "hello", LONG]})
    assert reply.status_code == 200
    assert reply.headers["x-vecmill-truncated"] == "2"
    assert reply.json()["usage"]["total_tokens"] == 40 + 3 + 40


async def test_what_fits_needs_no_cut(faked: httpx.AsyncClient) -> None:
    """`truncate: false` answers what fits."""
    reply = await faked.post(EMBEDDINGS, json={"input": ["the " * 38], "truncate": False})
    assert reply.status_code == 200
    assert reply.headers["x-vecmill-truncated"] == "0"
    assert reply.json()["usage"]["total_tokens"] == 40


async def test_a_prompt_goes_before_each_text(faked: httpx.AsyncClient) -> None:
    """`prompt_name` gives the vectors of the texts with the prompt written before them, and its tokens count."""
    named = await faked.post(EMBEDDINGS, json={"input": ["the cat", "dog"], "prompt_name": "query"})
    written = await faked.post(EMBEDDINGS, json={"input": ["query : the cat", "query : dog"]})
    assert named.content == written.content
    assert named.json()["usage"]["total_tokens"] == 6 + 5


async def test_large_answers_are_no_different(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """An answer too large to be encoded on the event loop has the same rows in the same order."""
    texts = [MIXED[number % 7] for number in range(INLINE_NUMBERS // 16 + 1)]
    model = serve(fake, max_inputs=5000)
    async with client_of([model], events, max_inputs=5000) as client:
        rows = await vectors(client, {"input": texts, "dimensions": 16})
    result = model.compute(Request(model=None, inputs=list(texts), options=Options(dimensions=16)))
    assert np.array_equal(np.array(rows, dtype=np.float32), result.rows)
