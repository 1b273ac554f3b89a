"""How several tests of the HTTP edge ask, and how they read errors."""

import asyncio
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx

from vecmill.api.app import build
from vecmill.config import Settings
from vecmill.engine.fake import FakeEngine
from vecmill.model.late import Late
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import Classifier, Splade
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry

NO_VECTORS: dict[str, Any] = {"pooling": (), "tail": (), "dims": 0}
KINDS: dict[str, dict[str, Any]] = {
    "tiny": {},
    "judge": {"task": "rerank", "scores": Classifier(("relevance",), "sigmoid"), **NO_VECTORS},
    "moods": {"task": "classify", "scores": Classifier(("bad", "fair", "good"), "softmax"), **NO_VECTORS},
    "late": {"task": "multi", "late": Late(tail=(), prompts={}, markers=(), limits={}), **NO_VECTORS},
    "words": {"task": "sparse", "sparse": Splade("max", twice=False), **NO_VECTORS},
}
"""Served names, and what is other than in the tiny embedding model: a reranker, a classifier, a
late-interaction model and a sparse encoder."""


def fakes(spec: ModelSpec, *names: str) -> list[tuple[FakeEngine, str]]:
    """An engine and its name for each of `KINDS` that is named."""
    return [(FakeEngine(replace(spec, **KINDS[name])), name) for name in names]


EMBEDDINGS = "/v1/embeddings"
JSON = {"content-type": "application/json"}


FRAME = "inference-header-content-length"


def framed(head: Any, texts: Sequence[str | bytes], **lies: str) -> tuple[bytes, dict[str, str]]:
    """A body and its headers in the Open Inference Protocol's binary extension: JSON, and texts after it.

    Args:
        head: The JSON.
        texts: Each gets its length before it.
        lies: Other values of headers; "length" is that of the JSON.
    """
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    said = json.dumps(head).encode()
    content = b"".join([said, *(struct.pack("<I", len(text)) + text for text in encoded)])
    return content, {"content-type": "application/octet-stream", FRAME: lies.get("length", str(len(said)))}


def client_to(registry: Registry, events: Events, **settings: object) -> httpx.AsyncClient:
    """A client of an application over this registry, whose models may be missing, broken or draining."""
    app = build(registry, Settings(**settings), events)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def error_of(reply: httpx.Response, status: int) -> dict[str, Any]:
    """The error that a reply holds: JSON of that status, with the four keys of OpenAI's errors and no other."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    return error


async def until(happens: Callable[[], bool]) -> None:
    """Let others run until something is so."""
    async with asyncio.timeout(10):
        while not happens():
            await asyncio.sleep(0)
