"""The Open Inference Protocol, version 2, over HTTP, as KServe's and Triton's tools speak it.

A model takes one tensor of texts, `text`, and gives one of numbers: `embedding` [texts, dims] or `scores` [texts,
labels]. A reranker takes a second tensor, `query`, of one text. Tensors come and go as JSON or in binary, each as it
says. Every model has one version, 1. Whether the server and its models are ready is asked of probes, which need no key.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill import errors
from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Nothing, Route, entry
from vecmill.api.dialects.oip.binary import HEADER, OCTETS, read
from vecmill.api.dialects.oip.wire import (
    QUERY,
    TEXT,
    VERSION,
    OipConfig,
    OipConfigShape,
    OipError,
    OipInferAnswer,
    OipInferBody,
    OipModel,
    OipNumbers,
    OipNumbersParameters,
    OipParameters,
    OipShape,
    OipTensor,
    OipWantedParameters,
)
from vecmill.api.encode import as_numbers, packed
from vecmill.api.inputs import pairs, texts
from vecmill.api.prompts import prompts_for
from vecmill.asks import ByTask, InfoRequest, ModelInfo
from vecmill.core import Options, Output, Request, Result
from vecmill.errors import EmptyInput, InvalidRequest

GIVEN: dict[str, tuple[str, Output]] = {
    "embed": ("embedding", "dense"),
    "classify": ("scores", "scores"),
    "rerank": ("scores", "scores"),
    "multi": ("scores", "scores"),
}
"""Task of a model to the name of its tensor, and what it holds."""

RANKING = ("rerank", "multi")
"""Tasks of models that take a query."""


def parse(body: OipInferBody, _: Headers) -> ByTask:
    """Vectors or scores of texts, as the model is for; scores of pairs where there is a query.

    Raises:
        InvalidRequest: A tensor is missing, unknown, or not of its shape, or one is wanted that is unknown or in a form
            that is not served.
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
    for one in body.outputs or []:
        _check(one.name, one.parameters or OipWantedParameters())
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


def render(body: OipInferBody, result: Result) -> OipInferAnswer | bytes:
    """The numbers, row by row: in the JSON, or in binary after it."""
    name, rows = _given(result)
    if _is_binary(body, name):
        return _head(body, result) + packed(rows)
    tensor = OipNumbers(name, list(rows.shape), as_numbers(rows.reshape(-1)))
    return OipInferAnswer(result.model, VERSION, [tensor], body.id)


def headers(body: OipInferBody, result: Result) -> dict[str, str]:
    """Where the JSON of a binary answer ends."""
    if not _is_binary(body, _given(result)[0]):
        return {}
    return {"content-type": OCTETS, HEADER: str(len(_head(body, result)))}


def parse_model(_: Nothing, __: Headers) -> InfoRequest:
    """What the model of the path is."""
    return InfoRequest(model=None)


def render_model(_: Nothing, model: ModelInfo) -> OipModel:
    """What it takes and gives; nothing where its kind has no tensor here."""
    taken, given = _shapes(model)
    return OipModel(model.model, [VERSION], f"vecmill_{model.engine}", taken, given)


def render_config(_: Nothing, model: ModelInfo) -> OipConfig:
    """The same as a configuration of Triton's."""
    taken, given = (
        [OipConfigShape(one.name, TYPES[one.datatype], one.shape) for one in side] for side in _shapes(model)
    )
    return OipConfig(model.model, f"vecmill_{model.engine}", "vecmill", taken, given)


TYPES = {"BYTES": "TYPE_STRING", "FP32": "TYPE_FP32"}
"""The protocol's words to those of Triton's configuration."""


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUSES, error), msgspec.json.encode(OipError(str(error))))


def _texts(tensor: OipTensor) -> list[str]:
    """The elements of a tensor of one dimension, or of two with one column.

    Raises:
        InvalidRequest: It has another shape than it says, or holds something else than texts.
    """
    if tensor.parameters and tensor.parameters.shared_memory_region is not None:
        raise InvalidRequest(f"inputs has {tensor.name!r} in shared memory, which is not read here", param="inputs")
    if tensor.data is None:
        raise InvalidRequest(f"inputs has {tensor.name!r} without data", param="inputs")
    flat = list(_flat(tensor.data))
    if not flat:
        raise EmptyInput(f"inputs has no text in {tensor.name!r}; at least one is needed", param="inputs")
    if tensor.shape[1:] not in ([], [1]) or math.prod(tensor.shape) != len(flat):
        message = f"inputs has {len(flat)} texts in {tensor.name!r} of shape {tensor.shape}; [{len(flat)}] is allowed"
        raise InvalidRequest(message, param="inputs")
    if not all(isinstance(one, str) for one in flat):
        raise InvalidRequest(f"inputs has something else than strings in {tensor.name!r}", param="inputs")
    return flat


def _check(name: str, wanted: OipWantedParameters) -> None:
    """Whether a tensor can come as it is wanted.

    Raises:
        InvalidRequest: It cannot.
    """
    for wish in ("classification", "shared_memory_region"):
        if getattr(wanted, wish):
            message = f"outputs has {name!r} with {wish}, which is not served; binary_data is true or false"
            raise InvalidRequest(message, param="outputs")


def _given(result: Result) -> tuple[str, NDArray[np.float32]]:
    """The name of the tensor, and its numbers."""
    return ("scores", result.scores) if len(result.scores) else ("embedding", result.rows)


def _is_binary(body: OipInferBody, name: str) -> bool:
    """Whether a tensor is wanted in binary: what its own parameters say counts for more than the request's."""
    own = [one.parameters.binary_data for one in body.outputs or [] if one.name == name and one.parameters]
    said = next((one for one in own if one is not None), None)
    return bool(body.parameters and body.parameters.binary_data_output) if said is None else said


def _head(body: OipInferBody, result: Result) -> bytes:
    """The JSON of a binary answer."""
    name, rows = _given(result)
    tensor = OipNumbers(name, list(rows.shape), parameters=OipNumbersParameters(rows.nbytes))
    return msgspec.json.encode(OipInferAnswer(result.model, VERSION, [tensor], body.id))


def _shapes(model: ModelInfo) -> tuple[list[OipShape], list[OipShape]]:
    """The tensors that come in and go out."""
    names = [QUERY, TEXT] if model.task in RANKING else [TEXT]
    taken = [OipShape(name, "BYTES", [1] if name == QUERY else [-1]) for name in names]
    name, _output = GIVEN.get(model.task, ("", None))
    return taken, [OipShape(name, "FP32", [-1, _columns(model)])] if name else []


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
            headers=headers,
            names={
                "input": ("inputs",),
                "dimensions": ("parameters.dimensions",),
                "prompt_name": ("parameters.prompt_name",),
            },
            read=read,
            takes=(OCTETS,),
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
        Route(
            paths=(f"{MODEL}/config", f"{MODEL}/versions/{VERSION}/config"),
            method="GET",
            body=Nothing,
            parse=parse_model,
            render=render_config,
            answer=OipConfig,
            summary="What a model takes and gives, as Triton's configuration says it",
        ),
    ),
    render_error=render_error,
    error=OipError,
    owns=("/v2",),
)
