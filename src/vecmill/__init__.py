"""Embedding inference: open models as vectors, over HTTP (`vecmill serve`) or in-process (`Embedder`)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecmill.embedder import Embedder

__version__ = "0.1.0"
__all__ = ["Embedder", "__version__"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (PEP 562: whatever the name stands for)
    """Load `Embedder` on first use, so that `import vecmill` itself stays light."""
    if name == "Embedder":
        from vecmill.embedder import Embedder

        return Embedder
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
