"""What can be asked besides numbers: which tokens, which texts, which models; and several questions in one."""

from collections.abc import Callable, Mapping

import msgspec

from vecmill.core import Output, Request, Result


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The question which tokens texts are.

    Attributes:
        model: The served name asked for; None where the caller named none.
        texts: Any number, of any length: nothing is cut.
        special: The special tokens that the model puts around a text are wanted too.
        prompt_name: Which of the model's prompts goes before each text; None is the model's own default.
    """

    model: str | None
    texts: list[str]
    special: bool = True
    prompt_name: str | None = None


class Piece(msgspec.Struct, frozen=True):
    """A token of a text.

    Attributes:
        id: In the model's vocabulary.
        token: As the vocabulary has it.
        special: Added around the text. A special token that the text spells out is a part of it like others.
        span: The characters of the text that it stands for, from and to; None for what was added.
    """

    id: int
    token: str
    special: bool
    span: tuple[int, int] | None


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `TokenizeRequest`.

    Attributes:
        model: The served name that answered.
        texts: As they were read, the prompt included.
        pieces: The tokens of each.
        max_tokens: Most tokens that the model takes.
    """

    model: str
    texts: list[str]
    pieces: list[list[Piece]]
    max_tokens: int


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The question which texts tokens are.

    Attributes:
        model: The served name asked for; None where the caller named none.
        arrays: Ids of the model's vocabulary.
        skip_special: Special tokens are left out.
    """

    model: str | None
    arrays: list[list[int]]
    skip_special: bool = True


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `DetokenizeRequest`.

    Attributes:
        model: The served name that answered.
        texts: One for each array.
    """

    model: str
    texts: list[str]


class InfoRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The question what a model is.

    Attributes:
        model: The served name asked for; None where the caller named none.
    """

    model: str | None


class ListRequest(msgspec.Struct, frozen=True):
    """The question which models there are. Its answer is a list of `ModelInfo`."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs to know of a served model, and the answer to an `InfoRequest`.

    Attributes:
        model: Served name.
        created: When it was loaded, Unix seconds.
        task: "embed", "classify", "rerank", "sparse" or "multi".
        outputs: What it can be asked for.
        dims: Numbers of a vector; 0 where it gives none.
        labels: Of a classifier or reranker.
        max_tokens: Most tokens of an input.
        max_inputs: Most inputs of a request.
        max_batch_tokens: Most tokens of a micro-batch.
        max_batch_inputs: Most inputs of one; 0 where there is no such bound.
        max_queue_inputs: Most inputs that may wait; 0 as above.
        max_queue_tokens: Most tokens that may wait.
        waiting_inputs: Inputs that wait now.
        waiting_tokens: Tokens that wait now.
        vocab_size: Token ids are below it.
        family: Architecture.
        pooling: How token states become a vector.
        normalized: Its vectors have length 1.
        prompts: Names of its prompts.
        default_prompt: The one used where none is named.
        revision: Where the files come from.
        precision: What the weights are kept in.
        engine: What computes.
        size_bytes: What the weights take in memory.
    """

    model: str
    created: int
    task: str
    outputs: tuple[Output, ...]
    dims: int
    labels: tuple[str, ...]
    max_tokens: int
    max_inputs: int
    max_batch_tokens: int
    max_batch_inputs: int
    max_queue_inputs: int
    max_queue_tokens: int
    waiting_inputs: int
    waiting_tokens: int
    vocab_size: int
    family: str
    pooling: tuple[str, ...]
    normalized: bool
    prompts: tuple[str, ...]
    default_prompt: str | None
    revision: str
    precision: str
    engine: str
    size_bytes: int


class ByTask(msgspec.Struct, frozen=True, kw_only=True):
    """A question that means what the model is for.

    Attributes:
        model: The served name asked for; None where the caller named none.
        readings: Task to the request that it then is.
    """

    model: str | None
    readings: Mapping[str, Callable[[], Request]]


class Several(msgspec.Struct, frozen=True):
    """Questions in one, answered by as many answers or one error.

    Attributes:
        parts: Each of them.
        name: What the caller calls the list of them, where errors are to say which one is wrong.
    """

    parts: "list[Ask]"
    name: str = ""


One = Request | TokenizeRequest | DetokenizeRequest | InfoRequest | ByTask
"""What is asked of one model."""

Ask = One | ListRequest | Several
"""All that a dialect can ask."""

Answer = Result | Tokenized | Detokenized | ModelInfo | list[ModelInfo] | list["Answer"]
"""What comes back, a list for a `ListRequest` and for `Several`."""
