"""An answer as bytes, for stores outside this process: it says what it is, and what is not whole is no answer.

All little-endian: four bytes of name, the checksum of what follows, the time until which it holds (float64, Unix
seconds), how many values; of each value its kind, then an array's dimensions and float32 numbers, or a sparse vector's
length, int32 entries and float32 weights.
"""

import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from vecmill.core import Output, Sparse, Value
from vecmill.serving.finish import sound

NAME = b"vmr1"
"""To be changed with the layout."""

HEAD = struct.Struct("<4sI")
BODY = struct.Struct("<dB")
ARRAY, SPARSE = 0, 1

DIMENSIONS: dict[Output, int] = {"dense": 1, "scores": 1, "multi": 2}
"""Of the array that an output is."""


def encode(values: Sequence[Value], until: float) -> bytes:
    """The bytes of an answer that holds until then."""
    body = b"".join([BODY.pack(until, len(values)), *map(_encode_value, values)])
    return HEAD.pack(NAME, zlib.crc32(body)) + body


def decode(data: bytes, outputs: Sequence[Output], widths: Sequence[int]) -> tuple[tuple[Value, ...], float] | None:
    """The answer and until when it holds; None where the bytes are not what `encode` gives for these outputs.

    Args:
        data: Whatever a store holds.
        outputs: What the answer has to be.
        widths: Numbers of a value of each; 0 where they differ.
    """
    try:
        name, checksum = HEAD.unpack_from(data)
        if name != NAME or checksum != zlib.crc32(memoryview(data)[HEAD.size :]):
            return None
        until, count = BODY.unpack_from(data, HEAD.size)
        at = HEAD.size + BODY.size
        values: list[Value] = []
        for _ in range(count):
            value, at = _decode_value(data, at)
            values.append(value)
    except (struct.error, ValueError, IndexError):
        return None
    whole = at == len(data) and len(values) == len(outputs) and math.isfinite(until)
    if not whole or not all(map(_fits, values, outputs, widths)):
        return None
    return tuple(values), until


def _encode_value(value: Value) -> bytes:
    if isinstance(value, Sparse):
        head = struct.pack("<BI", SPARSE, len(value.indices))
        return head + value.indices.astype("<i4").tobytes() + value.values.astype("<f4").tobytes()
    return struct.pack(f"<BB{value.ndim}I", ARRAY, value.ndim, *value.shape) + value.astype("<f4").tobytes()


def _decode_value(data: bytes, at: int) -> tuple[Value, int]:
    """The value that begins there, and where the next one does."""
    kind, second = struct.unpack_from("<BB", data, at)
    if kind == SPARSE:
        (entries,) = struct.unpack_from("<I", data, at + 1)
        middle = at + 5 + 4 * entries
        indices = np.frombuffer(data, "<i4", entries, at + 5).astype(np.int32)
        return Sparse(indices, np.frombuffer(data, "<f4", entries, middle).astype(np.float32)), middle + 4 * entries
    if kind != ARRAY:
        raise ValueError(f"no value is of kind {kind}")
    shape = struct.unpack_from(f"<{second}I", data, at + 2)
    begin, count = at + 2 + 4 * second, math.prod(shape)
    return np.frombuffer(data, "<f4", count, begin).reshape(shape).astype(np.float32), begin + 4 * count


def _fits(value: Value, output: Output, width: int) -> bool:
    """Whether a value can be an engine's for this output."""
    if isinstance(value, Sparse):
        return output == "sparse" and bool(sound(output, [value]).all())
    right = value.ndim == DIMENSIONS.get(output) and (not width or value.shape == (width,))
    return right and bool(sound(output, [value]).all())
