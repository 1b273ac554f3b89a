"""What every transport does around an answer: its time, its headers, and a thread of its own where it is large."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any

import msgspec
from msgspec.structs import replace

from vecmill.api.pieces import pieces
from vecmill.asks import Answer, Ask, ModelInfo, Tokenized
from vecmill.core import Request, Result
from vecmill.errors import BodyStalled, EngineFailed, MethodNotAllowed, Overloaded, TimedOut, Unauthorized, VecmillError

INLINE_NUMBERS = 64 * 1024
"""Answers of up to this many numbers are encoded on the event loop: a few milliseconds at most."""

CLIENT_GONE = 499
"""The status that metrics have for callers who left."""

UNEXPECTED = EngineFailed("an unexpected error in the server; its log says more")
"""What callers are told of errors that nobody foresaw."""


def as_told(ask: Ask, headers: Mapping[str, str]) -> Ask:
    """The question with what a header says of it: `cache-control: no-store`."""
    if isinstance(ask, Request) and "no-store" in headers.get("cache-control", ""):
        return replace(ask, options=replace(ask.options, no_store=True))
    return ask


def in_time(answering: Coroutine[Any, Any, Answer], timeout_s: float) -> Coroutine[Any, Any, Answer]:
    """The answer, unless it takes too long; then what still waits for it is dropped, and TimedOut raised."""
    return answering if timeout_s == math.inf else _within(answering, timeout_s)


async def _within(answering: Coroutine[Any, Any, Answer], timeout_s: float) -> Answer:
    try:
        return await asyncio.wait_for(answering, timeout_s)
    except TimeoutError:
        raise TimedOut(f"the request was not done within {timeout_s:g} s, the time that it had") from None


LONGEST_PAUSE_S = 1.0
"""A stream for which there is no room tries again at least this often."""


async def with_patience(ask: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """The answer to a part of a stream, which waits where a request would be refused."""
    while True:
        try:
            return await ask()
        except Overloaded as full:
            await asyncio.sleep(min(full.retry_after_s, LONGEST_PAUSE_S))


async def rendered(
    render: Callable[[Any, Any], object], body: object, result: Answer, encoding: Executor
) -> list[bytes]:
    """An answer in pieces, made on the event loop where there is little of it, else on a thread of `encoding`."""
    if _numbers(result) <= INLINE_NUMBERS:
        return _encoded(render(body, result), lambda reply: [msgspec.json.encode(reply)])
    return await asyncio.get_running_loop().run_in_executor(encoding, lambda: _encoded(render(body, result), pieces))


def _encoded(reply: object, encode: Callable[[object], list[bytes]]) -> list[bytes]:
    """The JSON of a wire object; bytes are what they are."""
    return [reply] if isinstance(reply, bytes) else encode(reply)


def result_headers(result: Answer) -> dict[str, str]:
    """What every answer with numbers tells besides the numbers."""
    if not isinstance(result, Result):
        return {}
    headers = {"x-vecmill-truncated": str(result.truncated), "x-vecmill-cached": str(result.cached)}
    if result.errors:
        headers["x-vecmill-failed"] = str(len(result.errors))
    if result.token_vocabulary:
        headers["x-token-vocabulary"] = result.token_vocabulary
    return headers


def error_headers(error: VecmillError) -> dict[str, str]:
    """What clients act on."""
    headers = {}
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))
        headers["retry-after-ms"] = str(max(1, round(retry_after_s * 1000)))
    if isinstance(error, TimedOut):
        headers["x-should-retry"] = "false"  # nobody waits any more; OpenAI's and other SDKs would try again
    if isinstance(error, BodyStalled):
        headers["connection"] = "close"  # what comes after all would be the rest of this body
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.allowed)
    return headers


def _numbers(result: Answer) -> int:
    """About how many numbers an answer holds."""
    match result:
        case Result():
            sparse = sum(len(one.values) for one in result.sparse)
            return result.rows.size + result.scores.size + sparse + sum(one.size for one in result.multi)
        case Tokenized():
            return sum(map(len, result.pieces))
        case list():
            return sum(_numbers(one) for one in result if not isinstance(one, ModelInfo))
        case _:
            return 0
