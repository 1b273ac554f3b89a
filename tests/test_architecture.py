"""The layout is the architecture: imports point one way, and heavy libraries stay where they belong."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vecmill

ROOT = Path(vecmill.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

LAYERS = [
    "errors",
    "config",
    "sources",
    "core",
    "asks",
    "model",
    "graph",
    "engine",
    "serving",
    "simulate",
    "embedder",
    "verify",
    "doctor",
    "api",
    "cli",
    "__main__",
]
"""From the bottom: a module may import from its own layer and from those before it."""

HOMES = {
    "onnxruntime": {"engine/onnx.py"},
    "prometheus_client": {"api/metrics.py"},
    "onnx": {"graph/ops.py"},
    "torch": {"engine/pytorch.py", "engine/torch_heads.py", "engine/torch_network.py"},
    "transformers": {"engine/torch_network.py"},
    "grpc": {f"api/grpc/{name}.py" for name in ("call", "calls", "health", "server", "statuses")},
    "grpc_health": {"api/grpc/health.py", "api/grpc/server.py"},
    "grpc_reflection": {"api/grpc/server.py"},
    "google": {f"api/grpc/{name}.py" for name in ("call", "messages", "rpcs", "tei_pb2")},
    "uvicorn": {"api/server.py", "api/protocol.py"},
    "cyclopts": {"cli.py"},
    "sqlite3": {"serving/disk_store.py"},
    "redis": {"serving/redis_store.py"},
    "huggingface_hub": {"model/hub.py", "model/hub_errors.py"},
}
"""Library to the only files that import it."""

MAX_LINES = 300


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(module: str) -> int:
    """The layer of a module of ours by its dotted name."""
    return LAYERS.index(module.split(".")[1])


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p != ROOT / "__init__.py"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_imports_point_downward(path: Path) -> None:
    """No module imports from a layer above its own."""
    own = LAYERS.index(path.relative_to(ROOT).parts[0].removesuffix(".py"))
    above = [name for name in imports(path) if name.startswith("vecmill.") and name.split(".")[1] in LAYERS[own + 1 :]]
    assert above == []


@pytest.mark.parametrize("library", HOMES)
def test_a_library_has_one_home(library: str) -> None:
    """Each heavy library is imported in one place, so that replacing it touches one file."""
    users = {str(p.relative_to(ROOT)) for p in MODULES if library in {name.split(".")[0] for name in imports(p)}}
    assert users <= HOMES[library]


def test_dialects_know_nobody() -> None:
    """A dialect imports neither another dialect nor serving nor an engine; one of several files imports its own."""
    for path in (ROOT / "api/dialects").rglob("*.py"):
        own = f"vecmill.api.dialects.{path.relative_to(ROOT / 'api/dialects').parts[0]}"
        forbidden = ("vecmill.api.dialects", "vecmill.serving", "vecmill.engine", "vecmill.model", "vecmill.graph")
        strange = [name for name in imports(path) if not f"{name}.".startswith(f"{own}.")]
        assert [name for name in strange if name.startswith(forbidden)] == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("vecmill", {"numpy", "onnxruntime", "onnx", "starlette", "tokenizers", "cyclopts"}),
        ("vecmill.cli", {"numpy", "onnxruntime", "onnx", "starlette", "tokenizers"}),
        ("vecmill.api.server", {"grpc", "google"}),
        (
            "vecmill.api.workers",
            {"numpy", "onnxruntime", "onnx", "starlette", "tokenizers", "uvicorn", "prometheus_client"},
        ),
        ("vecmill.api.dialects.openai", {"onnxruntime", "onnx", "starlette", "tokenizers"}),
    ],
)
def test_imports_are_light(module: str, absent: set[str]) -> None:
    """Importing a module loads none of the libraries that it does not need."""
    program = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & (absent | {"torch", "transformers", "pydantic"}) == set()


def test_files_stay_small() -> None:
    """A file fits a head."""
    assert [str(p.relative_to(ROOT)) for p in MODULES if len(p.read_text().splitlines()) > MAX_LINES] == []


def test_exports_are_what_they_say() -> None:
    """Everything in `__all__` is there, and a wrong name is an AttributeError."""
    assert [name for name in vecmill.__all__ if not hasattr(vecmill, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Embeder'"):
        _ = vecmill.Embeder
