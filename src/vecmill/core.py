"""The shared words of every layer: what is asked and what is answered. Imports nothing of ours but errors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.errors import RequestError


class Pair(msgspec.Struct, frozen=True):
    """Two texts that the model reads together: a query and a document, a premise and a hypothesis."""

    first: str
    second: str


Input = str | list[int] | Pair
"""One thing to read: a text, token ids, or two texts together."""

Output = Literal["dense", "sparse", "multi", "scores"]
"""What can be asked of a model: a vector, weights of vocabulary entries, vectors of all tokens, scores of labels."""

DENSE: tuple[Output, ...] = ("dense",)


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """A vector that is almost everywhere zero.

    Attributes:
        indices: Vocabulary entries, int32 [entries], ascending.
        values: Their weights, float32 [entries], none of them zero.
    """

    indices: NDArray[np.int32]
    values: NDArray[np.float32]

    @classmethod
    def of_row(cls, row: NDArray[np.float32]) -> Self:
        """A row [vocabulary] without its zeros."""
        entries = np.flatnonzero(row)
        return cls(entries.astype(np.int32), row[entries])

    @classmethod
    def of_tokens(cls, weights: NDArray[np.float32], ids: NDArray[np.int32], ignored: frozenset[int]) -> Self:
        """The largest weight of each token that has one and is not ignored; weights float32 [length], ids [length]."""
        entries, places = np.unique(ids, return_inverse=True)
        largest = np.zeros(len(entries), dtype=np.float32)
        np.maximum.at(largest, places, weights)
        kept = (largest > 0) & ~np.isin(entries, list(ignored))
        return cls(entries[kept].astype(np.int32), largest[kept])


Value = NDArray[np.float32] | Sparse
"""An output for one input: [dims] of dense, [tokens, dims] of multi, [labels] of scores, or sparse."""

TOKEN_VOCABULARIES = ("auto", "native", "cl100k_base", "reject")
"""How token ids are read: by evidence, as the model's own, as OpenAI's cl100k, or not at all."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What changes the numbers of an answer; spelling (base64 or floats) stays in the dialect.

    Attributes:
        prompt_name: Which of the model's prompts goes before each text; None is the model's own default.
        role: Names of prompts for what the texts are for: the first that the model has is used, none where it has none
            of them. A prompt that is named counts for more.
        truncate: Cut inputs to the model's limit; False refuses them instead.
        chunked: Read inputs that are longer than the limit in chunks and answer the mean of their vectors, weighted by
            their tokens; nothing is cut then.
        one_document: The inputs are the chunks of one document, in order: they are read together, and each has the
            mean of its own tokens' states (late chunking). Nothing is cut; `truncate` False refuses a chunk that alone
            is longer than the limit.
        truncation_side: The end that is cut off, "left" or "right"; None leaves it to the model's files.
        max_tokens: Most tokens of an input, special tokens included, where that is less than the model's limit.
        second_tokens: Of a pair most tokens of the second text; None is all that fit.
        normalize: Scale vectors to length 1; False gives them as they were before the model's own Normalize, if it has
            one; None is the model's own way, and scales shortened ones.
        dimensions: Keep that many leading numbers; None keeps all.
        token_vocabulary: One of `TOKEN_VOCABULARIES`; None is the server's setting.
        likely_tiktoken: The client is of a kind that tokenises with tiktoken; breaks a tie, nothing more.
        raw_scores: Scores as the network gives them; False makes them probabilities.
        no_store: Neither a remembered answer is wanted, nor that this one is remembered.
        instruction: What a reranker is told to look for, where it is a language model; None is its own default.
        conversation: Each text is a conversation, its messages one after another. A model with a chat template of its
            own, which is not applied, refuses it.
    """

    prompt_name: str | None = None
    role: tuple[str, ...] = ()
    truncate: bool = True
    chunked: bool = False
    one_document: bool = False
    truncation_side: Literal["left", "right"] | None = None
    max_tokens: int | None = None
    second_tokens: int | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    token_vocabulary: str | None = None
    likely_tiktoken: bool = False
    raw_scores: bool = False
    no_store: bool = False
    instruction: str | None = None
    conversation: bool = False


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and on which terms.

    Attributes:
        tenant: Whose share of the engine it takes.
        share: The tenant's weight beside other tenants.
        weight: The request's weight beside the tenant's others.
        timeout_s: Seconds after which nobody waits for the answer.
    """

    tenant: str = ""
    share: float = 1.0
    weight: float = 1.0
    timeout_s: float = math.inf


ANYONE = Caller()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The one request type behind every dialect.

    Attributes:
        model: The served name asked for; None where the caller named none.
        inputs: What to read, in the caller's order.
        outputs: What is wanted of each; none is what the model is for.
        ranks: The scores are to rank the inputs, so there must be one for each.
        lenient: An input that cannot be answered has an error of its own; else the request fails as a whole.
        options: What changes the numbers.
        place: An input's number to what the caller calls it, where that is not the field of the inputs and the number.
    """

    model: str | None
    inputs: list[Input]
    outputs: tuple[Output, ...] = DENSE
    ranks: bool = False
    lenient: bool = False
    options: Options = Options()
    place: Callable[[int], str] | None = None


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a request spent in each stage.

    Attributes:
        tokenize_s: Until the tokens of all its inputs were there.
        queue_s: From then on until the first of them ran.
        compute_s: From the tokens until the last one was done, waiting included.
        total_s: Everything.
    """

    tokenize_s: float = 0.0
    queue_s: float = 0.0
    compute_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where a chunk stands in its document.

    Attributes:
        tokens: Its tokens, from and to, counted without the prompt and special tokens.
        characters: The same in characters of the document; None where it came as token ids.
    """

    tokens: tuple[int, int]
    characters: tuple[int, int] | None


NOTHING: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)
"""No rows."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `Request`, each output in the order of the inputs and empty where it was not asked for.

    An input with an error of its own has no value in any output, and no count of tokens.

    Attributes:
        model: The served name that answered.
        rows: The vectors, float32 [inputs, dims].
        sparse: A sparse vector for each input.
        multi: Vectors of tokens for each input, float32 [its tokens, dims].
        scores: float32 [inputs, labels]; a reranker has one label.
        labels: What the columns of `scores` are called.
        tokens: Tokens that went through the model, for each input.
        ranges: Where each input stands in the document that they are, where they are one.
        errors: Of a lenient request, place of an input to why it has no answer.
        truncated: How many inputs were cut to the model's limit.
        cached: How many inputs were not computed for this request: their answers were remembered, or on their way for
            another.
        token_vocabulary: How token ids were read ("native" or "cl100k_base"); None where all inputs were texts.
        timings: Where the time went.
    """

    model: str
    rows: NDArray[np.float32] = NOTHING
    sparse: list[Sparse] = msgspec.field(default_factory=list)
    multi: list[NDArray[np.float32]] = msgspec.field(default_factory=list)
    scores: NDArray[np.float32] = NOTHING
    labels: tuple[str, ...] = ()
    tokens: list[int]
    ranges: list[Ranges] = msgspec.field(default_factory=list)
    errors: dict[int, RequestError] = msgspec.field(default_factory=dict)
    truncated: int = 0
    cached: int = 0
    token_vocabulary: str | None = None
    timings: Timings
