"""/v1/embeddings with vLLM's own fields, and /pooling."""

from typing import Any, Literal

import msgspec

from vecmill.api.dialect import Headers, Route
from vecmill.api.dialects.vllm.wire import VllmAnswer, VllmOptions, common, is_vllm, options
from vecmill.api.encode import DTYPES, ENCODINGS
from vecmill.api.inputs import Written, read
from vecmill.core import Output, Request, Result
from vecmill.errors import InvalidRequest


class VllmEmbeddingsBody(VllmOptions, kw_only=True):
    """A request for vectors. `normalize` is the older name of `use_activation`."""

    input: Written | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    embed_dtype: Literal["float32", "float16"] | None = None
    endianness: Literal["native", "little"] | None = None
    normalize: bool | None = None


class VllmEmbedding(msgspec.Struct):
    """One vector: numbers, or base64."""

    index: int
    embedding: Any
    object: Literal["embedding"] = "embedding"


class VllmEmbeddingsAnswer(VllmAnswer, kw_only=True):
    """The vectors, in the order of the inputs."""

    data: list[VllmEmbedding]
    object: Literal["list"] = "list"


class VllmPoolingBody(VllmEmbeddingsBody, kw_only=True):
    """A request for what the model gives: by `task`, else what it is for."""

    task: Literal["embed", "classify", "token_embed"] | None = None


class VllmPooled(msgspec.Struct):
    """What the model gives for an input: a vector, a vector for each token, or scores."""

    index: int
    data: Any
    object: Literal["pooling"] = "pooling"


class VllmPoolingAnswer(VllmAnswer, kw_only=True):
    """What the model gives, in the order of the inputs."""

    data: list[VllmPooled]
    object: Literal["list"] = "list"


OUTPUTS: dict[str | None, tuple[Output, ...]] = {
    None: (),
    "embed": ("dense",),
    "token_embed": ("multi",),
    "classify": ("scores",),
}
"""Task to what is wanted."""


def parse_embeddings(body: VllmEmbeddingsBody, _: Headers) -> Request:
    """Vectors, of length 1 unless the request says otherwise.

    Raises:
        InvalidRequest: There is no input, or something is asked for that is not served.
    """
    return _request(body, ("dense",))


def render_embeddings(body: VllmEmbeddingsBody, result: Result) -> bytes:
    """The vectors, each encoded as asked."""
    data = [VllmEmbedding(number, row) for number, row in enumerate(_encoded(body, list(result.rows)))]
    return msgspec.json.encode(VllmEmbeddingsAnswer(data=data, **common("embd", result)))


def parse_pooling(body: VllmPoolingBody, _: Headers) -> Request:
    """What the model gives.

    Raises:
        InvalidRequest: As `parse_embeddings`.
    """
    return _request(body, OUTPUTS[body.task])


def render_pooling(body: VllmPoolingBody, result: Result) -> bytes:
    """What the model gives; a sparse vector as its entries."""
    if result.sparse:
        pooled: list[Any] = [
            {"indices": one.indices.tolist(), "values": row}
            for one, row in zip(result.sparse, _encoded(body, [one.values for one in result.sparse]), strict=True)
        ]
    else:
        values = next((list(rows) for rows in (result.rows, result.multi, result.scores) if len(rows)), [])
        pooled = list(_encoded(body, values))
    data = [VllmPooled(number, row) for number, row in enumerate(pooled)]
    return msgspec.json.encode(VllmPoolingAnswer(data=data, **common("pool", result)))


def _request(body: VllmEmbeddingsBody, outputs: tuple[Output, ...]) -> Request:
    activated = body.use_activation if body.use_activation is not None else body.normalize
    wishes = options(
        body, dimensions=body.dimensions, normalize=activated is not False, raw_scores=body.use_activation is False
    )
    if body.input is None:
        raise InvalidRequest("the request has no input", param="input")
    return Request(model=body.model, inputs=read(body.input), outputs=outputs, options=wishes)


def _encoded(body: VllmEmbeddingsBody, values: list[Any]) -> list[msgspec.Raw]:
    encode, convert = ENCODINGS[body.encoding_format or "float"], DTYPES[body.embed_dtype or "float32"]
    return [encode(convert(value)) for value in values]


ROUTES = (
    Route(
        paths=("/vllm/v1/embeddings", "/v1/embeddings", "/embeddings"),
        body=VllmEmbeddingsBody,
        parse=parse_embeddings,
        render=render_embeddings,
        answer=VllmEmbeddingsAnswer,
        summary="Vectors of texts or token ids",
        when=is_vllm,
    ),
    Route(
        paths=("/pooling", "/v1/pooling"),
        body=VllmPoolingBody,
        parse=parse_pooling,
        render=render_pooling,
        answer=VllmPoolingAnswer,
        summary="What the model gives: vectors, vectors of tokens, or scores",
    ),
)
