"""A hub on this machine that answers the three calls that fetching a model takes."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "a" * 40
NEWER = "b" * 40
CONFIG = b'{"model_type": "bert"}'


@dataclass
class FakeHub:
    """What the hub holds, and what it was asked.

    Attributes:
        repositories: Files by id; each is what the branch main holds at `commit`.
        commit: What main is.
        refusals: Status and X-Error-Code for every path with this in it.
        seen: Method and path of each request, in order.
        tokens: The Authorization header of each request that had one.
    """

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commit: str = COMMIT
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    endpoint: str = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a path."""
        for part, (status, code) in self.refusals.items():
            if part in path:
                return status, {"X-Error-Code": code} if code else {}, b"{}"
        if path.startswith("/api/models/"):
            model, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self._info(model, revision)
        model, _, rest = path.removeprefix("/").partition("/resolve/")
        return self._file(model, rest.partition("/")[2])

    def _info(self, model: str, revision: str) -> tuple[int, dict[str, str], bytes]:
        if model not in self.repositories:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if revision not in ("main", self.commit):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        files = [{"rfilename": name, "size": len(data)} for name, data in self.repositories[model].items()]
        return 200, {}, json.dumps({"id": model, "sha": self.commit, "siblings": files}).encode()

    def _file(self, model: str, name: str) -> tuple[int, dict[str, str], bytes]:
        data = self.repositories.get(model, {}).get(name)
        if data is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        return 200, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": self.commit}, data

    def fetched(self) -> list[str]:
        """Names of the files whose bytes were asked for, in order."""
        return [
            line.partition("/resolve/")[2].partition("/")[2]
            for line in self.seen
            if line.startswith("GET /") and "/resolve/" in line
        ]


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub answers at `hub.endpoint` inside."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.seen.append(f"{self.command} {path}")
            hub.tokens.extend(filter(None, [self.headers.get("Authorization")]))
            status, headers, body = hub.answer(path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def silence() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def refusing() -> str:
    """The address of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the hub library and our cache live in `folder`, with no token, no settings and no hub."""
    for variable in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "VECMILL_", "TRANSFORMERS_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    monkeypatch.setenv("VECMILL_CACHE", str(folder / "vecmill"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_ENDPOINT", refusing())
    # The library reads these once, at import: one would make it call home, the other read this machine's token.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(folder / "hf" / "token"))


def write_snapshot(hub_cache: Path, model: str, files: dict[str, bytes], *, commit: str = COMMIT) -> Path:
    """A snapshot as the hub library leaves it in its cache, and the branch main that leads to it."""
    store = hub_cache / f"models--{model.replace('/', '--')}"
    for name, data in files.items():
        path = store / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (store / "refs").mkdir(exist_ok=True)
    (store / "refs" / "main").write_text(commit)
    return store / "snapshots" / commit
