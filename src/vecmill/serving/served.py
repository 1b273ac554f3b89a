"""A model under its name: check, tokenize, queue, await, finish. The one path of every transport and of `Embedder`."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import Input, Options, Output, Pair, Request, Result, Timings, nothing
from vecmill.engine.base import Column, Engine, usable_cpus
from vecmill.errors import EmptyInput, InputTooLong, InvalidRequest, TooManyInputs, WrongTask
from vecmill.model.late import SIDES
from vecmill.model.spec import ModelSpec
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import Cut, Tokens
from vecmill.model.vocabulary import read_token_ids
from vecmill.serving import maxsim
from vecmill.serving.events import Events
from vecmill.serving.finish import ACTIVATIONS, vectors
from vecmill.serving.prepared import Prepared, is_small, kept
from vecmill.serving.runner import Job, Runner

Made = TypeVar("Made")


class ServedModel:
    """One loaded model.

    Args:
        name: Served name.
        spec: What it is.
        engine: Owned from here on; of `unscaled(spec)`, as this scales vectors itself.
        settings: Limits.
        events: Told of every batch.
        revision: Where the files come from, for people.
        precision: What the weights are kept in, for people.
        kind: The engine's key in `ENGINES`, for people.
    """

    def __init__(
        self,
        name: str,
        spec: ModelSpec,
        engine: Engine,
        settings: Settings,
        events: Events,
        *,
        revision: str = "local",
        precision: str = "float32",
        kind: str = "onnx",
    ) -> None:
        self.name = name
        self.spec = spec
        self.revision = revision
        self.precision = precision
        self.kind = kind
        self.created = int(time.time())
        self.tokenizer = Tokenizer(spec)
        self.runner = Runner(
            name,
            engine,
            widths={output: spec.width(output) for output in spec.outputs},
            batch_tokens=settings.batch_tokens,
            max_queue_tokens=settings.max_queue_tokens,
            events=events,
        )
        self.weight_bytes = engine.weight_bytes
        self.settings = settings
        self._tokenizing = ThreadPoolExecutor(usable_cpus(), thread_name_prefix=f"tokenizer {name}")

    async def submit(self, request: Request) -> Result:
        """Answer a request from an event loop. Cancelling the call drops what is still queued.

        Raises:
            RequestError: As `prepare`, `Runner.submit` and `finish`, and what befell the engine.
        """
        if self._by_maxsim(request):
            queries, documents = maxsim.split(request)
            return maxsim.join(request, *await asyncio.gather(self.submit(queries), self.submit(documents)))
        started = time.perf_counter()
        request = self._meant(request)
        if is_small(request):
            prepared = self.prepare(request)
        else:
            prepared = await self.aside(partial(self.prepare, request))
        job = self._queue(request, prepared)
        columns = await asyncio.wrap_future(job.future)
        return self._result(request, prepared, columns, started, job.started)

    def compute(self, request: Request) -> Result:
        """Answer a request on this thread, which waits.

        Raises:
            RequestError: As `submit`.
        """
        if self._by_maxsim(request):
            queries, documents = maxsim.split(request)
            return maxsim.join(request, self.compute(queries), self.compute(documents))
        started = time.perf_counter()
        request = self._meant(request)
        prepared = self.prepare(request)
        job = self._queue(request, prepared)
        columns = job.future.result()
        return self._result(request, prepared, columns, started, job.started)

    async def aside(self, work: Callable[[], Made]) -> Made:
        """Do something with the tokenizer on one of its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, work)

    def prepare(self, request: Request) -> Prepared:
        """Check and tokenise.

        Raises:
            InvalidRequest: An input, the number of inputs or an option is wrong.
            InputTooLong: An input is too long and truncation was refused.
        """
        started = time.perf_counter()
        self._check(request)
        prompt = self.prompt(request.options)
        tokens, vocabulary = self._tokenize(request, prompt)
        self._refuse_unknown(tokens)
        if not request.options.truncate:
            own = self.tokenizer.limit(self._side(request.options))
            self._refuse_long(tokens, own, request.options.max_tokens)
        return Prepared(tokens, vocabulary, time.perf_counter() - started)

    def close(self) -> None:
        """Stop the threads and give the memory back."""
        self.runner.close()
        self._tokenizing.shutdown()

    def _by_maxsim(self, request: Request) -> bool:
        """Whether scores are asked of a model that has vectors of tokens instead."""
        return request.ranks and self.spec.late is not None and self.spec.scores is None

    def _queue(self, request: Request, prepared: Prepared) -> Job:
        marks = [tokens.mark for tokens in prepared.tokens] if self.spec.mark else None
        return self.runner.submit([tokens.ids for tokens in prepared.tokens], request.outputs, marks)

    def _check(self, request: Request) -> None:
        for output in request.outputs:
            if output not in self.spec.outputs:
                raise WrongTask(self.name, output, self.spec.outputs)
        if request.ranks and self.spec.width("scores") != 1:
            raise WrongTask(self.name, "one score to rank by", [f"scores of {self.spec.width('scores')} labels"])
        self.check_inputs(request.inputs)
        dimensions, dims = request.options.dimensions, self.spec.dims
        if dimensions is not None and "dense" in request.outputs and not 1 <= dimensions <= dims:
            raise InvalidRequest(f"dimensions is {dimensions}; {self.name} allows 1 to {dims}", param="dimensions")
        for name, least in (("max_tokens", self.tokenizer.least_tokens), ("second_tokens", 1)):
            value = getattr(request.options, name)
            if value is not None and value < least:
                raise InvalidRequest(f"{name} is {value}; {self.name} needs at least {least}", param=name)

    def check_inputs(self, inputs: Sequence[Input]) -> None:
        """Refuse too many inputs, and empty ones.

        Raises:
            EmptyInput: There is none, or one has no content.
            TooManyInputs: A request may not hold so many.
        """
        count, limit = len(inputs), self.settings.max_inputs
        if not count:
            raise EmptyInput("input is an empty list; at least one input is needed", param="input")
        if count > limit:
            raise TooManyInputs(count, limit)
        for number, one in enumerate(inputs):
            if not one:
                kind = "string" if isinstance(one, str) else "list of token ids"
                raise EmptyInput(f"input[{number}] is an empty {kind}; every input needs content", param="input")
            if isinstance(one, Pair) and not (one.first or one.second):
                raise EmptyInput(f"input[{number}] is a pair of empty texts; one needs content", param="input")

    def prompt(self, options: Options) -> str:
        """What goes before each text.

        Raises:
            InvalidRequest: The model has no prompt of the name that is given.
        """
        prompts = self.spec.prompts
        if options.role and not options.prompt_name:
            return next((prompts[name] for name in options.role if name in prompts), "")
        name = options.prompt_name or self.spec.default_prompt
        if name is None or (self.spec.late is not None and name in SIDES and name not in prompts):
            return ""
        if name not in prompts:
            known = ", ".join(sorted(prompts)) or "none"
            raise InvalidRequest(f"prompt_name is {name!r}; {self.name} has: {known}", param="prompt_name")
        return prompts[name]

    def _tokenize(self, request: Request, prompt: str) -> tuple[list[Tokens], str | None]:
        """Each kind of input is tokenised together and put back where it stood."""
        options, numbered = request.options, list(enumerate(request.inputs))
        texts = {number: one for number, one in numbered if isinstance(one, str)}
        pairs = {number: one for number, one in numbered if isinstance(one, Pair)}
        arrays = {number: one for number, one in numbered if isinstance(one, list)}
        cut = Cut(options.truncation_side, options.max_tokens, options.second_tokens)
        done: dict[int, Tokens] = {}
        vocabulary = None
        if texts:
            done |= zip(
                texts, self.tokenizer.encode(list(texts.values()), prompt, cut, self._side(options)), strict=True
            )
        if pairs:
            done |= zip(pairs, self._tokenize_pairs(list(pairs.values()), options, cut), strict=True)
        if arrays:
            found, vocabulary = self._tokenize_ids(list(arrays.values()), options, prompt, cut)
            done |= zip(arrays, found, strict=True)
        return [done[number] for number, _ in numbered], vocabulary

    def _tokenize_ids(
        self, arrays: list[list[int]], options: Options, prompt: str, cut: Cut
    ) -> tuple[list[Tokens], str | None]:
        side = self._side(options)
        reading = read_token_ids(
            arrays,
            self.tokenizer.native,
            policy=options.token_vocabulary or self.settings.token_ids,
            likely_tiktoken=options.likely_tiktoken,
        )
        if reading.texts is None:
            return self.tokenizer.encode_ids(arrays, prompt, cut, side), reading.vocabulary
        return self.tokenizer.encode(reading.texts, prompt, cut, side), reading.vocabulary

    def _side(self, options: Options) -> str | None:
        """Whether inputs are queries or documents, where the model tells them apart."""
        named = (options.prompt_name, *options.role, self.spec.default_prompt)
        return next((name for name in named if name in SIDES), None)

    def _tokenize_pairs(self, pairs: list[Pair], options: Options, cut: Cut) -> list[Tokens]:
        if self.spec.scores is None:
            raise InvalidRequest(f"input holds pairs of texts, which {self.name} does not read together", param="input")
        return self.tokenizer.encode_pairs(pairs, options.instruction, cut)

    def _refuse_unknown(self, tokens: list[Tokens]) -> None:
        """Without special tokens a text of spaces, or of unknown words, has nothing to embed."""
        for number, one in enumerate(tokens):
            if not len(one.ids):
                message = f"input[{number}] holds no token that {self.name} knows, so it has no vector"
                raise InvalidRequest(message, param="input")

    def _refuse_long(self, tokens: list[Tokens], own: int, max_tokens: int | None) -> None:
        limit, whose = (max_tokens, "this request") if max_tokens and max_tokens < own else (own, self.name)
        for number, one in enumerate(tokens):
            if one.truncated:
                raise InputTooLong(
                    f"input[{number}] has more than {limit} tokens, the limit of {whose}; "
                    "shorten it or let it be truncated",
                    param="input",
                    code="context_length_exceeded",
                )

    def _result(
        self, request: Request, prepared: Prepared, columns: list[Column], started: float, ran: float
    ) -> Result:
        given: dict[Output, Any] = dict(zip(request.outputs, columns, strict=True))
        options, scores = request.options, given.get("scores", nothing())
        if self.spec.scores and not options.raw_scores:
            scores = ACTIVATIONS[self.spec.scores.activation](scores)
        rows = self._rows(given["dense"], options) if "dense" in given else nothing()
        total = time.perf_counter() - started
        return Result(
            model=self.name,
            rows=rows,
            sparse=given.get("sparse", []),
            multi=kept(given.get("multi", []), prepared.tokens),
            scores=scores,
            labels=self.spec.scores.labels if self.spec.scores else (),
            tokens=[len(one.ids) for one in prepared.tokens],
            truncated=sum(one.truncated for one in prepared.tokens),
            token_vocabulary=prepared.vocabulary,
            timings=Timings(
                tokenize_s=prepared.seconds,
                queue_s=max(0.0, ran - started - prepared.seconds),
                compute_s=total - prepared.seconds,
                total_s=total,
            ),
        )

    def _rows(self, rows: NDArray[np.float32], options: Options) -> NDArray[np.float32]:
        cut = options.dimensions not in {None, rows.shape[1]}
        scale = self.spec.normalized or cut if options.normalize is None else options.normalize
        return vectors(rows, options.dimensions, scale=scale)

    def _meant(self, request: Request) -> Request:
        return request if request.outputs else replace(request, outputs=self.spec.outputs[:1])
