"""One call: its messages as questions, and their answers as bytes."""

import asyncio
import math
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from msgspec.structs import replace

from vecmill.api.grpc.messages import body_of
from vecmill.api.grpc.rpcs import Rpc
from vecmill.api.replies import as_told, in_time, rendered, result_headers, with_patience
from vecmill.api.trace import Trace
from vecmill.asks import Answer, One
from vecmill.core import Caller, Result
from vecmill.serving.answer import answer
from vecmill.serving.registry import Registry


@dataclass(slots=True, kw_only=True)
class Call:
    """One call while it is answered.

    Attributes:
        rpc: What is asked.
        context: As gRPC gives it.
        headers: Its metadata by name.
        caller: Who asks.
        trace: What is told of it.
        registry: The models.
        encoding: Where large answers are encoded.
        under_way: How many of its messages are worked on.
    """

    rpc: Rpc
    context: grpc.aio.ServicerContext
    headers: dict[str, str]
    caller: Caller
    trace: Trace
    registry: Registry
    encoding: Executor
    under_way: int = 0

    async def answer(self, message: Message) -> tuple[Any, Any]:
        """The body that a message stands for, and the answer.

        Messages of a stream share the weight of one request, and wait where a request would be refused.

        Raises:
            RequestError: As `serving.answer`.
            TimedOut: The call's time is over, or the message's own.
        """
        route = self.rpc.route
        body = body_of(message, route.body, self.headers.get("x-model"))
        ask: Any = as_told(route.parse(body, self.headers), self.headers)
        self.trace.model = self.registry.get(ask.model).name
        left_s = self.context.time_remaining()
        timeout_s = min(self.caller.timeout_s, math.inf if left_s is None else left_s)
        self.under_way += 1
        try:
            caller = replace(self.caller, weight=self.caller.weight / self.under_way)
            return body, await in_time(self._answer(ask, caller), timeout_s)
        finally:
            self.under_way -= 1

    async def _answer(self, ask: One, caller: Caller) -> Answer:
        if self.rpc.many:
            return await with_patience(lambda: answer(ask, self.registry, caller))
        return await answer(ask, self.registry, caller)

    async def render(self, body: object, result: Answer) -> bytes:
        """The bytes of an answer."""
        (reply,) = await rendered(self.rpc.render, body, result, self.encoding)
        return reply

    async def conclude(self, body: object, result: Answer) -> bytes:
        """The bytes of the only answer, which has headers."""
        reply = await self.render(body, result)
        await self.send_headers(result_headers(result) | self.rpc.headers(body, result))
        self.trace.results = with_numbers(result)
        return reply

    async def send_headers(self, headers: dict[str, str]) -> None:
        """Send the metadata that goes before answers."""
        told = {"x-request-id": self.trace.request_id} | headers
        sending = asyncio.ensure_future(self.context.send_initial_metadata(tuple(told.items())))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await sending  # a status cannot be sent while these are on their way
            raise


def with_numbers(result: Answer) -> list[Result]:
    """The answer as a trace has it."""
    return [result] if isinstance(result, Result) else []
