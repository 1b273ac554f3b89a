"""The Open Inference Protocol's binary tensors: what comes and goes after the JSON, and what is no such body."""

import json
import random
from typing import Any

import httpx
import numpy as np
import pytest
from edge import FRAME, fakes, framed

from conftest import Serve, client_of
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events

INFER = "/v2/models/tiny/infer"
TEXTS = ["hello", "the cat"]


def tensor(size: object = 20, name: str = "text", shape: object = (2,), **more: object) -> dict[str, Any]:
    """A tensor whose data follow the JSON."""
    return {"name": name, "shape": shape, "datatype": "BYTES", "parameters": {"binary_data_size": size}, **more}


async def plain(client: httpx.AsyncClient) -> list[float]:
    """The numbers of `TEXTS` as JSON."""
    one = {"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}
    reply = await client.post(INFER, json={"inputs": [one]})
    assert reply.status_code == 200, reply.text
    numbers: list[float] = reply.json()["outputs"][0]["data"]
    return numbers


def numbers_of(reply: httpx.Response) -> Any:
    """The tensor of a reply, in whichever form it came."""
    assert reply.status_code == 200, reply.text
    if FRAME not in reply.headers:
        assert reply.headers["content-type"] == "application/json"
        return reply.json()["outputs"][0]["data"]
    size = int(reply.headers[FRAME])
    (told,) = json.loads(reply.content[:size])["outputs"]
    assert reply.headers["content-type"] == "application/octet-stream"
    assert told["parameters"] == {"binary_data_size": len(reply.content) - size}
    assert "data" not in told
    return np.frombuffer(reply.content[size:], "<f4").reshape(told["shape"]).reshape(-1).tolist()


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize(
    ("own", "all_of_them", "binary_out"),
    [
        (None, None, False),
        (None, True, True),
        (None, False, False),
        (True, None, True),
        (True, False, True),
        (False, True, False),
    ],
)
async def test_each_direction_as_it_says(
    client: httpx.AsyncClient, binary_in: bool, own: bool | None, all_of_them: bool | None, binary_out: bool
) -> None:
    """Each side is binary where it says so, a tensor's own word counting for more, and the numbers are the same."""
    wishes = {
        "outputs": [{"name": "embedding", "parameters": {"binary_data": own}}],
        "parameters": {"binary_data_output": all_of_them},
    }
    if binary_in:
        content, headers = framed({"inputs": [tensor()], **wishes}, TEXTS)
        reply = await client.post(INFER, content=content, headers=headers)
    else:
        given = {"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}
        reply = await client.post(INFER, json={"inputs": [given], **wishes})
    assert (FRAME in reply.headers) is binary_out
    assert numbers_of(reply) == pytest.approx(await plain(client), abs=1e-7)


@pytest.mark.parametrize("first", ["query", "text"])
async def test_tensors_follow_in_their_order(serve: Serve, tiny_spec: ModelSpec, events: Events, first: str) -> None:
    """The bytes of several tensors stand in the order in which the JSON names them."""
    both = {"query": (["hello"], tensor(9, "query", [1])), "text": (["the cat", "cat"], tensor(18, "text", [2]))}
    order = sorted(both, key=lambda name: name != first)
    (judge,) = fakes(tiny_spec, "judge")
    content, headers = framed({"inputs": [both[name][1] for name in order]}, [t for n in order for t in both[n][0]])
    inputs = [{"name": n, "shape": [len(t)], "datatype": "BYTES", "data": t} for n, (t, _) in both.items()]
    async with client_of([serve(*judge)], events) as client:
        given = await client.post("/v2/models/judge/infer", content=content, headers=headers)
        wanted = await client.post("/v2/models/judge/infer", json={"inputs": inputs})
    assert numbers_of(given) == numbers_of(wanted)


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/json", None])
async def test_the_content_type_is_no_matter(client: httpx.AsyncClient, kind: str | None) -> None:
    """Clients declare such bodies as bytes, as JSON, or not at all."""
    content, headers = framed({"inputs": [tensor()]}, TEXTS)
    del headers["content-type"]
    reply = await client.post(INFER, content=content, headers=headers | ({"content-type": kind} if kind else {}))
    assert numbers_of(reply) == pytest.approx(await plain(client), abs=1e-7)


async def test_a_body_that_is_one_text(client: httpx.AsyncClient) -> None:
    """Where the header is 0 the body is a text, and its vector comes in binary."""
    reply = await client.post(INFER, content=b"hello", headers={FRAME: "0", "content-type": "application/octet-stream"})
    assert reply.headers["content-type"] == "application/octet-stream"
    assert numbers_of(reply) == pytest.approx((await plain(client))[:16], abs=1e-7)


async def test_all_of_it_is_json_without_the_header(client: httpx.AsyncClient) -> None:
    """Bytes by their own account are read as JSON where no header says how much of them is."""
    given = {"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}
    octets = {"content-type": "application/octet-stream"}
    reply = await client.post(INFER, content=json.dumps({"inputs": [given]}), headers=octets)
    assert numbers_of(reply) == pytest.approx(await plain(client), abs=1e-7)


BROKEN: dict[str, tuple[Any, Any, dict[str, str], str]] = {
    "no number": ({"inputs": [tensor()]}, TEXTS, {"length": "many"}, "is 'many'; a number of bytes"),
    "negative": ({"inputs": [tensor()]}, TEXTS, {"length": "-1"}, "is '-1'"),
    "a fraction": ({"inputs": [tensor()]}, TEXTS, {"length": "1.5"}, "is '1.5'"),
    "another script's digit": ({"inputs": [tensor()]}, TEXTS, {"length": "²"}, "a number of bytes"),
    "nothing": ({"inputs": [tensor()]}, TEXTS, {"length": ""}, "is ''"),
    "beyond the body": ({"inputs": [tensor()]}, TEXTS, {"length": "5000"}, "the length of the body"),
    "very large": ({"inputs": [tensor()]}, TEXTS, {"length": "9" * 5000}, "the length of the body"),
    "within the JSON": ({"inputs": [tensor()]}, TEXTS, {"length": "10"}, "not valid JSON"),
    "beyond the JSON": ({"inputs": [tensor(20)]}, TEXTS, {"length": "115"}, "JSON"),
    "too few said": ({"inputs": [tensor(12)]}, TEXTS, {}, "12 bytes by binary_data_size; 20 bytes follow"),
    "too many said": ({"inputs": [tensor(21)]}, TEXTS, {}, "21 bytes by binary_data_size; 20 bytes follow"),
    "nothing said": ({"inputs": [{**tensor(), "data": TEXTS, "parameters": None}]}, TEXTS, {}, "0 bytes by"),
    "a negative size": ({"inputs": [tensor(-1)]}, TEXTS, {}, "inputs[0].parameters.binary_data_size is -1"),
    "a size that is none": ({"inputs": [tensor("20")]}, TEXTS, {}, 'binary_data_size is "20"'),
    "sizes that cancel": ({"inputs": [tensor(-5, "query"), tensor(25)]}, TEXTS, {}, "binary_data_size is -5"),
    "both": ({"inputs": [tensor(data=TEXTS)]}, TEXTS, {}, "both data and binary_data_size"),
    "neither": ({"inputs": [{**tensor(), "parameters": {}}]}, [], {}, "'text' without data"),
    "no text": ({"inputs": [tensor(0, shape=[0])]}, [], {}, "no text in 'text'"),
    "no UTF-8": ({"inputs": [tensor(10, shape=[1])]}, [b"\xff" * 6], {}, "'text'[0], which is not UTF-8"),
    "half a surrogate": ({"inputs": [tensor(7, shape=[1])]}, [b"\xed\xa0\x80"], {}, "not UTF-8"),
    "another shape": ({"inputs": [tensor(shape=[3])]}, TEXTS, {}, "2 texts in 'text' of shape [3]"),
    "a negative shape": ({"inputs": [tensor(shape=[-2])]}, TEXTS, {}, "2 texts in 'text' of shape [-2]"),
    "two columns": ({"inputs": [tensor(shape=[1, 2])]}, TEXTS, {}, "of shape [1, 2]"),
    "twice": ({"inputs": [tensor(9, shape=[1]), tensor(11, shape=[1])]}, TEXTS, {}, "two tensors of one name"),
    "across tensors": ({"inputs": [tensor(10, "query", [1]), tensor(10, shape=[1])]}, TEXTS, {}, "1 bytes too many"),
    "an empty text": ({"inputs": [tensor(13)]}, ["hello", ""], {}, "empty"),
    "shared memory": ({"inputs": [tensor() | {"parameters": {"shared_memory_region": "a"}}]}, [], {}, "shared memory"),
}
"""Name to the JSON, what follows it, other headers, and what the error says."""


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_no_such_body(client: httpx.AsyncClient, name: str) -> None:
    """Lengths that do not fit and bytes that are no texts are the caller's error, which says what is wrong."""
    head, texts, lies, said = BROKEN[name]
    content, headers = framed(head, texts, **lies)
    raw = [(key.encode(), value.encode("latin-1")) for key, value in headers.items()]
    reply = await client.post(INFER, content=content, headers=raw)
    assert reply.status_code == 400, reply.text
    assert list(reply.json()) == ["error"]
    assert said in reply.json()["error"]


@pytest.mark.parametrize(("cut", "said"), [(1, "of 7 bytes, of which 6 are there"), (8, "3 bytes too many after 1")])
async def test_a_text_that_is_cut(client: httpx.AsyncClient, cut: int, said: str) -> None:
    """A text that is not all there, or whose length is not, is refused although the sizes add up."""
    content, headers = framed({"inputs": [tensor(20 - cut)]}, TEXTS)
    size = int(headers[FRAME])
    reply = await client.post(INFER, content=content[: size + 20 - cut], headers=headers)
    assert reply.status_code == 400, reply.text
    assert said in reply.json()["error"]


async def test_a_size_without_the_header(client: httpx.AsyncClient) -> None:
    """A tensor cannot stand after the JSON where nobody says that it ends."""
    reply = await client.post(INFER, json={"inputs": [tensor()]})
    assert reply.status_code == 400
    assert FRAME in reply.json()["error"]


async def test_other_routes_take_json_alone(client: httpx.AsyncClient) -> None:
    """Bytes are for this protocol."""
    octets = {"content-type": "application/octet-stream"}
    assert (await client.post("/v1/embeddings", content=b'{"input": "hello"}', headers=octets)).status_code == 415


async def test_compressed_bodies_are_refused(client: httpx.AsyncClient) -> None:
    """As everywhere, and in the protocol's words."""
    content, headers = framed({"inputs": [tensor()]}, TEXTS)
    reply = await client.post(INFER, content=content, headers=headers | {"content-encoding": "gzip"})
    assert reply.status_code == 415
    assert "content-encoding is 'gzip'" in reply.json()["error"]


async def test_no_body_breaks_it(client: httpx.AsyncClient) -> None:
    """Bodies with any byte changed, cut or doubled, and any length said, are answered or refused, never a 5xx."""
    rng = random.Random(7)
    content, headers = framed({"inputs": [tensor()], "parameters": {"binary_data_output": True}}, TEXTS)
    statuses = set()
    for _ in range(300):
        broken = bytearray(content)
        place = rng.randrange(len(broken))
        match rng.randrange(3):
            case 0:
                broken[place] = rng.randrange(256)
            case 1:
                del broken[place : place + rng.randrange(1, 9)]
            case _:
                broken[place:place] = broken[place : place + rng.randrange(1, 9)]
        said = rng.choice([headers[FRAME], headers[FRAME], str(rng.randrange(len(content)))])
        reply = await client.post(INFER, content=bytes(broken), headers=headers | {FRAME: said})
        assert reply.status_code in {200, 400}, (bytes(broken), said, reply.text)
        statuses.add(reply.status_code)
    assert statuses == {200, 400}
