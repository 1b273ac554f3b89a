"""Answers as bytes, and conversations, as vLLM's clients ask for them."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from checkpoints import write_bert, write_modules
from conftest import Serve, client_of
from vecmill.config import Settings
from vecmill.engine.base import load_engine
from vecmill.model.spec import read_spec
from vecmill.serving.engines import Engines
from vecmill.serving.events import Events
from vecmill.serving.served import ServedModel

ROUTES = {"/v1/embeddings": "embedding", "/pooling": "data"}


async def vectors(client: httpx.AsyncClient, path: str, **more: object) -> list[Any]:
    """What a plain request gets for two texts."""
    reply = await client.post(path, json={"input": ["hello", "the cat"], "use_activation": None, **more})
    assert reply.status_code == 200, reply.text
    return [item[ROUTES[path]] for item in reply.json()["data"]]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(("endianness", "order"), [("native", "="), ("little", "<"), ("big", ">")])
@pytest.mark.parametrize(("embed_dtype", "kind"), [("float32", "f4"), ("float16", "f2")])
async def test_the_header_says_where_each_vector_is(
    client: httpx.AsyncClient, path: str, endianness: str, order: str, embed_dtype: str, kind: str
) -> None:
    """The slices that the header names are the vectors of a plain request, in their type and order of bytes."""
    wishes = {"encoding_format": "bytes", "embed_dtype": embed_dtype, "endianness": endianness}
    reply = await client.post(path, json={"input": ["hello", "the cat"], **wishes})
    told = json.loads(reply.headers["metadata"])
    plain = await vectors(client, path)
    assert [item["index"] for item in told["data"]] == [0, 1]
    assert told["usage"]["total_tokens"] == 7
    assert told["data"][-1]["end"] == len(reply.content)
    for item, vector in zip(told["data"], plain, strict=True):
        assert (item["embed_dtype"], item["endianness"]) == (embed_dtype, endianness)
        given = np.frombuffer(reply.content[item["start"] : item["end"]], f"{order}{kind}").reshape(item["shape"])
        assert given.astype(float) == pytest.approx(np.array(vector), abs=1e-3)


@pytest.mark.parametrize("path", ROUTES)
async def test_base64_may_be_big_endian(client: httpx.AsyncClient, path: str) -> None:
    """The order of bytes counts for base64 too."""
    plain = await vectors(client, path)
    given = await vectors(client, path, encoding_format="base64", endianness="big")
    decoded = [np.frombuffer(base64.b64decode(one), ">f4") for one in given]
    assert np.array(decoded) == pytest.approx(np.array(plain))


async def test_tokens_have_two_dimensions(client: httpx.AsyncClient) -> None:
    """Vectors of tokens follow one another, of as many tokens as each text has."""
    body = {"input": ["cat", "hello the cat"], "task": "token_embed", "encoding_format": "bytes"}
    reply = await client.post("/pooling", json=body)
    shapes = [item["shape"] for item in json.loads(reply.headers["metadata"])["data"]]
    assert shapes[1][0] > shapes[0][0]
    assert sum(rows * dims for rows, dims in shapes) * 4 == len(reply.content)


async def test_a_header_holds_any_name(serve: Serve, events: Events) -> None:
    """A served name with letters beyond ASCII does not break the header."""
    async with client_of([serve(name="modèle 向量")], events) as client:
        reply = await client.post("/pooling", json={"input": "hello", "encoding_format": "bytes"})
    assert reply.status_code == 200
    assert json.loads(reply.headers["metadata"])["model"] == "modèle 向量"


async def test_a_conversation_is_its_texts(client: httpx.AsyncClient) -> None:
    """Messages follow one another as if they were one text; the parts of one take a line each."""
    messages = [{"role": "user", "content": "the cat "}, {"role": "assistant", "content": ["sat", {"text": "hello"}]}]
    (given,) = (await client.post("/v1/embeddings", json={"messages": messages})).json()["data"]
    (plain,) = (await client.post("/pooling", json={"input": "the cat sat\nhello"})).json()["data"]
    assert given["embedding"] == plain["data"]


@pytest.mark.parametrize("messages", [[], [[]], [{"content": ""}], [{}], [{"content": "a"}, [{"content": "b"}]]])
async def test_what_is_no_conversation(client: httpx.AsyncClient, messages: list[Any]) -> None:
    """Nothing to read, or lists beside messages, is the caller's error."""
    reply = await client.post("/v1/embeddings", json={"messages": messages})
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "BadRequestError"


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
async def test_a_chat_template_is_not_left_out(tmp_path: Path, events: Events, file: str) -> None:
    """A model with a chat template of its own refuses conversations, which would get other vectors, and takes texts."""
    folder = write_modules(write_bert(tmp_path / "chatty"))
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"chat_template": "{{ messages }}"}
    (folder / file).write_text("{{ messages }}" if file.endswith("jinja") else json.dumps(settings))
    spec = read_spec(folder)
    model = ServedModel("chatty", spec, Engines(load_engine("onnx", spec, threads=1)), Settings(), events)
    async with client_of([model], events) as client:
        refused = await client.post("/v1/embeddings", json={"messages": [{"role": "user", "content": "hello"}]})
        taken = await client.post("/v1/embeddings", json={"input": "hello"})
    model.close()
    assert (refused.status_code, taken.status_code) == (400, 200)
    assert "chat template" in refused.json()["error"]["message"]
