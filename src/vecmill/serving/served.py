"""A model under its name: check, tokenize, queue, await, finish. The one path of every transport and of `Embedder`."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import Input, Options, Output, Pair, Request, Result, Timings, nothing
from vecmill.engine.base import Column, Engine, usable_cpus
from vecmill.errors import InputTooLong, InvalidRequest, WrongTask
from vecmill.model.late import SIDES
from vecmill.model.spec import ModelSpec
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import Tokens
from vecmill.model.vocabulary import read_token_ids
from vecmill.serving import maxsim
from vecmill.serving.events import Events
from vecmill.serving.finish import ACTIVATIONS, shorten
from vecmill.serving.runner import Job, Runner

INLINE_CHARS = 2000
"""Texts up to this many characters are tokenised on the caller's thread: a hop to another costs more."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready for the queue."""

    tokens: list[Tokens]
    vocabulary: str | None
    seconds: float


class ServedModel:
    """One loaded model.

    Args:
        name: Served name.
        spec: What it is.
        engine: Owned from here on.
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
        self._settings = settings
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
        if _small(request):
            prepared = self.prepare(request)
        else:
            prepared = await asyncio.get_running_loop().run_in_executor(self._tokenizing, self.prepare, request)
        columns = await asyncio.wrap_future(self._queue(request, prepared).future)
        return self._result(request, prepared, columns, started)

    def compute(self, request: Request) -> Result:
        """Answer a request on this thread, which waits.

        Raises:
            RequestError: As `submit`.
        """
        if self._by_maxsim(request):
            queries, documents = maxsim.split(request)
            return maxsim.join(request, self.compute(queries), self.compute(documents))
        started = time.perf_counter()
        prepared = self.prepare(request)
        columns = self._queue(request, prepared).future.result()
        return self._result(request, prepared, columns, started)

    def prepare(self, request: Request) -> Prepared:
        """Check and tokenise.

        Raises:
            InvalidRequest: An input, the number of inputs or an option is wrong.
            InputTooLong: An input is too long and truncation was refused.
        """
        started = time.perf_counter()
        self._check(request)
        prompt = self._prompt(request.options)
        tokens, vocabulary = self._tokenize(request, prompt)
        self._refuse_unknown(tokens)
        if not request.options.truncate:
            self._refuse_long(tokens, self.tokenizer.limit(self._side(request.options)))
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
        count, limit = len(request.inputs), self._settings.max_inputs
        if not count:
            raise InvalidRequest("input is an empty list; at least one input is needed", param="input")
        if count > limit:
            raise InvalidRequest(f"{count} inputs; a request may hold at most {limit}", param="input")
        for number, one in enumerate(request.inputs):
            if not one:
                kind = "string" if isinstance(one, str) else "list of token ids"
                raise InvalidRequest(f"input[{number}] is an empty {kind}; every input needs content", param="input")
            if isinstance(one, Pair) and not (one.first and one.second):
                raise InvalidRequest(f"input[{number}] is a pair with an empty text; both need content", param="input")
        dimensions, dims = request.options.dimensions, self.spec.dims
        if dimensions is not None and "dense" in request.outputs and not 1 <= dimensions <= dims:
            raise InvalidRequest(f"dimensions is {dimensions}; {self.name} allows 1 to {dims}", param="dimensions")

    def _prompt(self, options: Options) -> str:
        name = options.prompt_name or self.spec.default_prompt
        if name is None or (self.spec.late is not None and name in set(SIDES) - self.spec.prompts.keys()):
            return ""
        if name not in self.spec.prompts:
            known = ", ".join(sorted(self.spec.prompts)) or "none"
            raise InvalidRequest(f"prompt_name is {name!r}; {self.name} has: {known}", param="prompt_name")
        return self.spec.prompts[name]

    def _tokenize(self, request: Request, prompt: str) -> tuple[list[Tokens], str | None]:
        texts = [one for one in request.inputs if isinstance(one, str)]
        pairs = [one for one in request.inputs if isinstance(one, Pair)]
        arrays = [one for one in request.inputs if isinstance(one, list)]
        if max(len(texts), len(pairs), len(arrays)) < len(request.inputs):
            raise InvalidRequest("input mixes strings, token ids and pairs; send one kind", param="input")
        if pairs:
            return self._tokenize_pairs(pairs, request.options), None
        side = self._side(request.options)
        if texts:
            return self.tokenizer.encode(texts, prompt, side), None
        reading = read_token_ids(
            arrays,
            self.tokenizer.native,
            policy=request.options.token_vocabulary or self._settings.token_ids,
            likely_tiktoken=request.options.likely_tiktoken,
        )
        if reading.texts is None:
            return self.tokenizer.encode_ids(arrays, prompt, side), reading.vocabulary
        return self.tokenizer.encode(reading.texts, prompt, side), reading.vocabulary

    def _side(self, options: Options) -> str | None:
        """Whether inputs are queries or documents, where the model tells them apart."""
        return options.prompt_name or self.spec.default_prompt

    def _tokenize_pairs(self, pairs: list[Pair], options: Options) -> list[Tokens]:
        if self.spec.scores is None:
            raise InvalidRequest(f"input holds pairs of texts, which {self.name} does not read together", param="input")
        return self.tokenizer.encode_pairs(pairs, options.instruction)

    def _refuse_unknown(self, tokens: list[Tokens]) -> None:
        """Without special tokens a text of spaces, or of unknown words, has nothing to embed."""
        for number, one in enumerate(tokens):
            if not len(one.ids):
                message = f"input[{number}] holds no token that {self.name} knows, so it has no vector"
                raise InvalidRequest(message, param="input")

    def _refuse_long(self, tokens: list[Tokens], limit: int) -> None:
        for number, one in enumerate(tokens):
            if one.truncated:
                raise InputTooLong(
                    f"input[{number}] has more than {limit} tokens, the limit of {self.name}; "
                    "shorten it or leave truncate at true",
                    param="input",
                    code="context_length_exceeded",
                )

    def _result(self, request: Request, prepared: Prepared, columns: list[Column], started: float) -> Result:
        given: dict[Output, Any] = dict(zip(request.outputs, columns, strict=True))
        options, scores = request.options, given.get("scores", nothing())
        if self.spec.scores and not options.raw_scores:
            scores = ACTIVATIONS[self.spec.scores.activation](scores)
        rows = shorten(given["dense"], options.dimensions) if "dense" in given else nothing()
        total = time.perf_counter() - started
        return Result(
            model=self.name,
            rows=rows,
            sparse=given.get("sparse", []),
            multi=_kept(given.get("multi", []), prepared.tokens),
            scores=scores,
            labels=self.spec.scores.labels if self.spec.scores else (),
            tokens=[len(one.ids) for one in prepared.tokens],
            truncated=sum(one.truncated for one in prepared.tokens),
            token_vocabulary=prepared.vocabulary,
            timings=Timings(tokenize_s=prepared.seconds, compute_s=total - prepared.seconds, total_s=total),
        )


def _kept(vectors: Sequence[NDArray[np.float32]], tokens: list[Tokens]) -> list[NDArray[np.float32]]:
    """Vectors of the tokens that count."""
    return [rows if one.kept is None else rows[one.kept] for rows, one in zip(vectors, tokens, strict=False)]


def _small(request: Request) -> bool:
    return sum(_chars(one) for one in request.inputs) <= INLINE_CHARS


def _chars(one: Input) -> int:
    """Characters to tokenise; ids count as many, because whose they are takes time to tell."""
    if isinstance(one, Pair):
        return len(one.first) + len(one.second)
    return len(one) if isinstance(one, str) else INLINE_CHARS + 1
