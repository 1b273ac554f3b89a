"""From a request to what waits in the queue: checked, its prompt chosen, its inputs tokenised."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from vecmill.config import Settings
from vecmill.core import DENSE, Input, Options, Output, Pair, Request
from vecmill.errors import EmptyInput, InputTooLong, InvalidRequest, RequestError, TooManyInputs, WrongTask
from vecmill.model.chunks import Chunk, split
from vecmill.model.late import DOCUMENT, QUERY
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import chat_template
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.tokens import Cut, Tokens
from vecmill.model.vocabulary import read_token_ids
from vecmill.serving.prepared import Prepared

template_of = cache(chat_template)  # read once, not with each request

SIDES = (QUERY, DOCUMENT)

INLINE_CHARS = 2000
"""Texts up to this many characters are tokenised on the caller's thread: a hop to another costs more."""

AN_INPUT, A_TOKEN = 20, 5
"""Characters that take as long as an input without any, and those of a token; more or less."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """What becomes of a request before it is queued: checked, its prompt chosen, its inputs tokenised.

    Attributes:
        name: Served name.
        spec: The model.
        tokenizer: The model's.
        settings: Limits.
        outputs: What the model gives on the engine that it has.
    """

    name: str
    spec: ModelSpec
    tokenizer: Tokenizer
    settings: Settings
    outputs: tuple[Output, ...]

    def __call__(self, request: Request) -> Prepared:
        """Check and tokenise.

        Raises:
            InvalidRequest: An input, the number of inputs or an option is wrong.
            InputTooLong: An input is too long and truncation was refused.
        """
        started = time.perf_counter()
        self.check(request)
        prompt = self.prompt(request.options)
        options, faults = request.options, dict(empty(request.inputs)) if request.lenient else {}
        places = [number for number in range(len(request.inputs)) if number not in faults]
        inputs, vocabulary = self.read([request.inputs[place] for place in places], options)
        parts: list[Chunk] = []
        owners: list[int] = []
        for place, given, one in zip(places, inputs, self._tokenize(inputs, options, prompt), strict=True):
            try:
                parts += self._parts(place, given, one, options, prompt)
            except InvalidRequest as fault:
                if not request.lenient or fault.param != "input":
                    raise
                faults[place] = fault
            owners += [place] * (len(parts) - len(owners))
        return Prepared(
            [part.tokens for part in parts],
            owners,
            [part.weight for part in parts],
            faults,
            vocabulary,
            time.perf_counter() - started,
        )

    def guess(self, request: Request) -> list[int]:
        """About how many tokens each input has, without reading it."""
        tokens = (len(one) if isinstance(one, list) else 1 + _chars(one) // A_TOKEN for one in request.inputs)
        return [min(count, self.spec.max_tokens) for count in tokens]

    def check(self, request: Request) -> None:
        """Refuse a request for what it asks, before its inputs are read.

        Raises:
            WrongTask: The model does not give that.
            InvalidRequest: An option is wrong, there are too many inputs, or one is empty.
        """
        for output in request.outputs:
            if output not in self.outputs:
                raise WrongTask(self.name, output, self.outputs)
        if request.ranks and self.spec.width("scores") != 1:
            raise WrongTask(self.name, "one score to rank by", [f"scores of {self.spec.width('scores')} labels"])
        if request.options.conversation and template_of(self.spec.folder):
            message = f"messages are not served by {self.name}: it has a chat template of its own, which is not applied"
            raise InvalidRequest(message, param="messages")
        (self._check_count if request.lenient else self.check_inputs)(request.inputs)
        dimensions, dims = request.options.dimensions, self.spec.dims
        if dimensions is not None and "dense" in request.outputs and not 1 <= dimensions <= dims:
            raise InvalidRequest(f"dimensions is {dimensions}; {self.name} allows 1 to {dims}", param="dimensions")
        if request.options.chunked and request.outputs != DENSE:
            wanted = " and ".join(request.outputs)
            raise InvalidRequest(f"only vectors have a mean over chunks, and {wanted} is asked", param="long_inputs")
        self._check_cut(request.options)

    def _check_cut(self, options: Options) -> None:
        if options.max_tokens is None is options.second_tokens:
            return
        for name, least in (("max_tokens", self.tokenizer.least_tokens), ("second_tokens", 1)):
            value = getattr(options, name)
            if value is not None and value < least:
                raise InvalidRequest(f"{name} is {value}; {self.name} needs at least {least}", param=name)

    def check_inputs(self, inputs: Sequence[Input]) -> None:
        """Refuse too many inputs, and empty ones.

        Raises:
            EmptyInput: There is none, or one has no content.
            TooManyInputs: A request may not hold so many.
        """
        self._check_count(inputs)
        for _, fault in empty(inputs):
            raise fault

    def _check_count(self, inputs: Sequence[Input]) -> None:
        count, limit = len(inputs), self.settings.max_inputs
        if not count:
            raise EmptyInput("input is an empty list; at least one input is needed", param="input")
        if count > limit:
            raise TooManyInputs(count, limit)

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

    def read(self, inputs: list[Input], options: Options) -> tuple[list[Input], str | None]:
        """The inputs with token ids of another vocabulary as the texts that they spell, and which vocabulary it is."""
        if list not in map(type, inputs):
            return inputs, None
        arrays = {number: one for number, one in enumerate(inputs) if isinstance(one, list)}
        reading = read_token_ids(
            list(arrays.values()),
            self.tokenizer.native,
            policy=options.token_vocabulary or self.settings.token_ids,
            likely_tiktoken=options.likely_tiktoken,
        )
        if reading.texts is None:
            return inputs, reading.vocabulary
        spelled = dict(zip(arrays, reading.texts, strict=True))
        return [spelled.get(number, one) for number, one in enumerate(inputs)], reading.vocabulary

    def _tokenize(self, inputs: list[Input], options: Options, prompt: str) -> list[Tokens]:
        """Each kind of input is tokenised together and put back where it stood."""
        side, cut = self._side(options), cut_of(options)
        if len(alone := [one for one in inputs if isinstance(one, str)]) == len(inputs):
            return self.tokenizer.encode(alone, prompt, cut, side)
        numbered = list(enumerate(inputs))
        texts = {number: one for number, one in numbered if isinstance(one, str)}
        pairs = {number: one for number, one in numbered if isinstance(one, Pair)}
        arrays = {number: one for number, one in numbered if isinstance(one, list)}
        done: dict[int, Tokens] = {}
        if texts:
            done |= zip(texts, self.tokenizer.encode(list(texts.values()), prompt, cut, side), strict=True)
        if pairs:
            done |= zip(pairs, self._tokenize_pairs(list(pairs.values()), options, cut, prompt), strict=True)
        if arrays:
            done |= zip(arrays, self.tokenizer.encode_ids(list(arrays.values()), prompt, cut, side), strict=True)
        return [done[number] for number, _ in numbered]

    def _parts(self, number: int, given: Input, one: Tokens, options: Options, prompt: str) -> list[Chunk]:
        """An input as the engine reads it: whole, or in chunks.

        Raises:
            InputTooLong: It may not be cut, or makes too many chunks.
            InvalidRequest: It has no token, or one without a row, or the prompt leaves no room for chunks.
        """
        parts, most = [Chunk(one, 1)], self.settings.max_inputs
        if len(one.ids) and not one.truncated and not self.tokenizer.rowless:
            return parts
        if options.chunked and one.truncated and not isinstance(given, Pair):
            parts = split(self.tokenizer, given, prompt, cut_of(options), self._side(options)) or parts
            if len(parts) > most:
                raise too_long(f"input[{number}] makes {len(parts)} chunks; an input may make at most {most}")
        elif one.truncated and not options.truncate:
            raise self._long(number, options)
        if not len(parts[0].tokens.ids):  # without special tokens a text of spaces or unknown words has none
            message = f"input[{number}] holds no token that {self.name} knows, so it has no vector"
            raise InvalidRequest(message, param="input")
        for part in parts:
            self.tokenizer.check(part.tokens.ids, f"input[{number}]")
        return parts

    def _long(self, number: int, options: Options) -> InputTooLong:
        own, most = self.tokenizer.limit(self._side(options)), options.max_tokens
        limit, whose = (most, "this request") if most and most < own else (own, self.name)
        return too_long(
            f"input[{number}] has more than {limit} tokens, the limit of {whose}; shorten it or let it be truncated"
        )

    def _side(self, options: Options) -> str | None:
        """Whether inputs are queries or documents, where the model tells them apart."""
        if self.spec.late is None:
            return None
        named = (options.prompt_name, *options.role, self.spec.default_prompt)
        return next((name for name in named if name in SIDES), None)

    def _tokenize_pairs(self, pairs: list[Pair], options: Options, cut: Cut, prompt: str) -> list[Tokens]:
        if self.spec.scores is None:
            raise InvalidRequest(f"input holds pairs of texts, which {self.name} does not read together", param="input")
        return self.tokenizer.encode_pairs(pairs, options.instruction, cut, prompt)


def empty(inputs: Sequence[Input]) -> Iterator[tuple[int, RequestError]]:
    """The places of inputs without content, and what is wrong with each."""
    for number, one in enumerate(inputs):
        if not one:
            kind = "string" if isinstance(one, str) else "list of token ids"
            message = f"input[{number}] is an empty {kind}; every input needs content"
            yield number, EmptyInput(message, param="input")
        elif isinstance(one, Pair) and not (one.first or one.second):
            yield number, EmptyInput(f"input[{number}] is a pair of empty texts; one needs content", param="input")


def too_long(message: str) -> InputTooLong:
    """The error of an input that the model does not take whole."""
    return InputTooLong(message, param="input", code="context_length_exceeded")


def cut_of(options: Options) -> Cut:
    """How a request wishes long inputs to be cut."""
    return Cut(options.truncation_side, options.max_tokens, options.second_tokens)


def is_small(request: Request) -> bool:
    """Whether a request is tokenised where it arrives."""
    left = INLINE_CHARS
    for one in request.inputs:
        left -= AN_INPUT + _chars(one)
        if left < 0:
            return False
    return True


def _chars(one: Input) -> int:
    """Characters to tokenise; ids count as many, because whose they are takes time to tell."""
    if isinstance(one, str):
        return len(one)
    return len(one.first) + len(one.second) if isinstance(one, Pair) else INLINE_CHARS + len(one)
