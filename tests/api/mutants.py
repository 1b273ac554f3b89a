"""Bodies that nobody meant, made of those that somebody did."""

import json
import random
from typing import Any

ATOMS = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        5,
        16,
        55,
        56,
        100_257,
        2**31,
        2**63,
        2**64,
        10**30,
        -(2**63),
        0.0,
        1.5,
        -0.0,
        1e308,
    ),
    *(
        "",
        " ",
        "tiny",
        "float",
        "base64",
        "query",
        "the cat",
        "\x00",
        "\ud7ff",
        "\uffff",
        "😀",
        "x" * 3000,
        "\n",
        "null",
    ),
    *("the cat sat on the mat " * 30, "[CLS]", "[PAD]", "##s", "\u200b", "\u0301"),
]


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value; small ones more often."""
    kind = rng.randrange(6 if depth < 3 else 3)
    if kind == 3:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind == 4:
        return [rng.randrange(-2, 60) for _ in range(rng.randrange(50))]
    if kind == 5:
        return {rng.choice(["input", "text", "", "a"]): value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice(ATOMS)


def mutant(rng: random.Random, valid: dict[str, Any]) -> bytes:
    """A valid body with some fields changed, and half of the time with some bytes changed."""
    body = dict(valid)
    names = [*valid, "extra"]
    for name in rng.sample(names, min(len(names), rng.randrange(1, 4))):
        if rng.random() < 0.3:
            body.pop(name, None)
        else:
            body[name] = value(rng)
    data = bytearray(json.dumps(body, ensure_ascii=rng.random() < 0.5).encode())
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        start = rng.randrange(len(data))
        data[start : start + rng.randrange(4)] = rng.choice(
            [b"", b'"', b"\\", b"\xff", b"\\ud800", b"[", b"]", b"}", b",", b"0", b"e9", b"\x00", data[: start // 2]]
        ) or rng.randbytes(rng.randrange(3))
        data = data or bytearray(b"{")
    return bytes(data)
