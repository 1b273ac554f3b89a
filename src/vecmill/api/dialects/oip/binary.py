"""The binary tensor data extension: JSON, and after it the bytes of the tensors that say so, in their order.

The header `Inference-Header-Content-Length` says how long the JSON is. A text is its length, four bytes little-endian,
and its UTF-8; a number is a little-endian float32.
"""

import struct
from typing import Any

import msgspec

from vecmill.api.decode import decode
from vecmill.api.dialect import Headers
from vecmill.api.dialects.oip.wire import TEXT, OipInferBody, OipParameters, OipTensor
from vecmill.errors import InvalidRequest

HEADER = "inference-header-content-length"

OCTETS = "application/octet-stream"

_LENGTH = struct.Struct("<I")


def read(decoder: "msgspec.json.Decoder[OipInferBody]", given: bytes, headers: Headers) -> OipInferBody:
    """The body, with the texts that follow its JSON in their tensors' `data`.

    Without the header all of it is JSON. Where the header is 0 none is: what came is one text, as Triton takes it.

    Raises:
        NotJson: As `decode`.
        InvalidRequest: As `decode`; or the lengths do not fit each other, or what follows are no texts.
    """
    if HEADER not in headers:
        body: OipInferBody = decode(decoder, given)
        if any(tensor.size_bytes is not None for tensor in body.inputs):
            raise InvalidRequest(
                f"inputs has binary_data_size; the header {HEADER} has to say where the JSON ends", param=HEADER
            )
        return body
    size_bytes = _json_bytes(headers[HEADER], len(given))
    if size_bytes == 0:
        return _bare(given)
    body = decode(decoder, given[:size_bytes])
    sizes = [tensor.size_bytes for tensor in body.inputs]
    rest = memoryview(given)[size_bytes:]
    said = sum(size or 0 for size in sizes)
    if said != len(rest):
        message = f"inputs has {said} bytes by binary_data_size; {len(rest)} bytes follow the JSON"
        raise InvalidRequest(message, param="inputs")
    for tensor, size in zip(body.inputs, sizes, strict=True):
        if size is not None:
            _fill(tensor, rest[:size])
            rest = rest[size:]
    return body


def _json_bytes(value: str, most: int) -> int:
    """How long the JSON is.

    Raises:
        InvalidRequest: That is no number, or more than there is.
    """
    said = value.strip()
    fits = said.isascii() and said.isdecimal() and len(said) <= len(str(most)) and int(said) <= most
    if not fits:
        message = f"{HEADER} is {value[:80]!r}; a number of bytes from 0 to {most}, the length of the body, is allowed"
        raise InvalidRequest(message, param=HEADER)
    return int(said)


def _bare(given: bytes) -> OipInferBody:
    text = OipTensor(TEXT, [1], "BYTES", [_text(given, TEXT, 0)])
    return OipInferBody(inputs=[text], parameters=OipParameters(binary_data_output=True))


def _fill(tensor: OipTensor, given: memoryview) -> None:
    """Put the texts of these bytes into a tensor.

    Raises:
        InvalidRequest: It has others already, a text ends beyond the bytes, or is not UTF-8.
    """
    if tensor.data is not None:
        message = f"inputs has {tensor.name!r} with both data and binary_data_size; one is allowed"
        raise InvalidRequest(message, param="inputs")
    texts: list[Any] = []
    start, end = 0, len(given)
    while start < end:
        if start + _LENGTH.size > end:
            message = f"inputs has {tensor.name!r} with {end - start} bytes too many after {len(texts)} texts"
            raise InvalidRequest(message, param="inputs")
        (size,) = _LENGTH.unpack_from(given, start)
        start += _LENGTH.size
        if start + size > end:
            message = f"inputs has {tensor.name!r}[{len(texts)}] of {size} bytes, of which {end - start} are there"
            raise InvalidRequest(message, param="inputs")
        texts.append(_text(given[start : start + size], tensor.name, len(texts)))
        start += size
    tensor.data = texts


def _text(given: bytes | memoryview, name: str, number: int) -> str:
    try:
        return str(given, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"inputs has {name!r}[{number}], which is not UTF-8: {error}", param="inputs") from error
