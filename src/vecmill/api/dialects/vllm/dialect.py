"""The table of vLLM's routes."""

from vecmill.api.dialect import Dialect
from vecmill.api.dialects.vllm import scores, tokens, vectors
from vecmill.api.dialects.vllm.wire import VllmError, render_error

VLLM = Dialect(
    name="vLLM",
    routes=vectors.ROUTES + scores.ROUTES + tokens.ROUTES,
    render_error=render_error,
    error=VllmError,
    owns=("/vllm/",),
)
