"""Whole answers of every dialect as files: what a client sends, what it gets back."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge import FRAME, fakes, framed

from conftest import Serve, client_of
from vecmill.api.app import DIALECTS
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import Events

FOLDER = Path(__file__).parent / "golden"
PAIRS = {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in sorted(FOLDER.glob("*/*.json"))}
LEAST = 5
"""Pairs of a dialect."""

ANY = "<any>"
"""Stands for a string or a number that is another each time: an id, a time."""


TYPES = {"output_dtype", "embed_dtype"}
"""Fields that make base64 of other numbers than float32."""


def plain(value: Any, key: str = "") -> Any:
    """JSON with every vector as a list of numbers."""
    if isinstance(value, dict):
        return {name: plain(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if key == "embedding" and isinstance(value, str):
        return ["base64", *np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4").tolist()]
    return value


class Anything:
    """Equal to each string and number but to nothing else."""

    __hash__ = None  # type: ignore[assignment]  # compared, never kept in a set

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str | int | float) and bool(other)


def nearly(value: Any) -> Any:
    """Equal to what differs in the last bits of its numbers, as machines do."""
    if isinstance(value, dict):
        return {name: nearly(one) for name, one in value.items()}
    if isinstance(value, list):
        return [nearly(one) for one in value]
    if value == ANY:
        return Anything()
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


@pytest.mark.parametrize("name", PAIRS)
async def test_the_answer_is_the_recorded_one(name: str, serve: Serve, tiny_spec: ModelSpec, events: Events) -> None:
    """The request of a golden file gets the status, the headers and the body that stand beside it.

    {model} in a path is the first model that is served. The texts of `after` follow the JSON, as the Open Inference
    Protocol's binary extension has them; `numbers` follow the JSON of an answer.
    """
    golden = PAIRS[name]
    names = golden.get("serves", ["tiny"])
    models = [serve(*one, token_ids="native") for one in fakes(tiny_spec, *names)]
    async with client_of(models, events) as client:
        method, path = golden.get("ask", "POST /v1/embeddings").format(model=names[0]).split()
        content, more = framed(golden["request"], golden["after"]) if "after" in golden else (None, {})
        asked = {"content": content, "headers": more} if content else {"json": golden.get("request")}
        reply = await client.request(method, path, **asked)
    headers = golden.get("headers", {})
    assert reply.status_code == golden["status"], reply.text
    assert {name: reply.headers.get(name) for name in headers} == nearly(headers)
    if "numbers" in golden:
        size = int(reply.headers[FRAME])
        assert json.loads(reply.content[:size]) == golden["response"]
        assert np.frombuffer(reply.content[size:], "<f4").tolist() == nearly(golden["numbers"])
        return
    if reply.headers["content-type"] == "application/octet-stream":
        assert np.frombuffer(reply.content, "<f4").tolist() == nearly(golden["response"])
        return
    form = plain if not TYPES & golden.get("request", {}).keys() else dict
    assert form(reply.json()) == nearly(form(golden["response"]))


def test_there_are_pairs() -> None:
    """Every dialect has its folder, and every pair says what it shows."""
    folders = [name.split("/")[0] for name in PAIRS]
    assert {folder for folder in folders if folders.count(folder) < LEAST} == set()
    assert {type(dialect).__name__ for dialect in DIALECTS} == {"Dialect"}
    assert len(set(folders)) == len(DIALECTS)
    assert [name for name, golden in PAIRS.items() if not golden["claim"]] == []
