"""The handlers of every rpc, and what happens around each call: who asks, and what becomes of errors."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeAlias, TypeVar

import grpc
from msgspec.structs import replace

from vecmill.api.callers import Callers
from vecmill.api.dialect import entry
from vecmill.api.dialects.tei.wire import REPLIES
from vecmill.api.grpc.call import Call, with_numbers
from vecmill.api.grpc.messages import read
from vecmill.api.grpc.ranking import Part, one_by_one, together
from vecmill.api.grpc.rpcs import RPCS, Rpc
from vecmill.api.grpc.statuses import CODES, details, trailers
from vecmill.api.ordered import in_order
from vecmill.api.replies import CLIENT_GONE, UNEXPECTED
from vecmill.api.trace import Trace, request_id
from vecmill.errors import InvalidRequest, ShuttingDown, TimedOut, VecmillError
from vecmill.serving.events import Events
from vecmill.serving.registry import Registry

log = logging.getLogger(__name__)

IN_FLIGHT = 256
"""Most messages of a stream that are worked on at once: enough for a few batches."""

CUT_S = 1.0
"""How long callers may take to be told that the server shut down."""

Context: TypeAlias = "grpc.aio.ServicerContext"
Stream = AsyncIterator[bytes]
Made = TypeVar("Made")


class Calls:
    """Answers the calls of every rpc.

    Args:
        registry: The models.
        callers: Who may ask, and on which terms.
        events: Told of answers.
        encoding: Where large answers are encoded.
    """

    def __init__(self, registry: Registry, callers: Callers, events: Events, encoding: Executor) -> None:
        self._registry = registry
        self._callers = callers
        self._events = events
        self._encoding = encoding
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cut = False

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._tasks)

    async def cut(self) -> None:
        """End what is under way, and tell its callers that the server shut down."""
        self._cut = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CUT_S)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """For the server: bytes in, bytes out."""
        services: dict[str, dict[str, grpc.RpcMethodHandler]] = {}
        for rpc in RPCS:
            services.setdefault(rpc.service, {})[rpc.name] = self._handler(rpc)
        return [grpc.method_handlers_generic_handler(*service) for service in services.items()]

    def _handler(self, rpc: Rpc) -> grpc.RpcMethodHandler:
        if rpc.answers:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, rpc))
        if rpc.many:
            return grpc.stream_unary_rpc_method_handler(partial(self._ranking, rpc))
        return grpc.unary_unary_rpc_method_handler(partial(self._unary, rpc))

    async def _unary(self, rpc: Rpc, given: bytes, context: Context) -> bytes:
        async def work(call: Call) -> bytes:
            return await call.conclude(*await call.answer(read(rpc.request, given)))

        return await self._run(rpc, context, work)

    async def _ranking(self, rpc: Rpc, stream: Stream, context: Context) -> bytes:
        """A stream of texts, and one answer."""
        parts: list[Part] = []

        async def keep(part: Part) -> None:
            parts.append(part)

        async def work(call: Call) -> bytes:
            await in_order(one_by_one(stream), call.answer, keep, IN_FLIGHT)
            return await call.conclude(*together(parts))

        return await self._run(rpc, context, work)

    async def _stream(self, rpc: Rpc, stream: Stream, context: Context) -> None:
        """Each message by itself, answered in order; the first that fails ends the stream."""

        async def answer(call: Call, given: bytes) -> tuple[bytes, Trace]:
            body, result = await call.answer(read(rpc.request, given))
            return await call.render(body, result), replace(call.trace, results=with_numbers(result))

        async def emit(made: tuple[bytes, Trace]) -> None:
            reply, trace = made
            await context.write(reply)
            self._events(trace.done(200))

        async def work(call: Call) -> None:
            await call.send_headers({})
            await in_order(stream, partial(answer, call), emit, IN_FLIGHT)

        await self._run(rpc, context, work)

    async def _run(self, rpc: Rpc, context: Context, work: Callable[[Call], Awaitable[Made]]) -> Made:
        """What happens around every call: it is held until it has ended, and its errors become statuses."""
        self._hold()
        headers = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
        trace = Trace(request_id(headers.get("x-request-id", "")), rpc.path)
        try:
            made = await work(self._begin(rpc, context, headers, trace))
        except asyncio.CancelledError:
            reason = self._reason(context)
            if reason is None:
                self._events(trace.done(CLIENT_GONE))
                raise
            error = reason
        except Exception as failure:  # noqa: BLE001 (it is logged)
            error = _told(failure, rpc)
        else:
            if not rpc.answers:  # what a stream answers is told message by message
                self._events(trace.done(200))
            return made
        self._events(trace.done(entry(REPLIES, error)[0]))
        told = {"x-request-id": trace.request_id} | trailers(error)
        await context.abort(entry(CODES, error), details(error), tuple(told.items()))
        raise error  # abort has raised already

    def _hold(self) -> None:
        """Count the running call as under way until its last byte is out."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _begin(self, rpc: Rpc, context: Context, headers: dict[str, str], trace: Trace) -> Call:
        """The call, where its caller may ask and work is taken."""
        caller = self._callers(headers)
        trace.tenant = caller.tenant
        if self._registry.closed:
            raise ShuttingDown("the server is shutting down and takes no new work")
        return Call(
            rpc=rpc,
            context=context,
            headers=headers,
            caller=caller,
            trace=trace,
            registry=self._registry,
            encoding=self._encoding,
        )

    def _reason(self, context: Context) -> VecmillError | None:
        """Why a call was cancelled; None where its caller did it."""
        if self._cut:
            return ShuttingDown("the server shut down before this call was done")
        return TimedOut("the call was not done by its deadline") if context.time_remaining() == 0 else None


def _told(failure: Exception, rpc: Rpc) -> VecmillError:
    """What the caller is told of a failure."""
    match failure:
        case InvalidRequest():
            return failure.about(rpc.route.words({}))
        case VecmillError():
            return failure
        case _:
            log.error("an unexpected error at %s", rpc.path, exc_info=failure)
            return UNEXPECTED
