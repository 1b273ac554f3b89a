"""A request with its inputs as tokens, and what is asked of them before and after the engine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vecmill.config import Settings
from vecmill.core import Input, Options, Pair, Request
from vecmill.errors import EmptyInput, InputTooLong, InvalidRequest, TooManyInputs, WrongTask
from vecmill.model.late import DOCUMENT, QUERY
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import chat_template
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import Cut, Tokens
from vecmill.model.vocabulary import read_token_ids

template_of = cache(chat_template)  # read once, not with each request

SIDES = (QUERY, DOCUMENT)

INLINE_CHARS = 2000
"""Texts up to this many characters are tokenised on the caller's thread: a hop to another costs more."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready for the queue."""

    tokens: list[Tokens]
    vocabulary: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Preparing:
    """What becomes of a request before it is queued: checked, its prompt chosen, its inputs tokenised.

    Attributes:
        name: Served name.
        spec: The model.
        tokenizer: The model's.
        settings: Limits.
    """

    name: str
    spec: ModelSpec
    tokenizer: Tokenizer
    settings: Settings

    def __call__(self, request: Request) -> Prepared:
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

    def _check(self, request: Request) -> None:
        for output in request.outputs:
            if output not in self.spec.outputs:
                raise WrongTask(self.name, output, self.spec.outputs)
        if request.ranks and self.spec.width("scores") != 1:
            raise WrongTask(self.name, "one score to rank by", [f"scores of {self.spec.width('scores')} labels"])
        if request.options.conversation and template_of(self.spec.folder):
            message = f"messages are not served by {self.name}: it has a chat template of its own, which is not applied"
            raise InvalidRequest(message, param="messages")
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


def kept(vectors: Sequence[NDArray[np.float32]], tokens: list[Tokens]) -> list[NDArray[np.float32]]:
    """Vectors of the tokens that count."""
    return [rows if one.kept is None else rows[one.kept] for rows, one in zip(vectors, tokens, strict=False)]


def is_small(request: Request) -> bool:
    """Whether a request is tokenised where it arrives."""
    return sum(_chars(one) for one in request.inputs) <= INLINE_CHARS


def _chars(one: Input) -> int:
    """Characters to tokenise; ids count as many, because whose they are takes time to tell."""
    if isinstance(one, Pair):
        return len(one.first) + len(one.second)
    return len(one) if isinstance(one, str) else INLINE_CHARS + 1
