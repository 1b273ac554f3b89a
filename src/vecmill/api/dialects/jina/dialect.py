"""The table of Jina's routes."""

from vecmill.api.dialect import Dialect
from vecmill.api.dialects.jina import scores, vectors
from vecmill.api.dialects.jina.wire import JinaError, render_error

JINA = Dialect(
    name="Jina",
    routes=vectors.ROUTES + scores.ROUTES,
    render_error=render_error,
    error=JinaError,
    owns=("/jina/",),
)
