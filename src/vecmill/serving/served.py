"""A model under its name: check, tokenize, queue, await, finish. The one path of every transport and of `Embedder`."""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import ANYONE, NOTHING, Caller, Options, Output, Request, Result, Timings
from vecmill.engine.base import usable_cpus
from vecmill.errors import EngineFailed, InvalidRequest
from vecmill.model.spec import WIDTHS, ModelSpec
from vecmill.model.tokenizer import Tokenizer
from vecmill.serving import document, maxsim
from vecmill.serving.admission import Limits
from vecmill.serving.apart import settle
from vecmill.serving.asking import Answers, Asking, identity
from vecmill.serving.cache import Cache
from vecmill.serving.cost import CostModel
from vecmill.serving.document import Documents
from vecmill.serving.engines import Engines
from vecmill.serving.events import Events
from vecmill.serving.finish import ACTIVATIONS, kept, means, vectors
from vecmill.serving.prepared import Prepared
from vecmill.serving.preparing import Preparing, is_small
from vecmill.serving.priority import go_behind
from vecmill.serving.runner import Runner
from vecmill.serving.steps import Steps, on_loop, on_thread, together
from vecmill.serving.store import ResultStore

Made = TypeVar("Made")

FLOAT_BYTES = 4


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
        store: Answers outside this process; owned from here on.
        learned: Told what micro-batches cost when it closes.
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
        store: ResultStore | None = None,
        learned: Callable[[CostModel], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.spec = spec
        self.revision = revision
        self.precision = precision
        self.kind = kind
        self.created = int(time.time())
        self.tokenizer = Tokenizer(spec)
        self.outputs = tuple(output for output in spec.outputs if engines.wide.gives(output))
        self.prepare = Preparing(name, spec, self.tokenizer, settings, self.outputs)
        self._documents = Documents(self.prepare, document.refusal(spec, self.outputs))
        widths = {output: spec.width(output) for output in spec.outputs}
        self.runner = Runner(
            name,
            engines,
            widths=widths,
            limits=Limits(
                batch_tokens=settings.batch_tokens,
                max_queue_tokens=settings.max_queue_tokens,
                max_queue_inputs=settings.max_queue_inputs or math.inf,
                batch_inputs=settings.batch_inputs or math.inf,
                batch_wait_s=settings.batch_wait_us / 1e6,
                max_wait_s=settings.max_wait_s,
                stall_s=settings.stall_timeout_s,
            ),
            events=events,
            cost=cost,
            renew=renew,
        )
        room = 0 if kind == "static" else settings.result_cache_mb * 1_000_000  # a table is as fast as the cache
        cache = Cache(room, settings.result_cache_ttl_s) if room or store else None
        self._remembers = cache is not None
        self.store = store
        self._learned = learned
        self._asking = Asking(
            self.runner, cache, store, widths, marked=spec.mark is not None, shared=settings.share_results
        )
        self._token_dims = next((int(spec.config[name]) for name in WIDTHS if name in spec.config), 0)
        self.weight_bytes = engines.wide.weight_bytes
        self.settings = settings
        self._tokenizing = ThreadPoolExecutor(usable_cpus(), f"tokenizer {name}", initializer=go_behind)

    async def submit(self, request: Request, caller: Caller = ANYONE) -> Result:
        """Answer a request from an event loop. Cancelling the call drops what is still queued.

        Raises:
            RequestError: As `prepare`, `Runner.submit` and `finish`, and what befell the engine.
        """
        if self._by_maxsim(request):
            queries, documents = maxsim.split(request)
            self.prepare.check(queries)  # before its documents are computed for nothing
            both = await together(self.submit(queries, caller), self.submit(documents, caller))
            return await self.aside(partial(maxsim.join, request, *both))
        try:
            return await self._submit(request, caller)
        except InvalidRequest as failure:
            if request.place is not None:
                failure.at(request.place)
            raise

    async def _submit(self, request: Request, caller: Caller) -> Result:
        started = time.perf_counter()
        request = self._meant(request)
        small = is_small(request)
        if not small or (self.runner.door.crowded and not self._remembers):  # before anything is tokenised for nothing
            self.runner.admit(self.prepare.guess(request), identity(request, caller), joins=False)
        prepared = self._prepare(request) if small else await self.aside(partial(self._prepare, request))
        if "multi" in request.outputs:
            self._check_size(sum(prepared.counts))
        try:
            answers = await on_loop(self._steps(request, prepared, caller))
        except EngineFailed:
            if not request.lenient or prepared.document:
                raise
            alone = replace(caller, weight=caller.weight / len(prepared.tokens))  # together they count as one
            rows = range(len(prepared.tokens))
            asked = [on_loop(self._steps(request, prepared.only(row), alone)) for row in rows]
            prepared, answers = settle(prepared, await asyncio.gather(*asked, return_exceptions=True))
        return self._result(request, prepared, answers, started)

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
        prepared = self._prepare(request)
        answers = on_thread(self._steps(request, prepared, ANYONE))
        return self._result(request, prepared, answers, started)

    async def aside(self, work: Callable[[], Made]) -> Made:
        """Do something with the tokenizer on one of its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, work)

    def close(self) -> None:
        """Stop the threads and give the memory back."""
        self.runner.close()
        self._learned(self.runner.cost)
        if self.store is not None:
            self.store.close()
        self._tokenizing.shutdown()

    def _by_maxsim(self, request: Request) -> bool:
        """Whether scores are asked of a model that has vectors of tokens instead."""
        return request.ranks and self.spec.late is not None and self.spec.scores is None

    def _prepare(self, request: Request) -> Prepared:
        return (self._documents if request.options.one_document else self.prepare)(request)

    def _check_size(self, tokens: int) -> None:
        """Refuse vectors of tokens that would fill the memory: the queue bounds tokens, not what each of them becomes.

        Raises:
            InvalidRequest: Naming both sizes.
        """
        width, most = self._token_dims, self.settings.max_answer_mb
        if (size := tokens * width * FLOAT_BYTES / 1e6) > most:
            message = f"{tokens} tokens have vectors of {size:.6g} MB in {self.name}; an answer may have {most} MB"
            raise InvalidRequest(f"{message}; send fewer inputs at a time", param="input")

    def _steps(self, request: Request, prepared: Prepared, caller: Caller) -> Steps[Answers]:
        if prepared.document is None:
            return self._asking.answers(request, prepared.tokens, caller, prepared.owners)
        return document.answers(self._asking, request, prepared, prepared.document, caller, self._tokenizing)

    def _result(self, request: Request, prepared: Prepared, answers: Answers, began: float) -> Result:
        given: dict[Output, Any] = dict(zip(request.outputs, answers.columns, strict=True)) if prepared.tokens else {}
        options, scores = request.options, given.get("scores", NOTHING)
        if scores.size and self.spec.scores and not options.raw_scores:
            scores = ACTIVATIONS[self.spec.scores.activation](scores)
        rows = self._rows(given["dense"], prepared, options) if "dense" in given else NOTHING
        multi = kept(given["multi"], prepared.tokens) if "multi" in given else []
        if multi:
            self._token_dims = multi[0].shape[1]  # the first embedding says what a projection makes of a state
        total = time.perf_counter() - began
        return Result(
            model=self.name,
            rows=rows,
            sparse=given.get("sparse", []),
            multi=multi,
            scores=scores,
            labels=self.spec.scores.labels if self.spec.scores else (),
            tokens=prepared.counts,
            ranges=prepared.document.ranges if prepared.document else [],
            errors=prepared.faults,
            truncated=sum([one.truncated for one in prepared.tokens]),
            cached=answers.cached,
            token_vocabulary=prepared.vocabulary,
            timings=Timings(
                tokenize_s=prepared.seconds,
                queue_s=max(0.0, answers.started - began - prepared.seconds),
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
