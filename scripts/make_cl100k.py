"""Packs OpenAI's `cl100k_base` token table into `src/vecmill/model/cl100k.bin`.

    python scripts/make_cl100k.py cl100k_base.tiktoken [cl100k.bin]

The source is the rank file that tiktoken loads for `cl100k_base` (a base64 token, a space and its rank on each line;
published by OpenAI with tiktoken under the MIT licence, Copyright (c) 2022 OpenAI). Its sha256 is checked.

Layout of the result, an xz stream of 600,256 bytes:

    256 bytes      the tokens of the ranks 0..255, one byte each
    6 x 100,000    for the ranks 256..100,255: the rank of the left half of the token, low, middle and high bytes
                   each in a column of their own, then the rank of the right half in the same way

A byte-pair vocabulary is the history of its merges, so each longer token is the join of two tokens of lower rank: the
two that are left when byte-pair encoding is run on it with the lower ranks only. Two ranks a token pack better than
its bytes (330 kB against 375 kB).
"""

import base64
import hashlib
import lzma
import sys
from itertools import pairwise
from pathlib import Path

SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
TARGET = Path(__file__).parents[1] / "src" / "vecmill" / "model" / "cl100k.bin"


def read_ranks(data: bytes) -> dict[bytes, int]:
    """Token -> rank, in the order of the ranks; exits when `data` is not the published table."""
    if hashlib.sha256(data).hexdigest() != SHA256:
        sys.exit(f"this is not cl100k_base: its sha256 should be {SHA256}")
    rows = (line.split() for line in data.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in rows}


def halves(token: bytes, ranks: dict[bytes, int]) -> tuple[int, int]:
    """The ranks of the two tokens that `token` is the join of."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        joins = [ranks.get(left + right, ranks[token]) for left, right in pairwise(parts)]
        at = joins.index(min(joins))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    left, right = parts
    return ranks[left], ranks[right]


def columns(numbers: list[int]) -> bytes:
    """Low, middle and high bytes of `numbers`, a column each."""
    return b"".join(bytes(number >> shift & 0xFF for number in numbers) for shift in (0, 8, 16))


def pack(ranks: dict[bytes, int]) -> bytes:
    """The table in the layout of the module docstring, compressed."""
    tokens = list(ranks)
    lefts, rights = zip(*(halves(token, ranks) for token in tokens[256:]), strict=True)
    table = b"".join(tokens[:256]) + columns(list(lefts)) + columns(list(rights))
    return lzma.compress(table, preset=9 | lzma.PRESET_EXTREME)


def main(source: str, target: str = str(TARGET)) -> None:
    """Reads `source`, writes `target` and says how large it is."""
    packed = pack(read_ranks(Path(source).read_bytes()))
    Path(target).write_bytes(packed)
    print(f"{target}: {len(packed):,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
