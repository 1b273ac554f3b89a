"""An answer's JSON in pieces: one of many megabytes, copied in one go, keeps everything else waiting for as long."""

from collections.abc import Iterator
from typing import Any

import msgspec

PIECE_BYTES = 512 * 1024
"""About how long a piece is, unless a single element is longer: a fraction of a millisecond of copying."""


def pieces(value: object) -> list[bytes]:
    """What `msgspec.json.encode` gives, cut between the elements of its lists.

    Args:
        value: A wire object whose vectors are JSON already. Objects without defaults to omit are looked into, others
            are encoded whole.
    """
    done: list[bytes] = []
    held: list[bytes] = []
    size = 0
    for part in _parts(value):
        held.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            done.append(b"".join(held))
            held, size = [], 0
    return [*done, b"".join(held)] if held else done


def _parts(value: object) -> Iterator[bytes]:
    if isinstance(value, list):
        yield b"["
        yield from _elements(value)
        yield b"]"
    elif fields := _fields(value):
        opening = b"{"
        for name, one in fields.items():
            yield opening + msgspec.json.encode(name) + b":"
            yield from _parts(one)
            opening = b","
        yield b"}"
    else:
        yield msgspec.json.encode(value)


def _elements(values: list[Any]) -> Iterator[bytes]:
    """What stands between the brackets; elements are alike, so that what the first holds tells how long all may be."""
    if values and (isinstance(values[0], list) or any(isinstance(one, list) for one in _fields(values[0]).values())):
        for number, one in enumerate(values):
            yield b"," if number else b""
            yield from _parts(one)
        return
    at, step = 0, 1
    while at < len(values):
        part = msgspec.json.encode(values[at : at + step])
        yield b"," + part[1:-1] if at else part[1:-1]
        at += step
        step = step * 2 if len(part) < PIECE_BYTES // 2 else max(1, step // 2) if len(part) > PIECE_BYTES else step


def _fields(value: object) -> dict[str, Any]:
    """Name on the wire to value; none where they can't be told apart from what is left out."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, msgspec.Struct) or value.__struct_config__.omit_defaults or value.__struct_config__.tag:
        return {}
    values = (getattr(value, name) for name in value.__struct_fields__)
    named = zip(value.__struct_encode_fields__, values, strict=True)
    return {name: one for name, one in named if one is not msgspec.UNSET}
