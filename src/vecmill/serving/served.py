"""A model under its name: check, tokenize, queue, await, finish. The one path of every transport and of `Embedder`."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import ANYONE, Caller, Options, Output, Request, Result, Timings, nothing
from vecmill.engine.base import Column, usable_cpus
from vecmill.errors import EngineFailed, RequestError
from vecmill.model.spec import ModelSpec
from vecmill.model.tokenizer import Tokenizer
from vecmill.serving import maxsim
from vecmill.serving.admission import Limits
from vecmill.serving.apart import settle
from vecmill.serving.cache import Cache, Plan, plan, remember
from vecmill.serving.cost import CostModel
from vecmill.serving.engines import Engines
from vecmill.serving.events import Events
from vecmill.serving.finish import ACTIVATIONS, means, vectors
from vecmill.serving.job import Job
from vecmill.serving.prepared import Prepared, Preparing, is_small, kept
from vecmill.serving.runner import Runner

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a request was computed: since when, by which job if by any, and how many of its inputs were known."""

    started: float
    job: Job | None
    cached: int


class ServedModel:
    """One loaded model.

    Args:
        name: Served name.
        spec: What it is.
        engines: Owned from here on; of `unscaled(spec)`, as this scales vectors itself.
        settings: Limits.
        events: Told of every batch.
        revision: Where the files come from, for people.
        precision: What the weights are kept in, for people.
        kind: The engine's key in `ENGINES`, for people.
        cost: What its micro-batches cost.
        renew: Makes other engines where these are lost.
    """

    def __init__(  # noqa: PLR0913 (all but the first five are named)
        self,
        name: str,
        spec: ModelSpec,
        engines: Engines,
        settings: Settings,
        events: Events,
        *,
        revision: str = "local",
        precision: str = "float32",
        kind: str = "onnx",
        cost: CostModel | None = None,
        renew: Callable[[], Engines] | None = None,
    ) -> None:
        self.name = name
        self.spec = spec
        self.revision = revision
        self.precision = precision
        self.kind = kind
        self.created = int(time.time())
        self.tokenizer = Tokenizer(spec)
        self.prepare = Preparing(name, spec, self.tokenizer, settings)
        self.runner = Runner(
            name,
            engines,
            widths={output: spec.width(output) for output in spec.outputs},
            limits=Limits(
                batch_tokens=settings.batch_tokens,
                max_queue_tokens=settings.max_queue_tokens,
                max_wait_s=settings.max_wait_s,
                stall_s=settings.stall_timeout_s,
            ),
            events=events,
            cost=cost,
            renew=renew,
        )
        room = 0 if kind == "static" else settings.result_cache_mb * 1_000_000  # a table is as fast as the cache
        self._cache = Cache(room, settings.result_cache_ttl_s) if room else None
        self.weight_bytes = engines.wide.weight_bytes
        self.settings = settings
        self._tokenizing = ThreadPoolExecutor(usable_cpus(), thread_name_prefix=f"tokenizer {name}")

    async def submit(self, request: Request, caller: Caller = ANYONE) -> Result:
        """Answer a request from an event loop. Cancelling the call drops what is still queued.

        Raises:
            RequestError: As `prepare`, `Runner.submit` and `finish`, and what befell the engine.
        """
        if self._by_maxsim(request):
            queries, documents = maxsim.split(request)
            both = asyncio.gather(self.submit(queries, caller), self.submit(documents, caller))
            return maxsim.join(request, *await both)
        started = time.perf_counter()
        request = self._meant(request)
        if is_small(request):
            prepared = self.prepare(request)
        else:
            self.runner.admit(self.prepare.fewest_tokens(request))  # before anything is tokenised for nothing
            prepared = await self.aside(partial(self.prepare, request))
        ask = plan(self._cache_for(request), prepared.tokens, request.outputs)
        job = self._queue(request, prepared, ask, caller)
        try:
            given = await asyncio.wrap_future(job.future) if job else []
        except EngineFailed:
            if not request.lenient:
                raise
            futures = [asyncio.wrap_future(one.future) for one in self._apart(request, prepared, ask, caller)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            prepared, ask, given = settle(prepared, ask, outcomes)
        return self._result(request, prepared, self._columns(request, ask, given), Ran(started, job, len(ask.known)))

    def compute(self, request: Request) -> Result:
        """Answer a request on this thread, which waits.

        Raises:
            RequestError: As `submit`; an input that fails fails the request, lenient or not.
        """
        if self._by_maxsim(request):
            queries, documents = maxsim.split(request)
            return maxsim.join(request, self.compute(queries), self.compute(documents))
        started = time.perf_counter()
        request = self._meant(request)
        prepared = self.prepare(request)
        ask = plan(self._cache_for(request), prepared.tokens, request.outputs)
        job = self._queue(request, prepared, ask, ANYONE)
        given = job.future.result() if job else []
        return self._result(request, prepared, self._columns(request, ask, given), Ran(started, job, len(ask.known)))

    async def aside(self, work: Callable[[], Made]) -> Made:
        """Do something with the tokenizer on one of its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, work)

    def close(self) -> None:
        """Stop the threads and give the memory back."""
        self.runner.close()
        self._tokenizing.shutdown()

    def _by_maxsim(self, request: Request) -> bool:
        """Whether scores are asked of a model that has vectors of tokens instead."""
        return request.ranks and self.spec.late is not None and self.spec.scores is None

    def _cache_for(self, request: Request) -> Cache | None:
        return None if request.options.no_store else self._cache

    def _queue(self, request: Request, prepared: Prepared, ask: Plan, caller: Caller) -> Job | None:
        """Ask the engine what is not known; None where all of it is."""
        if not ask.asked:
            return None
        tokens = [prepared.tokens[place] for place in ask.asked]
        marks = [one.mark for one in tokens] if self.spec.mark else None
        return self.runner.submit(
            [one.ids for one in tokens],
            request.outputs,
            marks,
            numbers=[prepared.owners[place] for place in ask.asked],
            tenant=caller.tenant,
            share=caller.share,
            weight=caller.weight,
        )

    def _apart(self, request: Request, prepared: Prepared, ask: Plan, caller: Caller) -> list[Job]:
        """Ask the engine about each input by itself, after it failed on one of them; together they count as one."""
        weight, jobs = caller.weight / len(ask.asked), list[Job]()
        try:
            for place in ask.asked:
                alone = replace(ask, asked=[place])
                jobs += filter(None, [self._queue(request, prepared, alone, replace(caller, weight=weight))])
        except RequestError:
            for job in jobs:
                job.future.cancel()
            raise
        return jobs

    def _columns(self, request: Request, ask: Plan, given: list[Column]) -> list[Column]:
        """Columns of all inputs; what is new is remembered."""
        cache = self._cache_for(request)
        if cache is not None and ask.asked:
            remember(cache, ask, given)
        return given if ask.whole else ask.columns(given, [self.spec.width(output) for output in request.outputs])

    def _result(self, request: Request, prepared: Prepared, columns: list[Column], ran: Ran) -> Result:
        given: dict[Output, Any] = dict(zip(request.outputs, columns, strict=True)) if prepared.tokens else {}
        options, scores = request.options, given.get("scores", nothing())
        if scores.size and self.spec.scores and not options.raw_scores:
            scores = ACTIVATIONS[self.spec.scores.activation](scores)
        rows = self._rows(given["dense"], prepared, options) if "dense" in given else nothing()
        total = time.perf_counter() - ran.started
        return Result(
            model=self.name,
            rows=rows,
            sparse=given.get("sparse", []),
            multi=kept(given.get("multi", []), prepared.tokens),
            scores=scores,
            labels=self.spec.scores.labels if self.spec.scores else (),
            tokens=prepared.counts,
            errors=prepared.faults,
            truncated=sum(one.truncated for one in prepared.tokens),
            cached=ran.cached,
            token_vocabulary=prepared.vocabulary,
            timings=Timings(
                tokenize_s=prepared.seconds,
                queue_s=max(0.0, ran.job.started - ran.started - prepared.seconds) if ran.job else 0.0,
                compute_s=total - prepared.seconds,
                total_s=total,
            ),
        )

    def _rows(self, rows: NDArray[np.float32], prepared: Prepared, options: Options) -> NDArray[np.float32]:
        cut = options.dimensions not in {None, rows.shape[1]}
        scale = self.spec.normalized or cut if options.normalize is None else options.normalize
        rows = vectors(rows, options.dimensions, scale=scale)
        return means(rows, prepared.owners, prepared.weights, scale=scale) if prepared.in_chunks else rows

    def _meant(self, request: Request) -> Request:
        return request if request.outputs else replace(request, outputs=self.spec.outputs[:1])
