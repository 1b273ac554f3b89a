"""The table of TEI's routes."""

from vecmill.api.dialect import Dialect
from vecmill.api.dialects.tei import natural, scores, tokens, vectors
from vecmill.api.dialects.tei.wire import TeiError, render_error

TEI = Dialect(
    name="Text Embeddings Inference",
    routes=vectors.ROUTES + scores.ROUTES + tokens.ROUTES + natural.ROUTES,
    render_error=render_error,
    error=TeiError,
    owns=("/tei/",),
)
