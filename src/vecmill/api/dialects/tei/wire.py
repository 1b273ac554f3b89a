"""Bodies of requests, answers and errors."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from vecmill import errors
from vecmill.api.dialect import STATUSES, ErrorReply, entry
from vecmill.api.inputs import Written
from vecmill.core import Options, Result

Id = Annotated[int, msgspec.Meta(ge=0)]

Direction = Literal["Left", "left", "Right", "right"]


class TeiOptions(msgspec.Struct, kw_only=True):
    """What most requests may say. Unknown fields are ignored."""

    truncate: bool | None = None
    truncation_direction: Direction | None = None
    model: str | None = None


class TeiTokensBody(TeiOptions, kw_only=True):
    """A request for sparse vectors, or for a vector of each token."""

    inputs: Written
    prompt_name: str | None = None


class TeiEmbedBody(TeiTokensBody, kw_only=True):
    """A request for vectors."""

    normalize: bool | None = None
    dimensions: int | None = None
    return_tokens: bool | None = None


class TeiCounted(msgspec.Struct):
    """Vectors, and how many tokens they took: with `return_tokens`."""

    embeddings: list[list[float]]
    num_tokens: int


class TeiWeight(msgspec.Struct):
    """An entry of a sparse vector."""

    index: int
    value: float


class TeiPredictBody(TeiOptions, kw_only=True):
    """A request for the scores of labels: a text, a pair of texts, or a list of lists of one or two texts."""

    inputs: str | list[str | list[str]]
    raw_scores: bool | None = None


class TeiPrediction(msgspec.Struct):
    """A label and its score."""

    score: float
    label: str


class TeiRerankBody(TeiOptions, kw_only=True):
    """A request to put texts in order."""

    query: str
    texts: list[str]
    raw_scores: bool | None = None
    return_text: bool | None = None


class TeiRank(msgspec.Struct, kw_only=True):
    """A text's place and score, and the text itself with `return_text`."""

    index: int
    text: str | msgspec.UnsetType = msgspec.UNSET
    score: float


class TeiSentences(msgspec.Struct):
    """A sentence, and those that it is compared with."""

    source_sentence: str
    sentences: list[str]


class TeiParameters(msgspec.Struct):
    """Options of a comparison."""

    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None


class TeiSimilarityBody(msgspec.Struct):
    """A request for similarities."""

    inputs: TeiSentences
    parameters: TeiParameters | None = None
    model: str | None = None


class TeiAnyBody(TeiOptions, kw_only=True):
    """A request of the kind that the model is for."""

    inputs: str | list[Any] | dict[str, Any] | None = None
    query: str | None = None
    texts: list[str] | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    return_tokens: bool | None = None
    parameters: TeiParameters | None = None


class TeiVertexBody(msgspec.Struct):
    """Several requests in one, in Vertex AI's envelope."""

    instances: list[TeiAnyBody]


class TeiVertexAnswer(msgspec.Struct):
    """The answer to each."""

    predictions: list[Any]


class TeiTokenizeBody(msgspec.Struct, kw_only=True):
    """A request for the tokens of texts."""

    inputs: str | list[str]
    add_special_tokens: bool | None = None
    prompt_name: str | None = None
    model: str | None = None


class TeiToken(msgspec.Struct):
    """A token; `start` and `stop` are bytes of the text, and null for a special token."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TeiDecodeBody(msgspec.Struct, kw_only=True):
    """A request for the text of tokens."""

    ids: list[Id | list[Id]]
    skip_special_tokens: bool | None = None
    model: str | None = None


class TeiInfoQuery(msgspec.Struct):
    """Which of several models is meant."""

    model: str | None = None


class TeiInfo(msgspec.Struct):
    """What the model is, and the limits."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None = None
    docker_label: str | None = None


class TeiError(msgspec.Struct):
    """Every error has this body."""

    error: str
    error_type: Literal["Empty", "Validation", "Tokenizer", "Backend", "Overloaded", "Unhealthy"]


REPLIES = {
    **{kind: (status, "Validation") for kind, status in STATUSES.items()},
    errors.InvalidRequest: (422, "Validation"),
    errors.NotJson: (400, "Validation"),
    errors.EmptyInput: (400, "Empty"),
    errors.WrongTask: (424, "Backend"),
    errors.EngineFailed: (424, "Backend"),
    errors.Overloaded: (429, "Overloaded"),
    errors.TimedOut: (504, "Backend"),
    errors.ModelLoading: (503, "Unhealthy"),
    errors.ShuttingDown: (503, "Unhealthy"),
    errors.VecmillError: (500, "Backend"),
}
"""Error to status and type."""


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    status, kind = entry(REPLIES, error)
    return ErrorReply(status, msgspec.json.encode({"error": message_of(error), "error_type": kind}))


def message_of(error: errors.VecmillError) -> str:
    """What an error says; of a batch that is too large what TEI says, as its clients look for it."""
    if isinstance(error, errors.TooManyInputs):
        return f"batch size {error.count} > maximum allowed batch size {error.limit}"
    return str(error)


def options(body: TeiOptions | TeiParameters, **more: Any) -> Options:  # noqa: ANN401 (fields of Options)
    """What changes the numbers."""
    side = body.truncation_direction.lower() if body.truncation_direction else None
    return Options(truncate=body.truncate is not False, truncation_side=side, **more)  # type: ignore[arg-type]  # Literal


def headers(characters: int, result: Result) -> dict[str, str]:
    """The headers of an answer with numbers; times in whole milliseconds.

    Args:
        characters: Of all texts.
        result: The answer.
    """
    times = result.timings
    return {
        "x-compute-type": "vecmill",  # TEI says gpu+optimized, on a CPU too
        "x-compute-time": _ms(times.total_s),
        "x-compute-characters": str(characters),
        "x-compute-tokens": str(sum(result.tokens)),
        "x-total-time": _ms(times.total_s),
        "x-tokenization-time": _ms(times.tokenize_s),
        "x-queue-time": _ms(times.queue_s),
        "x-inference-time": _ms(max(0.0, times.compute_s - times.queue_s)),
    }


def characters_of(value: str | int | Sequence[object]) -> int:
    """Characters of texts, however they are nested; a token id counts as one."""
    if isinstance(value, list):
        return sum(map(characters_of, value))
    return len(value) if isinstance(value, str) else 1


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
