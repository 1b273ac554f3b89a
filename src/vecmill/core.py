"""The shared words of every layer: what is asked and what is answered. Imports nothing of ours."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Input = str | list[int]
"""One thing to embed: a text, or token ids."""

TOKEN_VOCABULARIES = ("auto", "native", "cl100k_base", "reject")
"""How token ids are read: by evidence, as the model's own, as OpenAI's cl100k, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What changes the numbers of an answer; spelling (base64 or floats) stays in the dialect.

    Attributes:
        prompt_name: Which of the model's prompts goes before each text; None is the model's own default.
        truncate: Cut inputs to the model's limit; False refuses them instead.
        dimensions: Keep that many leading numbers and normalise again; None keeps all.
        token_vocabulary: One of `TOKEN_VOCABULARIES`; None is the server's setting.
        likely_tiktoken: The client is of a kind that tokenises with tiktoken; breaks a tie, nothing more.
    """

    prompt_name: str | None = None
    truncate: bool = True
    dimensions: int | None = None
    token_vocabulary: str | None = None
    likely_tiktoken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The one request type behind every dialect.

    Attributes:
        model: The served name asked for; None where the caller named none.
        inputs: What to embed, in the caller's order.
        options: What changes the numbers.
    """

    model: str | None
    inputs: list[Input]
    options: Options = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds that a request spent in each stage; waiting and running end with its last input."""

    tokenize_s: float = 0.0
    compute_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer to a `Request`.

    Attributes:
        model: The served name that answered.
        rows: float32 [inputs, dims], in the caller's order.
        tokens: Tokens that went through the model, for each input.
        truncated: How many inputs were cut to the model's limit.
        token_vocabulary: How token ids were read ("native" or "cl100k_base"); None where all inputs were texts.
        timings: Where the time went.
    """

    model: str
    rows: NDArray[np.float32]
    tokens: list[int]
    truncated: int = 0
    token_vocabulary: str | None = None
    timings: Timings
