"""What Jina's answers have in common, and its errors."""

import msgspec

from vecmill.api.dialect import STATUSES, ErrorReply, entry
from vecmill.core import Result
from vecmill.errors import InvalidRequest, VecmillError


class JinaUsage(msgspec.Struct):
    """Tokens that went through the model."""

    total_tokens: int
    prompt_tokens: int


class JinaError(msgspec.Struct):
    """Every error has this body."""

    detail: str


STATUS = STATUSES | {InvalidRequest: 422}


def render_error(error: VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUS, error), msgspec.json.encode(JinaError(str(error))))


def usage(result: Result) -> JinaUsage:
    """The tokens of all inputs."""
    total = sum(result.tokens)
    return JinaUsage(total, total)
