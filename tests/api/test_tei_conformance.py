"""What a client of Text Embeddings Inference may rely on, request by request."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from edge import JSON, fakes

from conftest import Serve, client_of
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events

HEADERS = {
    *("x-compute-type", "x-compute-time", "x-compute-characters", "x-compute-tokens"),
    *("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"),
}
LONG = "the cat sat on the mat " * 200
BODY_BYTES = 2_000_000


@pytest.fixture
async def tei(serve: Serve, tiny_spec: ModelSpec, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application with TEI's limits that serves an embedding model of 40 tokens."""
    ((engine, name),) = fakes(tiny_spec, "tiny")
    model = serve(engine, name, max_inputs=32, token_ids="native")
    async with client_of([model], events, max_body_bytes=BODY_BYTES) as one:
        yield one


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "message"),
    [
        ("/embed", {"inputs": []}, 400, "Empty", "inputs is an empty list"),
        ("/embed", {"inputs": ["a", ""]}, 400, "Empty", "inputs[1] is an empty string"),
        ("/embed", {"inputs": "a", "dimensions": 0}, 422, "Validation", "dimensions is 0"),
        ("/embed", {"inputs": "a", "dimensions": 99999}, 422, "Validation", "dimensions is 99999"),
        ("/embed", {"inputs": ["a"] * 33}, 422, "Validation", "batch size 33 > maximum allowed batch size 32"),
        ("/embed", {"inputs": LONG, "truncate": False}, 422, "Validation", "inputs[0] has more than 40 tokens"),
        ("/embed", {"inputs": "a", "prompt_name": "nope"}, 422, "Validation", "prompt_name is 'nope'"),
        ("/embed", {"inputs": "a", "truncation_direction": "LEFT"}, 422, "Validation", "truncation_direction is"),
        ("/rerank", {"query": "a", "texts": ["b"]}, 424, "Backend", "model 'tiny' gives dense and multi, not scores"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "Validation", "inputs holds a list of 3 strings"),
        ("/predict", {"inputs": "a"}, 424, "Backend", "model 'tiny' gives dense and multi, not scores"),
        ("/embed_sparse", {"inputs": "a"}, 424, "Backend", "model 'tiny' gives dense and multi, not sparse"),
        ("/embed", {"inputs": 5}, 422, "Validation", "inputs is 5"),
        ("/embed", {"input": "a"}, 422, "Validation", "the body is wrong"),
        ("/decode", {"ids": []}, 400, "Empty", "ids is an empty list"),
        ("/decode", {"ids": [[5], []]}, 400, "Empty", "ids[1] is an empty list"),
        ("/tokenize", {"inputs": []}, 400, "Empty", "inputs is an empty list"),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": []}},
            400,
            "Empty",
            "inputs.sentences is empty",
        ),
    ],
)
async def test_refusals(
    tei: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, kind: str, message: str
) -> None:
    """What TEI refuses is refused with its status and its type of error."""
    reply = await tei.post(path, json=body)
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()
    assert (list(error), error["error_type"]) == (["error", "error_type"], kind)
    assert error["error"].startswith(message)


async def test_one_text(tei: httpx.AsyncClient) -> None:
    """One text gives a list of one vector of length 1, with the eight headers, whose times are whole numbers."""
    reply = await tei.post("/embed", json={"inputs": "a"})
    assert abs(np.linalg.norm(reply.json()) - 1) < 1e-5
    assert np.shape(reply.json()) == (1, 16)
    assert set(reply.headers) >= HEADERS
    assert [
        reply.headers[name] for name in HEADERS if name.endswith("time") and not reply.headers[name].isdigit()
    ] == []


async def test_two_texts_as_they_are(tei: httpx.AsyncClient) -> None:
    """`normalize: false` gives two rows for two texts."""
    assert np.shape((await tei.post("/embed", json={"inputs": ["a", "b"], "normalize": False})).json()) == (2, 16)


@pytest.mark.parametrize("truncate", [{}, {"truncate": True}, {"truncate": None}])
async def test_long_texts_are_cut(tei: httpx.AsyncClient, truncate: dict[str, Any]) -> None:
    """Without a word on truncation a text is cut to the limit, and the header counts what is left."""
    reply = await tei.post("/embed", json={"inputs": LONG, **truncate})
    assert (reply.status_code, reply.headers["x-compute-tokens"]) == (200, "40")


async def test_the_openai_route(tei: httpx.AsyncClient) -> None:
    """An array of token ids gives base64 under the served name; unlike TEI's, the route wants the model's own name."""
    body = {"input": [[2, 6, 3], [5]], "encoding_format": "base64", "model": "tiny"}
    answer = (await tei.post("/v1/embeddings", json=body)).json()
    assert [type(row["embedding"]) for row in answer["data"]] == [str, str]
    assert answer["model"] == "tiny"
    assert (await tei.post("/v1/embeddings", json=body | {"model": "other"})).status_code == 404


async def test_the_openai_route_says_errors_as_openai_does(tei: httpx.AsyncClient) -> None:
    """An empty list is 400 there too; the body is OpenAI's and not the flat one that TEI sends."""
    reply = await tei.post("/v1/embeddings", json={"input": []})
    assert (reply.status_code, list(reply.json())) == (400, ["error"])


@pytest.mark.parametrize("path", ["/health", "/", "/ping", "/metrics"])
async def test_probes(tei: httpx.AsyncClient, path: str) -> None:
    """What probes ask is 200."""
    assert (await tei.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b"", JSON, 400),
        (b'{"inputs": "a"}', {"content-type": "text/plain"}, 415),
        (b" " * (BODY_BYTES + 1), JSON, 413),
    ],
)
async def test_bodies_that_are_none(
    tei: httpx.AsyncClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    """No JSON, another type and a body too large have TEI's statuses, in the body that its clients parse."""
    reply = await tei.post("/embed", content=content, headers=headers)
    assert (reply.status_code, reply.json()["error_type"]) == (status, "Validation")


@pytest.mark.parametrize(
    ("instance", "message"),
    [
        ({"inputs": ["the cat", ""]}, "instances[1]: inputs[1] is an empty string"),
        ({"inputs": "the cat", "dimensions": 99}, "instances[1]: dimensions is 99"),
        ({"inputs": {"source_sentence": "the cat"}}, "instances[1]: the body is wrong"),
    ],
)
async def test_vertex_says_which_instance(tei: httpx.AsyncClient, instance: dict[str, object], message: str) -> None:
    """An error names the instance that is wrong and the field in it, whether it is found before the model or by it."""
    reply = await tei.post("/vertex", json={"instances": [{"inputs": "the cat"}, instance]})
    assert reply.status_code >= 400
    assert reply.json()["error"].startswith(message)


async def test_vertex(tei: httpx.AsyncClient) -> None:
    """Vertex AI's envelope holds the answer of each instance."""
    assert np.shape((await tei.post("/vertex", json={"instances": [{"inputs": "a"}]})).json()["predictions"]) == (
        1,
        1,
        16,
    )


async def test_places_are_bytes(tei: httpx.AsyncClient) -> None:
    """A letter of two bytes goes from 0 to 2."""
    ((_, letter, _),) = (await tei.post("/tokenize", json={"inputs": "é"})).json()
    assert (letter["text"], letter["start"], letter["stop"]) == ("é", 0, 2)


async def test_what_looks_special_has_its_place(tei: httpx.AsyncClient) -> None:
    """Unknown words, and special tokens that a text spells out, are parts of it: only what is added has no place."""
    (found,) = (await tei.post("/tokenize", json={"inputs": "cat 😀 [SEP] on"})).json()
    assert [list(token.values()) for token in found] == [
        [2, "[CLS]", True, None, None],
        [6, "cat", False, 0, 3],
        [1, "😀", False, 4, 8],
        [3, "[SEP]", False, 9, 14],
        [9, "on", False, 15, 17],
        [3, "[SEP]", True, None, None],
    ]


async def test_limits_that_were_set(serve: Serve, events: Events) -> None:
    """/info says what its flags have set."""
    limits = {"batch_tokens": 4096, "batch_inputs": 8, "max_queue_inputs": 512, "max_inputs": 64}
    async with client_of([serve(**limits)], events) as client:
        info = (await client.get("/info")).json()
    assert (info["max_batch_tokens"], info["max_batch_requests"]) == (4096, 8)
    assert (info["max_concurrent_requests"], info["max_client_batch_size"]) == (512, 64)
