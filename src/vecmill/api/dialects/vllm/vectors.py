"""/v1/embeddings with vLLM's own fields, and /pooling."""

import json
from typing import Any, Literal

import msgspec

from vecmill.api.dialect import Headers, Route
from vecmill.api.dialects.vllm.wire import NAMES, VllmAnswer, VllmInputs, asked, common, is_vllm
from vecmill.api.encode import DTYPES, ByteOrder, Cells, as_base64, as_numbers, packed
from vecmill.core import Output, Request, Result
from vecmill.errors import InvalidRequest


class VllmEmbeddingsBody(VllmInputs, kw_only=True):
    """A request for vectors. `normalize` is the older name of `use_activation`."""

    encoding_format: Literal["float", "base64", "bytes", "bytes_only"] | None = None
    dimensions: int | None = None
    embed_dtype: Literal["float32", "float16"] | None = None
    endianness: Literal["native", "little", "big"] | None = None
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


ORDERS: dict[str | None, ByteOrder] = {None: "<", "native": "<", "little": "<", "big": ">"}
"""Endianness to the order of bytes; native is the smaller end first on every machine that this runs on."""


def parse_embeddings(body: VllmEmbeddingsBody, headers: Headers) -> Request:
    """Vectors, of length 1 unless the request says otherwise.

    Raises:
        InvalidRequest: There is no input, or something is asked for that is not served.
    """
    return _request(body, ("dense",), headers)


def render_embeddings(body: VllmEmbeddingsBody, result: Result) -> VllmEmbeddingsAnswer | bytes:
    """The vectors, each encoded as asked."""
    if _is_binary(body):
        return _joined(body, result)
    data = [VllmEmbedding(number, row) for number, row in enumerate(_encoded(body, list(result.rows)))]
    return VllmEmbeddingsAnswer(data=data, **common("embd", result))


def parse_pooling(body: VllmPoolingBody, headers: Headers) -> Request:
    """What the model gives.

    Raises:
        InvalidRequest: As `parse_embeddings`.
    """
    return _request(body, OUTPUTS[body.task], headers)


def render_pooling(body: VllmPoolingBody, result: Result) -> VllmPoolingAnswer | bytes:
    """What the model gives; a sparse vector as its entries."""
    if _is_binary(body):
        return _joined(body, result)
    if result.sparse:
        pooled: list[Any] = [
            {"indices": one.indices.tolist(), "values": row}
            for one, row in zip(result.sparse, _encoded(body, [one.values for one in result.sparse]), strict=True)
        ]
    else:
        pooled = list(_encoded(body, _values(result)))
    data = [VllmPooled(number, row) for number, row in enumerate(pooled)]
    return VllmPoolingAnswer(data=data, **common("pool", result))


def headers_of_embeddings(body: VllmEmbeddingsBody, result: Result) -> dict[str, str]:
    """Of bytes what they are."""
    return _headers("embd", body, result)


def headers_of_pooling(body: VllmPoolingBody, result: Result) -> dict[str, str]:
    """Of bytes what they are.

    Raises:
        InvalidRequest: The model gives sparse vectors, which have no such form.
    """
    return _headers("pool", body, result)


def _request(body: VllmEmbeddingsBody, outputs: tuple[Output, ...], headers: Headers) -> Request:
    activated = body.use_activation if body.use_activation is not None else body.normalize
    return asked(
        body,
        outputs,
        headers,
        dimensions=body.dimensions,
        normalize=activated is not False,
        raw_scores=body.use_activation is False,
    )


def _values(result: Result) -> list[Cells]:
    """What there is for each input."""
    return next((list(rows) for rows in (result.rows, result.multi, result.scores) if len(rows)), [])


def _encoded(body: VllmEmbeddingsBody, values: list[Cells]) -> list[msgspec.Raw]:
    cells = [_converted(body, value) for value in values]
    if body.encoding_format == "base64":
        return [as_base64(one, ORDERS[body.endianness]) for one in cells]
    return [as_numbers(one) for one in cells]


def _joined(body: VllmEmbeddingsBody, result: Result) -> bytes:
    return b"".join(packed(_converted(body, value), ORDERS[body.endianness]) for value in _values(result))


def _headers(kind: str, body: VllmEmbeddingsBody, result: Result) -> dict[str, str]:
    """The type of bytes, and unless there are to be only bytes where each input's begin and end."""
    if not _is_binary(body):
        return {}
    if result.sparse:
        message = f"encoding_format is {body.encoding_format!r}; sparse vectors come as float or base64"
        raise InvalidRequest(message, param="encoding_format")
    octets = {"content-type": "application/octet-stream"}
    if body.encoding_format == "bytes_only":
        return octets
    items: list[dict[str, Any]] = []
    start, own = 0, {"embed_dtype": body.embed_dtype or "float32", "endianness": body.endianness or "native"}
    for number, value in enumerate(_values(result)):
        end = start + _converted(body, value).nbytes
        items.append({"index": number, **own, "start": start, "end": end, "shape": value.shape})
        start = end
    told = msgspec.to_builtins({**common(kind, result), "data": items})
    return octets | {"metadata": json.dumps(told)}  # a header holds no other than ASCII's characters


def _is_binary(body: VllmEmbeddingsBody) -> bool:
    return body.encoding_format in {"bytes", "bytes_only"}


def _converted(body: VllmEmbeddingsBody, value: Cells) -> Cells:
    return DTYPES[body.embed_dtype or "float32"](value)


ROUTES = (
    Route(
        paths=("/vllm/v1/embeddings", "/vllm/embeddings", "/v1/embeddings", "/embeddings"),
        body=VllmEmbeddingsBody,
        parse=parse_embeddings,
        render=render_embeddings,
        answer=VllmEmbeddingsAnswer,
        summary="Vectors of texts or token ids",
        headers=headers_of_embeddings,
        names=NAMES,
        when=is_vllm,
    ),
    Route(
        paths=("/pooling", "/v1/pooling", "/vllm/pooling", "/vllm/v1/pooling"),
        body=VllmPoolingBody,
        parse=parse_pooling,
        render=render_pooling,
        answer=VllmPoolingAnswer,
        summary="What the model gives: vectors, vectors of tokens, or scores",
        headers=headers_of_pooling,
        names=NAMES,
    ),
)
