"""/v1/embeddings."""

from typing import Any, Literal

import msgspec

from vecmill.api.dialect import Headers, Keys, Route
from vecmill.api.dialects.jina.wire import JinaUsage, usage
from vecmill.api.encode import as_base64, as_numbers, encoded
from vecmill.api.inputs import texts, texts_of
from vecmill.api.prompts import prompts_for
from vecmill.api.ranges import Range, ranges
from vecmill.core import Options, Request, Result
from vecmill.errors import InvalidRequest

Kind = Literal["float", "base64", "binary", "ubinary", "int8", "uint8"]

OWN_KEYS = frozenset({"task", "late_chunking", "normalized", "return_multivector"})


class JinaEmbeddingsBody(msgspec.Struct, kw_only=True):
    """A request for vectors; an input is a string or an object with a text. OpenAI's clients say `encoding_format`."""

    input: str | list[str | dict[str, Any]]
    model: str | None = None
    task: str | None = None
    dimensions: int | None = None
    normalized: bool | None = None
    embedding_type: str | list[Kind] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    late_chunking: bool | None = None
    truncate: bool | None = None
    return_multivector: bool | None = None


class JinaEmbedding(msgspec.Struct):
    """A vector, or with `return_multivector` a vector for each token under `embeddings`.

    With `late_chunking` it says where in the document its input stands, from and to.
    """

    index: int
    object: Literal["embedding"] = "embedding"
    embedding: Any = msgspec.UNSET
    embeddings: Any = msgspec.UNSET
    token_range: Range = msgspec.UNSET
    character_range: Range = msgspec.UNSET


class JinaEmbeddingsAnswer(msgspec.Struct):
    """The vectors, in the order of the inputs."""

    model: str
    usage: JinaUsage
    data: list[JinaEmbedding]
    object: Literal["list"] = "list"


def parse(body: JinaEmbeddingsBody, _: Headers) -> Request:
    """Vectors of texts for a task.

    Raises:
        InvalidRequest: An input holds no text, or a type is unknown.
    """
    _kinds(body)
    given = [body.input] if isinstance(body.input, str) else body.input
    return Request(
        model=body.model,
        inputs=texts(texts_of(given, "input")),
        outputs=("multi",) if body.return_multivector else ("dense",),
        options=Options(
            role=prompts_for(body.task, "task"),
            truncate=body.truncate is not False,
            one_document=bool(body.late_chunking),
            dimensions=None if body.return_multivector else body.dimensions,
            normalize=body.normalized is not False,
        ),
    )


def render(body: JinaEmbeddingsBody, result: Result) -> JinaEmbeddingsAnswer:
    """The vectors, each encoded as asked."""
    kinds = _kinds(body)
    if body.return_multivector:
        encode = as_base64 if body.encoding_format == "base64" or kinds == ["base64"] else as_numbers
        data = [JinaEmbedding(number, embeddings=encode(one)) for number, one in enumerate(result.multi)]
    else:
        columns = [_rows(result, kind, body.encoding_format) for kind in kinds]
        data = [
            JinaEmbedding(
                number,
                embedding=row[0] if len(kinds) == 1 else dict(zip(kinds, row, strict=True)),
                token_range=tokens,
                character_range=characters,
            )
            for number, (row, (tokens, characters)) in enumerate(
                zip(zip(*columns, strict=True), ranges(result), strict=True)
            )
        ]
    return JinaEmbeddingsAnswer(result.model, usage(result), data)


def is_jina(keys: Keys, _: Headers) -> bool:
    """Whether a body for /v1/embeddings is Jina's: by its keys, or because the first input is an object."""
    if not OWN_KEYS.isdisjoint(keys) or ("embedding_type" in keys and "input_type" not in keys):
        return True
    return bytes(memoryview(keys.get("input", b""))[:16]).translate(None, b" \n\r\t").startswith(b"[{")


def _kinds(body: JinaEmbeddingsBody) -> list[str]:
    wanted = body.embedding_type or "float"
    kinds: list[str] = [wanted] if isinstance(wanted, str) else [*wanted]
    known = Kind.__args__  # type: ignore[attr-defined]  # of a Literal
    strange = next((kind for kind in kinds if kind not in known), None)
    if strange is not None:
        raise InvalidRequest(f"embedding_type is {strange!r}; allowed: {', '.join(known)}", param="embedding_type")
    return kinds


def _rows(result: Result, kind: str, encoding: str | None) -> list[msgspec.Raw]:
    return encoded(result.rows, encoding="base64") if kind == "base64" else encoded(result.rows, kind, encoding)


ROUTES = (
    Route(
        paths=("/jina/v1/embeddings", "/jina/embeddings", "/v1/embeddings", "/embeddings"),
        body=JinaEmbeddingsBody,
        parse=parse,
        render=render,
        answer=JinaEmbeddingsAnswer,
        summary="Vectors of texts for a task",
        when=is_jina,
    ),
)
