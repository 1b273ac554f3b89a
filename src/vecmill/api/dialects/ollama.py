"""Ollama's API as far as it embeds, as its clients send and read it. `:latest` after a name is left out."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from vecmill import __version__
from vecmill.api.dialect import STATUSES, Dialect, ErrorReply, Headers, Nothing, Route, entry
from vecmill.api.encode import as_numbers
from vecmill.api.inputs import texts
from vecmill.asks import Ask, InfoRequest, ListRequest, ModelInfo
from vecmill.core import Options, Request, Result
from vecmill.errors import VecmillError

LEVELS = {"float32": "F32", "int8": "Q8_0", "int4": "Q4_0"}
"""Our precisions in the words of Ollama's clients; others stay as they are."""

TAKES = ("*/*",)
"""Ollama looks at no content-type; its documentation shows requests of curl that say they are a form."""

NEVER = "9999-12-31T23:59:59Z"
"""When a model that is always there leaves."""


class OllamaEmbedBody(msgspec.Struct, kw_only=True):
    """A request for vectors of length 1; without input it only asks whether the model is there."""

    model: str | None = None
    input: str | list[str] | None = None
    truncate: bool | None = None
    dimensions: int | None = None


class OllamaEmbedAnswer(msgspec.Struct, kw_only=True):
    """The vectors; times in nanoseconds."""

    model: str
    embeddings: list[Any]
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0


class OllamaPromptBody(msgspec.Struct, kw_only=True):
    """A request for one vector as the model gives it."""

    model: str | None = None
    prompt: str | None = None


class OllamaPromptAnswer(msgspec.Struct):
    """The vector."""

    embedding: Any


class OllamaDetails(msgspec.Struct):
    """What kind of model it is."""

    family: str
    families: list[str]
    format: str
    parameter_size: str
    quantization_level: str
    parent_model: str = ""


class OllamaModel(msgspec.Struct, kw_only=True):
    """A model that is there."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaModels(msgspec.Struct):
    """The models that are there."""

    models: list[OllamaModel]


class OllamaRunning(OllamaModel, kw_only=True):
    """A model that is loaded."""

    size_vram: int
    expires_at: str
    context_length: int


class OllamaRunningModels(msgspec.Struct):
    """The models that are loaded."""

    models: list[OllamaRunning]


class OllamaShowBody(msgspec.Struct, kw_only=True):
    """A request for what a model is."""

    model: str | None = None
    name: str | None = None


class OllamaShown(msgspec.Struct):
    """What a model is."""

    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaVersion(msgspec.Struct):
    """The server's version."""

    version: str


class OllamaError(msgspec.Struct):
    """Every error has this body."""

    error: str


def parse_embed(body: OllamaEmbedBody, _: Headers) -> Ask:
    """Vectors of texts; the model alone where there are none."""
    if not body.input:
        return InfoRequest(model=_name(body.model))
    wishes = Options(truncate=body.truncate is not False, dimensions=body.dimensions, normalize=True)
    return Request(model=_name(body.model), inputs=texts(body.input), options=wishes)


def render_embed(_: object, answer: Result | ModelInfo) -> OllamaEmbedAnswer:
    """The vectors, none where nothing was asked."""
    if isinstance(answer, ModelInfo):
        return OllamaEmbedAnswer(model=answer.model, embeddings=[])
    return OllamaEmbedAnswer(
        model=answer.model,
        embeddings=[as_numbers(row) for row in answer.rows],
        total_duration=round(answer.timings.total_s * 1e9),
        prompt_eval_count=sum(answer.tokens),
    )


def parse_prompt(body: OllamaPromptBody, _: Headers) -> Ask:
    """One vector, which nobody scales; the model alone where there is no prompt."""
    if not body.prompt:
        return InfoRequest(model=_name(body.model))
    return Request(model=_name(body.model), inputs=[body.prompt], options=Options(normalize=False))


def render_prompt(_: object, answer: Result | ModelInfo) -> OllamaPromptAnswer:
    """The vector, empty where nothing was asked."""
    row: Any = [] if isinstance(answer, ModelInfo) else as_numbers(answer.rows[0])
    return OllamaPromptAnswer(row)


def parse_list(_: Nothing, __: Headers) -> ListRequest:
    """The models."""
    return ListRequest()


def render_tags(_: object, infos: list[ModelInfo]) -> OllamaModels:
    """The models that are there."""
    return OllamaModels([OllamaModel(**_facts(info)) for info in infos])


def render_running(_: object, infos: list[ModelInfo]) -> OllamaRunningModels:
    """The models that are loaded: all of them, in no graphics card's memory."""
    rows = [
        OllamaRunning(**_facts(info), size_vram=0, expires_at=NEVER, context_length=info.max_tokens) for info in infos
    ]
    return OllamaRunningModels(rows)


def parse_show(body: OllamaShowBody, _: Headers) -> InfoRequest:
    """One model."""
    return InfoRequest(model=_name(body.model or body.name))


def render_show(_: object, info: ModelInfo) -> OllamaShown:
    """What it is, with the limits under the names that Ollama's clients look for."""
    facts = {
        "general.architecture": info.family,
        f"{info.family}.context_length": info.max_tokens,
        f"{info.family}.embedding_length": info.dims,
        f"{info.family}.vocab_size": info.vocab_size,
    }
    capabilities = ["embedding"] if info.dims else []
    return OllamaShown(_details(info), facts, capabilities, _time(info))


def render_version(_: object, __: object) -> OllamaVersion:
    """The server's own version."""
    return OllamaVersion(__version__)


def render_error(error: VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    return ErrorReply(entry(STATUSES, error), msgspec.json.encode(OllamaError(str(error))))


def _name(model: str | None) -> str | None:
    return model.removesuffix(":latest") if model else None


def _facts(info: ModelInfo) -> dict[str, Any]:
    return {
        "name": info.model,
        "model": info.model,
        "modified_at": _time(info),
        "size": info.size_bytes,
        "digest": hashlib.sha256(f"{info.model}@{info.revision} {info.precision}".encode()).hexdigest(),
        "details": _details(info),
    }


def _details(info: ModelInfo) -> OllamaDetails:
    level = LEVELS.get(info.precision, info.precision)
    return OllamaDetails(info.family, [info.family], "safetensors", "", level)


def _time(info: ModelInfo) -> str:
    return datetime.fromtimestamp(info.created, UTC).isoformat().replace("+00:00", "Z")


OLLAMA = Dialect(
    name="Ollama",
    routes=(
        Route(
            paths=("/api/embed",),
            body=OllamaEmbedBody,
            parse=parse_embed,
            render=render_embed,
            answer=OllamaEmbedAnswer,
            summary="Vectors of length 1",
            takes=TAKES,
        ),
        Route(
            paths=("/api/embeddings",),
            body=OllamaPromptBody,
            parse=parse_prompt,
            render=render_prompt,
            answer=OllamaPromptAnswer,
            summary="One vector as the model gives it",
            takes=TAKES,
            names={"input": ("prompt",)},
        ),
        Route(
            paths=("/api/show",),
            body=OllamaShowBody,
            parse=parse_show,
            render=render_show,
            answer=OllamaShown,
            summary="What a model is",
            takes=TAKES,
        ),
        *(
            Route(
                paths=(path,),
                method="GET",
                body=Nothing,
                parse=parse_list,
                render=render,
                answer=answer,
                summary=summary,
            )
            for path, render, answer, summary in (
                ("/api/tags", render_tags, OllamaModels, "The models that are there"),
                ("/api/ps", render_running, OllamaRunningModels, "The models that are loaded"),
                ("/api/version", render_version, OllamaVersion, "The server's version"),
            )
        ),
    ),
    render_error=render_error,
    error=OllamaError,
    owns=("/api/",),
)
