"""Bytes that wait to be read as lines."""

from collections.abc import Iterator

import pytest

from vecmill.api.spool import LONGEST_LINE, MEMORY_BYTES, Spool
from vecmill.errors import BodyTooLarge

MOST = 30_000_000


@pytest.fixture
def spool() -> Iterator[Spool]:
    """Takes thirty megabytes."""
    one = Spool(MOST)
    yield one
    one.close()


async def read(spool: Spool, most: int = 3) -> list[list[bytes]]:
    """All that is left, as it is handed out."""
    return [lines async for lines in spool.lines(most)]


async def test_lines_of_any_parts(spool: Spool) -> None:
    """However the bytes come, lines come out whole, so many at a time, the last one without its end."""
    for part in (b"on", b"e\ntwo\n\n  \nth", b"ree\nfour\nfi", b"ve"):
        spool.write(part)
    spool.end()
    assert await read(spool) == [[b"one\n", b"two\n", b"three\n"], [b"four\n", b"five"]]


async def test_more_than_memory(spool: Spool) -> None:
    """What goes to disk comes back as it was, also where writing and reading take turns."""
    line = b"x" * 99_999 + b"\n"
    count, given = 3 * MEMORY_BYTES // len(line), 0
    lines = spool.lines(1)
    for _ in range(count):
        spool.write(line * 2)
        assert await anext(lines) == [line]
        given += 1
    spool.end()
    assert given + sum([len(found) async for found in lines]) == 2 * count


async def test_bounds(spool: Spool) -> None:
    """Neither a body nor a line is longer than it may be."""
    with pytest.raises(BodyTooLarge, match="send it in parts"):
        spool.write(b"x" * (MOST + 1))
    spool.write(b"x" * (LONGEST_LINE + 1))
    with pytest.raises(BodyTooLarge, match="a line"):
        await read(spool)


async def test_a_failure_comes_before_what_is_left(spool: Spool) -> None:
    """Nobody works on lines whose caller has left."""
    spool.write(b"one\ntwo\n")
    spool.end(KeyError())
    with pytest.raises(KeyError):
        await read(spool)
