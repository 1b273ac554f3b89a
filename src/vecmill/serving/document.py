"""A request whose inputs are the chunks of one document: checked and tokenised together, each pooled for itself."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from vecmill.core import DENSE, Caller, Input, Output, Request
from vecmill.engine.base import Column
from vecmill.errors import EngineFailed, InvalidRequest, RequestError
from vecmill.model.chunks import room
from vecmill.model.document import Document, Reading, of_ids, of_texts, read
from vecmill.model.modules import Normalize
from vecmill.model.spec import ModelSpec
from vecmill.model.static import STATIC
from vecmill.serving.asking import Answers, Asking
from vecmill.serving.ending import Ending
from vecmill.serving.finish import sound
from vecmill.serving.prepared import Prepared
from vecmill.serving.preparing import Preparing, cut_of, empty, too_long
from vecmill.serving.steps import Steps, Wait

TOGETHER = 32_768
"""Tokens of windows whose states are in memory at once: 100 MB at 768 numbers each."""

FIELD = "one_document"

Floats = NDArray[np.float32]


def refusal(spec: ModelSpec, outputs: Sequence[Output]) -> str | None:
    """Why a model cannot give chunks of a document vectors of their own; None where it can.

    Args:
        spec: The model.
        outputs: What its engine gives.
    """
    if spec.family == STATIC:
        return "it looks words up, and none of them depends on the others"
    if spec.late is not None:
        return "its tokens have vectors of their own, for late interaction"
    if spec.pooling != ("mean",):
        return f"its vectors are no mean of token states, but are pooled by {' and '.join(spec.pooling) or 'nothing'}"
    strange = next((module for module in spec.tail if not isinstance(module, Normalize)), None)
    if strange is not None:
        return f"a {type(strange).__name__} module follows its pooling"
    return None if "multi" in outputs else "its engine gives pooled vectors and no token states"


@dataclass(frozen=True, slots=True)
class Documents:
    """What becomes of such a request before it is queued.

    Attributes:
        preparing: The same of any request.
        refusal: Why the model cannot answer it; None where it can.
    """

    preparing: Preparing
    refusal: str | None

    def __call__(self, request: Request) -> Prepared:
        """Check and tokenise. Inputs with errors of their own, where the request allows them, are left out.

        Raises:
            InvalidRequest: The model or an option does not allow it, or an input is wrong.
            InputTooLong: A chunk is longer than the model takes and truncation was refused, or the document is too
                long.
        """
        started = time.perf_counter()
        self.preparing.check(request)
        self._check(request)
        options, name = request.options, self.preparing.name
        prompt, cut = self.preparing.prompt(options), cut_of(options)
        faults: dict[int, RequestError] = dict(empty(request.inputs)) if request.lenient else {}
        vocabulary = None
        while places := [place for place in range(len(request.inputs)) if place not in faults]:
            chunks, vocabulary = self.preparing.read([request.inputs[place] for place in places], options)
            document = self._tokenize(chunks, prompt)
            wrong = dict(
                _wrong(document, places, room(self.preparing.tokenizer, len(document.lead), cut), name, request)
            )
            if not wrong:
                counts_prompt = self.preparing.spec.mark != "prompt"
                reading = read(self.preparing.tokenizer, document, cut, counts_prompt=counts_prompt)
                return self._prepared(reading, places, faults, vocabulary, started)
            if not request.lenient:
                raise next(iter(wrong.values()))
            faults |= wrong
        return Prepared([], [], [], faults, vocabulary, time.perf_counter() - started)

    def _check(self, request: Request) -> None:
        if self.refusal:
            raise InvalidRequest(f"{self.preparing.name} does no late chunking: {self.refusal}", param=FIELD)
        if request.outputs != DENSE:
            wanted = " and ".join(request.outputs)
            raise InvalidRequest(f"late chunking gives vectors of chunks, and {wanted} is asked", param=FIELD)
        if request.options.chunked:
            raise InvalidRequest("a long document is read in windows, so its chunks have no mean", param="long_inputs")

    def _tokenize(self, chunks: list[Input], prompt: str) -> Document:
        texts = [chunk for chunk in chunks if isinstance(chunk, str)]
        arrays = [chunk for chunk in chunks if isinstance(chunk, list)]
        if len(texts) == len(chunks):
            return of_texts(self.preparing.tokenizer, texts, prompt)
        if len(arrays) == len(chunks):
            return of_ids(self.preparing.tokenizer, arrays, prompt)
        raise InvalidRequest("the chunks of a document are all texts, or all arrays of token ids", param="input")

    def _prepared(
        self,
        reading: Reading,
        places: list[int],
        faults: dict[int, RequestError],
        vocabulary: str | None,
        started: float,
    ) -> Prepared:
        count, most = len(reading.windows), self.preparing.settings.max_inputs
        if count > most:
            message = f"the document makes {count} windows of {self.preparing.name}; it may make at most {most}"
            raise too_long(message)
        owners = [places[chunk] for chunk in reading.first]
        seconds = time.perf_counter() - started
        return Prepared(reading.windows, owners, [1] * count, faults, vocabulary, seconds, reading)


def _wrong(
    document: Document, places: Sequence[int], most: int, name: str, request: Request
) -> Iterator[tuple[int, RequestError]]:
    """The places of chunks that can have no vector, and why."""
    for place, size in zip(places, document.sizes, strict=True):
        if not size:
            message = f"input[{place}] holds no token that {name} knows, so it has no vector"
            yield place, InvalidRequest(message, param="input")
        elif size > most and not request.options.truncate:
            message = f"input[{place}] has {size} tokens, more than the {most} that {name} takes at a time here"
            yield place, too_long(message)


def answers(
    asking: Asking, request: Request, prepared: Prepared, reading: Reading, caller: Caller, aside: Executor
) -> Steps[Answers]:
    """The vectors of a document's chunks, as the model gives them before it would normalise.

    States of tokens are neither remembered nor shared: they are hundreds of times as large as what comes of them. For
    the same reason only so many are asked for at a time.

    Args:
        asking: The model's answers.
        request: What is wanted.
        prepared: The windows.
        reading: Where the states of each chunk are in them.
        caller: Who asks.
        aside: Where states are added up.

    Raises:
        RequestError: As `Asking.answers`; EngineFailed also where a chunk's states have no mean other than zero.
    """
    asked = replace(request, outputs=("multi",), options=replace(request.options, no_store=True))
    sums, started = Sums(reading), 0.0
    each = max(1, TOGETHER // len(prepared.tokens[0].ids)) if prepared.tokens else 1
    for first in range(0, len(prepared.tokens), each):
        part = slice(first, first + each)
        found = yield from asking.answers(asked, prepared.tokens[part], caller, prepared.owners[part])
        started = started or found.started
        added: Ending[None] = Ending()
        aside.submit(added.settle, partial(sums.add, first, found.columns[0]))
        yield Wait(added)
        del found
    places = [place for place in range(len(request.inputs)) if place not in prepared.faults]
    return Answers([sums.means(places)], 0, started)


class Sums:
    """The states of each chunk's tokens added up, window by window; in float64, as a chunk may be long.

    Args:
        reading: Where they are.
    """

    def __init__(self, reading: Reading) -> None:
        self._parts: dict[int, list[tuple[int, slice]]] = {}
        self._sizes = np.zeros((len(reading.parts), 1))
        for chunk, parts in enumerate(reading.parts):
            for part in parts:
                self._parts.setdefault(part.window, []).append((chunk, slice(part.start, part.stop)))
                self._sizes[chunk] += part.stop - part.start
        self._totals: NDArray[np.float64] | None = None

    def add(self, first: int, states: Column) -> None:
        """The states of a window and those after it, float32 [tokens, width] each."""
        for window, rows in enumerate(map(np.asarray, states), first):
            if self._totals is None:
                self._totals = np.zeros((len(self._sizes), rows.shape[1]))
            for chunk, tokens in self._parts.get(window, ()):
                self._totals[chunk] += np.add.reduce(rows[tokens], axis=0, dtype=np.float64)

    def means(self, places: Sequence[int]) -> Floats:
        """The mean of each chunk, float32 [chunks, width].

        Args:
            places: What the caller calls each of them in errors.

        Raises:
            EngineFailed: One is no vector.
        """
        totals = self._totals if self._totals is not None else np.zeros((0, 0))
        rows: Floats = (totals / self._sizes).astype(np.float32)
        lost = np.flatnonzero(~sound("dense", rows))
        if len(lost):
            raise EngineFailed(f"input {places[lost[0]]}: the states of its tokens have no mean other than zero")
        return rows
