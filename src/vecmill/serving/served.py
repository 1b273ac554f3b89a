"""A model under its name: check, tokenize, queue, await, finish. The one path of every transport and of `Embedder`."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import Options, Request, Result, Timings
from vecmill.engine.base import Engine, usable_cpus
from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.model.spec import ModelSpec
from vecmill.model.tokenizer import Tokenizer, Tokens
from vecmill.model.vocabulary import read_token_ids
from vecmill.serving.events import Events
from vecmill.serving.finish import finish
from vecmill.serving.runner import Runner

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
            dims=spec.dims,
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
        started = time.perf_counter()
        if _small(request):
            prepared = self.prepare(request)
        else:
            prepared = await asyncio.get_running_loop().run_in_executor(self._tokenizing, self.prepare, request)
        job = self.runner.submit([tokens.ids for tokens in prepared.tokens])
        rows = await asyncio.wrap_future(job.future)
        return self._result(request, prepared, rows, started)

    def compute(self, request: Request) -> Result:
        """Answer a request on this thread, which waits.

        Raises:
            RequestError: As `submit`.
        """
        started = time.perf_counter()
        prepared = self.prepare(request)
        rows = self.runner.submit([tokens.ids for tokens in prepared.tokens]).future.result()
        return self._result(request, prepared, rows, started)

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
            self._refuse_long(tokens)
        return Prepared(tokens, vocabulary, time.perf_counter() - started)

    def close(self) -> None:
        """Stop the threads and give the memory back."""
        self.runner.close()
        self._tokenizing.shutdown()

    def _check(self, request: Request) -> None:
        count, limit = len(request.inputs), self._settings.max_inputs
        if not count:
            raise InvalidRequest("input is an empty list; at least one input is needed", param="input")
        if count > limit:
            raise InvalidRequest(f"{count} inputs; a request may hold at most {limit}", param="input")
        for number, text in enumerate(request.inputs):
            if not text:
                kind = "string" if isinstance(text, str) else "list of token ids"
                raise InvalidRequest(f"input[{number}] is an empty {kind}; every input needs content", param="input")
        dimensions, dims = request.options.dimensions, self.spec.dims
        if dimensions is not None and not 1 <= dimensions <= dims:
            raise InvalidRequest(f"dimensions is {dimensions}; {self.name} allows 1 to {dims}", param="dimensions")

    def _prompt(self, options: Options) -> str:
        name = options.prompt_name or self.spec.default_prompt
        if name is None:
            return ""
        if name not in self.spec.prompts:
            known = ", ".join(sorted(self.spec.prompts)) or "none"
            raise InvalidRequest(f"prompt_name is {name!r}; {self.name} has: {known}", param="prompt_name")
        return self.spec.prompts[name]

    def _tokenize(self, request: Request, prompt: str) -> tuple[list[Tokens], str | None]:
        texts = [text for text in request.inputs if isinstance(text, str)]
        arrays = [ids for ids in request.inputs if not isinstance(ids, str)]
        if not arrays:
            return self.tokenizer.encode(texts, prompt), None
        if texts:
            raise InvalidRequest("input mixes strings and token ids; send one kind", param="input")
        reading = read_token_ids(
            arrays,
            self.tokenizer.native,
            policy=request.options.token_vocabulary or self._settings.token_ids,
            likely_tiktoken=request.options.likely_tiktoken,
        )
        if reading.texts is None:
            return self.tokenizer.encode_ids(arrays, prompt), reading.vocabulary
        return self.tokenizer.encode(reading.texts, prompt), reading.vocabulary

    def _refuse_unknown(self, tokens: list[Tokens]) -> None:
        """Without special tokens a text of spaces, or of unknown words, has nothing to embed."""
        for number, one in enumerate(tokens):
            if not len(one.ids):
                message = f"input[{number}] holds no token that {self.name} knows, so it has no vector"
                raise InvalidRequest(message, param="input")

    def _refuse_long(self, tokens: list[Tokens]) -> None:
        for number, one in enumerate(tokens):
            if one.truncated:
                raise InputTooLong(
                    f"input[{number}] has more than {self.spec.max_tokens} tokens, the limit of {self.name}; "
                    "shorten it or leave truncate at true",
                    param="input",
                    code="context_length_exceeded",
                )

    def _result(self, request: Request, prepared: Prepared, rows: NDArray[np.float32], started: float) -> Result:
        rows = finish(rows, request.options)
        total = time.perf_counter() - started
        return Result(
            model=self.name,
            rows=rows,
            tokens=[len(one.ids) for one in prepared.tokens],
            truncated=sum(one.truncated for one in prepared.tokens),
            token_vocabulary=prepared.vocabulary,
            timings=Timings(tokenize_s=prepared.seconds, compute_s=total - prepared.seconds, total_s=total),
        )


def _small(request: Request) -> bool:
    return sum(len(text) if isinstance(text, str) else INLINE_CHARS + 1 for text in request.inputs) <= INLINE_CHARS
