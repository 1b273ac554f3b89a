"""The servers that client libraries ask, in vecmill's own environment, and what they answer without a library."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from client import MODEL
from numpy.typing import NDArray
from running import running

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("VECMILL_PYTHON", str(ROOT / ".venv/bin/python"))
"""Where vecmill is installed: libraries want other versions of what it needs."""

REFUSING = [PYTHON, str(Path(__file__).with_name("refusing.py"))]

Serving = Callable[..., str]

_grpc_addresses: dict[str, str] = {}
"""By the address for HTTP of the same server."""


@contextmanager
def servers(folder: Path) -> Iterator[Serving]:
    """Starts servers of one model on first use: `serving("embed")` is an address; others are "rerank", "classify".

    Args:
        folder: For the checkpoints of tiny models.
    """
    with ExitStack() as started:

        @cache
        def serving(task: str, *, refusing: bool = False) -> str:
            command = REFUSING if refusing else [PYTHON, "-m", "vecmill"]
            model = MODEL if task == "embed" else f"tiny={headed(folder / task, task)}"
            asked = [model, "--grpc-port", "0"]
            server = started.enter_context(running(*asked, command=command, limit_s=600, VECMILL_LOG_LEVEL="error"))
            _grpc_addresses[server.url] = server.grpc
            return server.url

        yield serving


def grpc_address(url: str) -> str:
    """Where the server of this address listens for gRPC."""
    return _grpc_addresses[url]


def headed(folder: Path, task: str) -> Path:
    """A tiny checkpoint with a head, written where the libraries for that are."""
    program = "import sys, pathlib, checkpoints; checkpoints.write_headed(pathlib.Path(sys.argv[1]), sys.argv[2])"
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")])}
    subprocess.run([PYTHON, "-c", program, str(folder), task], check=True, env=variables)
    return folder


def asked(address: str, body: dict[str, Any]) -> Any:
    """What the server answers to a plain request."""
    request = urllib.request.Request(address, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310 (our own server)
        return json.load(answer)


def vectors(address: str, texts: list[str]) -> NDArray[np.float32]:
    """The vectors of texts as the server gives them without a library."""
    answer = asked(f"{address}/v1/embeddings", {"input": texts, "encoding_format": "float"})
    return np.array([one["embedding"] for one in answer["data"]], np.float32)
