"""OpenAI's embeddings API (platform reference, "Create embeddings"), as its SDKs send and read it."""

from typing import Literal

import msgspec

from vecmill import errors
from vecmill.api.dialect import Dialect, ErrorReply, Headers, Keys, Route, entry
from vecmill.api.encode import encoded
from vecmill.api.inputs import token_vocabulary
from vecmill.api.prompts import prompts_for
from vecmill.api.ranges import Range, ranges
from vecmill.core import Input, Options, Request, Result


class EmbeddingsBody(msgspec.Struct):
    """A request. Unknown fields are ignored and null means absent, as clients of many kinds send both."""

    input: str | list[str | int | list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    truncate: bool | None = None
    long_inputs: Literal["truncate", "error", "mean"] | None = None
    item_errors: bool | None = None
    one_document: bool | None = None
    prompt_name: str | None = None
    input_type: str | None = None


class ErrorDetail(msgspec.Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Embedding(msgspec.Struct, omit_defaults=True):
    """One vector: numbers, or base64 of little-endian float32; null with an error where `item_errors` asks for them.

    Where the inputs are `one_document` it says where in it its own stands, from and to.
    """

    index: int
    embedding: list[float] | str | None
    object: Literal["embedding", "error"] = "embedding"
    error: ErrorDetail | None = None
    token_range: Range = msgspec.UNSET
    character_range: Range = msgspec.UNSET


class Usage(msgspec.Struct):
    """Tokens that went through the model."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(msgspec.Struct):
    """The vectors, in the order of the inputs."""

    data: list[Embedding]
    model: str
    usage: Usage
    object: Literal["list"] = "list"


class EncodedEmbedding(msgspec.Struct):
    """An `Embedding` whose vector is already JSON."""

    object: str
    index: int
    embedding: msgspec.Raw | None
    error: ErrorDetail | msgspec.UnsetType = msgspec.UNSET
    token_range: Range = msgspec.UNSET
    character_range: Range = msgspec.UNSET


class EncodedAnswer(msgspec.Struct):
    """An `EmbeddingsAnswer` whose vectors are already JSON."""

    object: str
    data: list[EncodedEmbedding]
    model: str
    usage: Usage


class ErrorBody(msgspec.Struct):
    """Every error has this body."""

    error: ErrorDetail


def parse(body: EmbeddingsBody, headers: Headers) -> Request:
    """The neutral request.

    Raises:
        InvalidRequest: The input mixes kinds, or a header has no such value.
    """
    return Request(
        model=body.model,
        inputs=_inputs(body.input),
        lenient=bool(body.item_errors),
        options=Options(
            prompt_name=body.prompt_name,
            role=prompts_for(body.input_type, "input_type"),
            truncate=body.long_inputs != "error" if body.long_inputs else body.truncate is not False,
            chunked=body.long_inputs == "mean",
            one_document=bool(body.one_document),
            dimensions=body.dimensions,
            token_vocabulary=token_vocabulary(headers),
            likely_tiktoken="x-stainless-lang" in headers,
        ),
    )


def render(body: EmbeddingsBody, result: Result) -> EncodedAnswer:
    """The answer, each vector encoded as asked."""
    rows = iter(zip(encoded(result.rows, encoding=body.encoding_format), ranges(result), strict=True))
    data = [
        EncodedEmbedding("error", number, None, detail(result.errors[number])[1])
        if number in result.errors
        else _embedding(number, *next(rows))
        for number in range(len(result.rows) + len(result.errors))
    ]
    total = sum(result.tokens)
    return EncodedAnswer("list", data, result.model, Usage(total, total))


def _embedding(number: int, row: msgspec.Raw, places: tuple[Range, Range]) -> EncodedEmbedding:
    return EncodedEmbedding("embedding", number, row, msgspec.UNSET, *places)


STATUSES: dict[type[errors.VecmillError], tuple[int, str, str | None]] = {
    errors.InputTooLong: (400, "invalid_request_error", None),
    errors.InvalidRequest: (400, "invalid_request_error", None),
    errors.Unauthorized: (401, "invalid_request_error", "invalid_api_key"),
    errors.UnknownModel: (404, "invalid_request_error", "model_not_found"),
    errors.UnknownRoute: (404, "invalid_request_error", "unknown_url"),
    errors.MethodNotAllowed: (405, "invalid_request_error", "method_not_allowed"),
    errors.BodyStalled: (408, "invalid_request_error", "request_timeout"),
    errors.BodyTooLarge: (413, "invalid_request_error", "request_too_large"),
    errors.UnsupportedMediaType: (415, "invalid_request_error", "unsupported_media_type"),
    errors.Overloaded: (429, "rate_limit_error", "overloaded"),
    errors.ModelLoading: (503, "server_error", "model_loading"),
    errors.ShuttingDown: (503, "server_error", "shutting_down"),
    errors.TimedOut: (504, "server_error", "timeout"),
    errors.EngineFailed: (500, "server_error", "engine_failed"),
    errors.VecmillError: (500, "server_error", None),
}
"""Error to status, type and code; one that is not listed counts as its parent."""


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    status, said = detail(error)
    return ErrorReply(status, msgspec.json.encode(ErrorBody(said)))


def detail(error: errors.VecmillError) -> tuple[int, ErrorDetail]:
    """The status of an error, and what is said of it."""
    status, kind, code = entry(STATUSES, error)
    param = "model" if isinstance(error, errors.UnknownModel) else None
    if isinstance(error, errors.InvalidRequest):
        param, code = error.param, error.code
    return status, ErrorDetail(str(error), kind, param, code)


def is_openai(keys: Keys, _: Headers) -> bool:
    """Whether a body for /invocations is OpenAI's, as vLLM's containers take it, and not one with `inputs`."""
    return "input" in keys and "inputs" not in keys


KINDS: dict[type, str] = {str: "a string", int: "a token id", list: "an array of token ids"}
"""What an element of `input` may be, in words."""


def _inputs(value: str | list[str | int | list[int]]) -> list[Input]:
    """A text, texts, one array of token ids, or several."""
    if isinstance(value, str):
        if not value:
            raise errors.EmptyInput("input is an empty string; every input needs content", param="input")
        return [value]
    for number, element in enumerate(value):
        if type(element) is not type(value[0]):
            raise errors.InvalidRequest(
                f"input[{number}] is {KINDS[type(element)]}, input[0] {KINDS[type(value[0])]}; "
                "send only strings, only token ids or only arrays of token ids",
                param="input",
            )
    ids = [element for element in value if isinstance(element, int)]
    return [ids] if ids else [element for element in value if not isinstance(element, int)]


OPENAI = Dialect(
    name="OpenAI",
    routes=(
        Route(
            paths=(
                *("/v1/embeddings", "/embeddings", "/openai/v1/embeddings", "/openai/embeddings", "/tei/v1/embeddings"),
                "/openai/deployments/{model}/embeddings",  # Azure's
            ),
            body=EmbeddingsBody,
            parse=parse,
            render=render,
            answer=EmbeddingsAnswer,
            summary="Vectors of texts or token ids",
        ),
        Route(
            paths=("/openai/invocations", "/invocations"),
            body=EmbeddingsBody,
            parse=parse,
            render=render,
            answer=EmbeddingsAnswer,
            summary="The same where SageMaker asks",
            when=is_openai,
        ),
    ),
    render_error=render_error,
    error=ErrorBody,
)
