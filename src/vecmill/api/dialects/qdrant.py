"""What Qdrant asks of its inference service: one POST for the documents or the queries of a request.

Each input names its model; the answer holds what each model is for: a vector, vectors of tokens or a sparse vector. The
API key travels in the body. Images and objects are refused.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import msgspec

from vecmill import errors
from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Keys, Route, entry
from vecmill.api.encode import as_numbers
from vecmill.api.inputs import texts
from vecmill.api.prompts import prompts_for
from vecmill.asks import ByTask, Several
from vecmill.core import Options, Output, Request, Result


class QdrantOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said of an input; `mrl` is Qdrant's own name of `dimensions`."""

    dimensions: int | None = None
    mrl: int | None = None


class QdrantInput(msgspec.Struct, kw_only=True):
    """What is to be embedded, and by which model."""

    data: Any
    model: str
    data_type: str | None = None
    options: QdrantOptions | None = None


class QdrantBody(msgspec.Struct, kw_only=True):
    """The documents of an update, or the queries of a search."""

    inputs: list[QdrantInput]
    inference: Literal["update", "search"] | None = None
    token: str | None = None


class QdrantSparse(msgspec.Struct):
    """A sparse vector: its entries."""

    indices: list[int]
    values: Any


class QdrantTokens(msgspec.Struct):
    """Tokens that went through a model."""

    tokens: int


class QdrantUsage(msgspec.Struct):
    """The tokens, by model."""

    models: dict[str, QdrantTokens]


class QdrantAnswer(msgspec.Struct):
    """What each model gives, in the order of the inputs."""

    embeddings: list[Any]
    usage: QdrantUsage


class QdrantError(msgspec.Struct):
    """Every error has this body."""

    error: str


ROLES = {None: None, "update": "document", "search": "query"}
"""What is done with the vectors, and what the texts then are."""

OUTPUTS: dict[str, Output] = {"embed": "dense", "multi": "multi", "sparse": "sparse"}
"""Task of a model to what is wanted of it."""

Group = tuple[str, QdrantOptions]
"""A model and what is said of its inputs."""


def parse(body: QdrantBody, _: Headers) -> Several:
    """A question for each model and its options, with all of its inputs.

    Raises:
        InvalidRequest: There is no input, or one is no text.
    """
    if not body.inputs:
        raise errors.EmptyInput("inputs is empty; at least one is needed", param="inputs")
    for number, one in enumerate(body.inputs):
        if one.data_type not in {None, "text"} or not isinstance(one.data, str):
            message = f"inputs[{number}] is of type {one.data_type or 'object'!r}; only text is read here"
            raise errors.InvalidRequest(message, param="inputs")
    role = prompts_for(ROLES[body.inference], "inference")
    return Several(
        [_ask(group, places, [body.inputs[at].data for at in places], role) for group, places in _groups(body)]
    )


def render(body: QdrantBody, results: list[Result]) -> QdrantAnswer:
    """The vectors in the order of the inputs, whichever model gave them."""
    rows: dict[int, Any] = {}
    tokens: dict[str, int] = {}
    for (_, places), result in zip(_groups(body), results, strict=True):
        rows |= zip(places, _values(result), strict=True)
        tokens[result.model] = tokens.get(result.model, 0) + sum(result.tokens)
    usage = QdrantUsage({model: QdrantTokens(count) for model, count in tokens.items()})
    return QdrantAnswer([rows[place] for place in range(len(rows))], usage)


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUSES, error), msgspec.json.encode(QdrantError(str(error))))


def token_of(keys: Keys) -> str | None:
    """The API key that a body holds."""
    try:
        return msgspec.json.decode(keys["token"], type=str | None)
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _groups(body: QdrantBody) -> Iterator[tuple[Group, list[int]]]:
    """Each model with its options, and the places of its inputs."""
    groups: dict[Group, list[int]] = {}
    for place, one in enumerate(body.inputs):
        groups.setdefault((one.model, one.options or QdrantOptions()), []).append(place)
    yield from groups.items()


def _ask(group: Group, places: list[int], given: list[str], role: tuple[str, ...]) -> ByTask:
    model, wishes = group
    dimensions = wishes.dimensions or wishes.mrl
    readings = {
        task: partial(
            Request,
            model=model,
            inputs=texts(given),
            outputs=(output,),
            options=Options(role=role, dimensions=dimensions if output == "dense" else None),
            place=lambda number: f"inputs[{places[number]}]",
        )
        for task, output in OUTPUTS.items()
    }
    return ByTask(model=model, readings=readings)


def _values(result: Result) -> list[Any]:
    if result.sparse:
        return [QdrantSparse(one.indices.tolist(), as_numbers(one.values)) for one in result.sparse]
    return [as_numbers(one) for one in (result.multi or result.rows)]


QDRANT = Dialect(
    name="Qdrant",
    routes=(
        Route(
            paths=("/qdrant/inference",),
            body=QdrantBody,
            parse=parse,
            render=render,
            answer=QdrantAnswer,
            summary="What each input's model is for: a vector, vectors of tokens or a sparse vector",
            names={"input": ("inputs",), "dimensions": ("options.dimensions",)},
            key=token_of,
        ),
    ),
    render_error=render_error,
    error=QdrantError,
    owns=("/qdrant/",),
)
