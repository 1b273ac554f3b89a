"""The Open Inference Protocol, version 2, over HTTP, as KServe's and Triton's tools speak it.

A model takes one tensor of texts, `text`, and gives one of numbers: `embedding` [texts, dims] or `scores` [texts,
labels]. A reranker takes a second tensor, `query`, of one text. Every model has one version, 1. Whether the server and
its models are ready is asked of probes, which need no key.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import msgspec

from vecmill import errors
from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Nothing, Route, entry
from vecmill.api.encode import as_numbers
from vecmill.api.inputs import pairs, texts
from vecmill.api.prompts import prompts_for
from vecmill.asks import ByTask, InfoRequest, ModelInfo
from vecmill.core import Options, Output, Request, Result
from vecmill.errors import EmptyInput, InvalidRequest

TEXT, QUERY = "text", "query"
"""Names of the tensors that come in; their capitals do not matter."""

GIVEN: dict[str, tuple[str, Output]] = {
    "embed": ("embedding", "dense"),
    "classify": ("scores", "scores"),
    "rerank": ("scores", "scores"),
    "multi": ("scores", "scores"),
}
"""Task of a model to the name of its tensor, and what it holds."""

RANKING = ("rerank", "multi")
"""Tasks of models that take a query."""

VERSION = "1"


class OipTensor(msgspec.Struct):
    """A tensor of texts. Its data may be nested or flat."""

    name: str
    shape: list[int]
    datatype: Literal["BYTES"]
    data: list[Any]


class OipWanted(msgspec.Struct):
    """A tensor that is wanted."""

    name: str


class OipParameters(msgspec.Struct, kw_only=True):
    """Not the protocol's own: what changes the numbers."""

    input_type: str | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    truncate: bool | None = None
    normalize: bool | None = None


class OipInferBody(msgspec.Struct, kw_only=True):
    """Tensors, and which are wanted; all where nothing is said."""

    inputs: list[OipTensor]
    id: str | None = None
    parameters: OipParameters | None = None
    outputs: list[OipWanted] | None = None


class OipNumbers(msgspec.Struct):
    """A tensor of float32, flat, row by row."""

    name: str
    shape: list[int]
    data: Any
    datatype: Literal["FP32"] = "FP32"


class OipInferAnswer(msgspec.Struct, omit_defaults=True):
    """The tensor, and the `id` that came."""

    model_name: str
    model_version: str
    outputs: list[OipNumbers]
    id: str | None = None


class OipShape(msgspec.Struct):
    """What a tensor looks like; -1 is any number."""

    name: str
    datatype: str
    shape: list[int]


class OipModel(msgspec.Struct):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[OipShape]
    outputs: list[OipShape]


class OipError(msgspec.Struct):
    """Every error has this body."""

    error: str


def parse(body: OipInferBody, _: Headers) -> ByTask:
    """Vectors or scores of texts, as the model is for; scores of pairs where there is a query.

    Raises:
        InvalidRequest: A tensor is missing, unknown, or not of its shape, or an unknown one is wanted.
    """
    given = {tensor.name.lower(): _texts(tensor) for tensor in body.inputs}
    strange = next((name for name in given if name not in {TEXT, QUERY}), None)
    if strange is not None or TEXT not in given:
        got = f"{strange!r}" if strange is not None else "none of that name"
        raise InvalidRequest(f"inputs has {got}; {TEXT!r} is needed, and {QUERY!r} to rank", param="inputs")
    if len(given) < len(body.inputs):
        raise InvalidRequest("inputs has two tensors of one name", param="inputs")
    query = given.get(QUERY)
    if query is not None and len(query) != 1:
        raise InvalidRequest(f"inputs has {len(query)} of {QUERY!r}; one is needed", param="inputs")
    tasks = RANKING if query else ("embed", "classify")
    named = {wanted.name for wanted in body.outputs or []}
    if named - {GIVEN[task][0] for task in tasks}:
        known = " or ".join(dict.fromkeys(repr(GIVEN[task][0]) for task in tasks))
        raise InvalidRequest(f"outputs has {', '.join(sorted(map(repr, named)))}; known: {known}", param="outputs")
    fitting = [task for task in tasks if not named or GIVEN[task][0] in named]
    inputs = pairs(query[0], given[TEXT]) if query else texts(given[TEXT])
    wishes = _options(body.parameters or OipParameters())
    readings = {
        task: partial(
            Request, model=None, inputs=inputs, outputs=(GIVEN[task][1],), ranks=query is not None, options=wishes
        )
        for task in fitting
    }
    return ByTask(model=None, readings=readings)


def render(body: OipInferBody, result: Result) -> bytes:
    """The numbers, row by row."""
    name, rows = ("scores", result.scores) if len(result.scores) else ("embedding", result.rows)
    tensor = OipNumbers(name, list(rows.shape), as_numbers(rows.reshape(-1)))
    return msgspec.json.encode(OipInferAnswer(result.model, VERSION, [tensor], body.id))


def parse_model(_: Nothing, __: Headers) -> InfoRequest:
    """What the model of the path is."""
    return InfoRequest(model=None)


def render_model(_: Nothing, model: ModelInfo) -> bytes:
    """What it takes and gives; nothing where its kind has no tensor here."""
    names = [QUERY, TEXT] if model.task in RANKING else [TEXT]
    taken = [OipShape(name, "BYTES", [1] if name == QUERY else [-1]) for name in names]
    name, _output = GIVEN.get(model.task, ("", None))
    given = [OipShape(name, "FP32", [-1, _columns(model)])] if name else []
    return msgspec.json.encode(OipModel(model.model, [VERSION], f"vecmill_{model.engine}", taken, given))


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUSES, error), msgspec.json.encode(OipError(str(error))))


def _texts(tensor: OipTensor) -> list[str]:
    """The elements of a tensor of one dimension, or of two with one column.

    Raises:
        InvalidRequest: It has another shape than it says, or holds something else than texts.
    """
    flat = list(_flat(tensor.data))
    if not flat:
        raise EmptyInput(f"inputs has no text in {tensor.name!r}; at least one is needed", param="inputs")
    if tensor.shape[1:] not in ([], [1]) or math.prod(tensor.shape) != len(flat):
        message = f"inputs has {len(flat)} texts in {tensor.name!r} of shape {tensor.shape}; [{len(flat)}] is allowed"
        raise InvalidRequest(message, param="inputs")
    if not all(isinstance(one, str) for one in flat):
        raise InvalidRequest(f"inputs has something else than strings in {tensor.name!r}", param="inputs")
    return flat


def _columns(model: ModelInfo) -> int:
    """Numbers of a row."""
    return {"embed": model.dims, "classify": len(model.labels)}.get(model.task, 1)


def _flat(data: list[Any]) -> Iterator[Any]:
    for one in data:
        if isinstance(one, list):
            yield from one
        else:
            yield one


def _options(parameters: OipParameters) -> Options:
    return Options(
        role=prompts_for(parameters.input_type, "parameters.input_type"),
        prompt_name=parameters.prompt_name,
        dimensions=parameters.dimensions,
        truncate=parameters.truncate is not False,
        normalize=parameters.normalize,
    )


MODEL = "/v2/models/{model}"

OIP = Dialect(
    name="Open Inference Protocol",
    routes=(
        Route(
            paths=(f"{MODEL}/infer", f"{MODEL}/versions/{VERSION}/infer"),
            body=OipInferBody,
            parse=parse,
            render=render,
            answer=OipInferAnswer,
            summary="A tensor of vectors or scores for a tensor of texts",
            inputs="inputs",
        ),
        Route(
            paths=(MODEL, f"{MODEL}/versions/{VERSION}"),
            method="GET",
            body=Nothing,
            parse=parse_model,
            render=render_model,
            answer=OipModel,
            summary="What a model takes and gives",
        ),
    ),
    render_error=render_error,
    error=OipError,
)
