"""What an error is on this wire."""

import grpc

from vecmill import errors
from vecmill.api.dialects.tei.wire import message_of
from vecmill.api.replies import error_headers

CODES: dict[type[errors.VecmillError], grpc.StatusCode] = {
    errors.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.WrongTask: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unauthorized: grpc.StatusCode.UNAUTHENTICATED,
    errors.UnknownModel: grpc.StatusCode.NOT_FOUND,
    errors.Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ModelLoading: grpc.StatusCode.UNAVAILABLE,
    errors.ShuttingDown: grpc.StatusCode.UNAVAILABLE,
    errors.TimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.EngineFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.VecmillError: grpc.StatusCode.INTERNAL,
}
"""Error to code; one that is not listed counts as its parent."""

MOST_CHARS = 500
"""Of a message: it may quote what the caller sent, and gRPC's clients take no more than 8 KB of trailers."""


def details(error: errors.VecmillError) -> str:
    """What happened, in a line that fits into a trailer."""
    message = message_of(error)
    return message if len(message) <= MOST_CHARS else f"{message[: MOST_CHARS - 3]}..."


def trailers(error: errors.VecmillError) -> dict[str, str]:
    """The headers that an HTTP answer would have, and when gRPC's own retries come back."""
    headers = error_headers(error)
    if "retry-after-ms" in headers:
        headers["grpc-retry-pushback-ms"] = headers["retry-after-ms"]
    return headers
