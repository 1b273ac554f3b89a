"""What a client of Ollama may rely on."""

import httpx
import pytest


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream", ""])
@pytest.mark.parametrize("path", ["/api/embed", "/api/embeddings", "/api/show"])
async def test_ollama_looks_at_no_type(client: httpx.AsyncClient, path: str, kind: str) -> None:
    """The requests of curl in Ollama's documentation, which call themselves a form, are answered."""
    body = b'{"model": "tiny", "input": "hello", "prompt": "hello"}'
    assert (await client.post(path, content=body, headers={"content-type": kind})).status_code == 200
