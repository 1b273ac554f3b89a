"""Whole answers of OpenAI's dialect as files: what a client sends, what it gets back."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

FOLDER = Path(__file__).parent / "golden" / "openai"
PAIRS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def plain(value: Any, key: str = "") -> Any:
    """JSON with every vector as a list of numbers."""
    if isinstance(value, dict):
        return {name: plain(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if key == "embedding" and isinstance(value, str):
        return ["base64", *np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4").tolist()]
    return value


def nearly(value: Any) -> Any:
    """Equal to what differs in the last bits of its numbers, as machines do."""
    if isinstance(value, dict):
        return {name: nearly(one) for name, one in value.items()}
    if isinstance(value, list):
        return [nearly(one) for one in value]
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


@pytest.mark.parametrize("name", PAIRS)
async def test_the_answer_is_the_recorded_one(name: str, serve: Serve, fake: FakeEngine, events: Events) -> None:
    """The request of a golden file gets the status, the headers and the body that stand beside it."""
    golden = PAIRS[name]
    async with client_of([serve(fake, token_ids="native")], events) as client:
        reply = await client.post("/v1/embeddings", json=golden["request"])
    headers = golden.get("headers", {})
    assert (reply.status_code, {name: reply.headers.get(name) for name in headers}) == (golden["status"], headers)
    assert plain(reply.json()) == nearly(plain(golden["response"]))


def test_there_are_pairs() -> None:
    """The folder is found, and every pair says what it shows."""
    assert len(PAIRS) >= 12
    assert [name for name, golden in PAIRS.items() if not golden["claim"]] == []
