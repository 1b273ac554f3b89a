"""Mistral's embeddings API, as its SDK sends and reads it; base64 follows `output_dtype`."""

import uuid
from typing import Any, Literal

import msgspec

from vecmill import errors
from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Keys, Route, entry
from vecmill.api.encode import encoded
from vecmill.api.inputs import dimensions_of, texts
from vecmill.core import Options, Request, Result


class MistralEmbeddingsBody(msgspec.Struct, kw_only=True):
    """A request for vectors. OpenAI's clients call `output_dimension` `dimensions`."""

    input: str | list[str]
    model: str | None = None
    dimensions: int | None = None
    output_dimension: int | None = None
    output_dtype: Literal["float", "int8", "uint8", "binary", "ubinary"] | None = None
    encoding_format: Literal["float", "base64"] | None = None


class MistralEmbedding(msgspec.Struct):
    """One vector: numbers, or base64 of numbers of the type that was asked for."""

    index: int
    embedding: Any
    object: Literal["embedding"] = "embedding"


class MistralUsage(msgspec.Struct):
    """Tokens that went through the model."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class MistralEmbeddingsAnswer(msgspec.Struct):
    """The vectors, in the order of the inputs."""

    id: str
    data: list[MistralEmbedding]
    model: str
    usage: MistralUsage
    object: Literal["list"] = "list"


class MistralProblem(msgspec.Struct):
    """What is wrong with a field."""

    type: str
    loc: list[str]
    msg: str


class MistralDetail(msgspec.Struct):
    """What is wrong with the fields of a body."""

    detail: list[MistralProblem]


class MistralError(msgspec.Struct):
    """Every error has this body; where a field is wrong, the message is a list of what is wrong."""

    message: str | MistralDetail
    type: str
    param: str | None
    code: str | None
    raw_status_code: int
    object: Literal["error"] = "error"


def parse(body: MistralEmbeddingsBody, _: Headers) -> Request:
    """Vectors of texts.

    Raises:
        InvalidRequest: Two numbers of dimensions are asked for.
    """
    wishes = Options(dimensions=dimensions_of(body.dimensions, body.output_dimension))
    return Request(model=body.model, inputs=texts(body.input), options=wishes)


def render(body: MistralEmbeddingsBody, result: Result) -> MistralEmbeddingsAnswer:
    """The vectors, each encoded as asked."""
    rows = encoded(result.rows, body.output_dtype, body.encoding_format)
    data = [MistralEmbedding(number, row) for number, row in enumerate(rows)]
    total = sum(result.tokens)
    return MistralEmbeddingsAnswer(uuid.uuid4().hex, data, result.model, MistralUsage(total, total))


ERRORS: dict[type[errors.VecmillError], tuple[int, str, str | None]] = {
    errors.InvalidRequest: (422, "invalid_request_error", None),
    errors.NotJson: (400, "invalid_request_error", None),
    **dict.fromkeys(
        (errors.EmptyInput, errors.TooManyInputs, errors.InputTooLong), (400, "invalid_request_prompt", "3210")
    ),
    **dict.fromkeys((errors.UnknownModel, errors.WrongTask), (400, "invalid_model", "1500")),
    errors.Unauthorized: (401, "authentication_error", None),
    errors.Overloaded: (429, "rate_limited", "1300"),
}
"""Error to the status, the type and the code that Mistral's API has for it; others have HTTP's own status."""

SERVER_ERRORS = 500


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    status, kind, code = next((ERRORS[one] for one in type(error).__mro__ if one in ERRORS), _other(error))
    message: str | MistralDetail = str(error)
    param = error.param if isinstance(error, errors.InvalidRequest) else None
    if status == ERRORS[errors.InvalidRequest][0]:
        message = MistralDetail([MistralProblem("value_error", ["body", *([param] if param else [])], str(error))])
    return ErrorReply(status, msgspec.json.encode(MistralError(message, kind, param, code, status)))


def _other(error: errors.VecmillError) -> tuple[int, str, None]:
    status = entry(STATUSES, error)
    return status, "invalid_request_error" if status < SERVER_ERRORS else "server_error", None


def is_mistral(keys: Keys, headers: Headers) -> bool:
    """Whether a body for /v1/embeddings is Mistral's: by its keys, or because its SDK says so, which wants an id."""
    return "output_dimension" in keys or "output_dtype" in keys or "mistral" in headers.get("user-agent", "")


MISTRAL = Dialect(
    name="Mistral",
    routes=(
        Route(
            paths=("/mistral/v1/embeddings", "/v1/embeddings"),
            body=MistralEmbeddingsBody,
            parse=parse,
            render=render,
            answer=MistralEmbeddingsAnswer,
            summary="Vectors of texts, in several types",
            names={"dimensions": ("dimensions", "output_dimension")},
            when=is_mistral,
        ),
    ),
    render_error=render_error,
    error=MistralError,
    owns=("/mistral/",),
)
