"""Bytes that wait to be read as lines."""

import asyncio
import errno
from collections.abc import Iterator

import pytest

from vecmill.api.spool import LONGEST_LINE, MEMORY_BYTES, Room, Spool
from vecmill.errors import BodyTooLarge, Overloaded

MOST = 30_000_000


@pytest.fixture
def spool() -> Iterator[Spool]:
    """Takes thirty megabytes."""
    one = Spool(Room(MOST))
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
    longest = b"y" * LONGEST_LINE + b"\n"
    for part in (b"one\n", longest, b"x" * (LONGEST_LINE + 1), b"x\ntwo\n", b"z" * 3 * LONGEST_LINE, b"\nthree"):
        spool.write(part)
    spool.end()
    found = [line for lines in await read(spool) for line in lines]
    assert [line if len(line) <= LONGEST_LINE + 1 and line[-1:] in b"\ne" else len(line) for line in found] == [
        *(b"one\n", longest, LONGEST_LINE + 1, b"two\n", LONGEST_LINE + 1, b"three"),
    ]


async def test_a_failure_comes_after_what_came_whole(spool: Spool) -> None:
    """What goes wrong with the rest takes nothing from lines that are there; half a line is none."""
    spool.write(b"one\ntwo\nthr")
    spool.end(KeyError())
    lines = spool.lines(3)
    assert await anext(lines) == [b"one\n", b"two\n"]
    with pytest.raises(KeyError):
        await anext(lines)


async def test_nobody_reads_for_who_has_left(spool: Spool) -> None:
    """Nobody works on lines whose caller has left."""
    spool.write(b"one\ntwo\n")
    spool.give_up(KeyError())
    with pytest.raises(KeyError):
        await read(spool)


async def test_a_full_disk_is_named(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk does not take a stream, the error says so, and closing the spool raises nothing."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool.write(b"one\n")
    for name in ("write", "seek", "close"):
        monkeypatch.setattr(spool._file, name, full)
    with pytest.raises(Overloaded, match="disk does not take what waits of this stream .No space left on device"):
        spool.write(b"two\n")
    with pytest.raises(Overloaded, match="disk does not take"):
        await read(spool)
    spool.close()
    assert spool._room._taken == 0


async def test_empty_lines_let_others_have_their_turn(spool: Spool) -> None:
    """Ten megabytes of them are not read in one go, and are no lines, whatever else is blank between them."""
    turns, done = 0, False

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    spool.write(b"\n" * 5_000_000 + b"one\n" + b" \r\n" * 1_700_000 + b"  two")
    spool.end()
    assert await read(spool) == [[b"one\n"], [b"two"]]
    done = True
    await beside
    assert turns >= 9


async def test_lines_are_read_a_few_megabytes_at_a_time(spool: Spool) -> None:
    """However many may be handed out together, no more bytes are read in one go than about a longest line."""
    spool.write((b"x" * 399_999 + b"\n") * 20)
    spool.end()
    assert max(len(lines) for lines in await read(spool, 64)) <= 3


async def test_spools_have_their_room_together() -> None:
    """What one holds another cannot; what is read or given back is free again, however much has come by then."""
    room = Room(1000)
    one, other = Spool(room), Spool(room)
    lines = one.lines(64)
    for _ in range(5):
        one.write((b"x" * 89 + b"\n") * 10)
        with pytest.raises(Overloaded) as full:
            other.write(b"x" * 101)
        assert full.value.retry_after_s > 0
        assert len(await anext(lines)) == 10
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        other.write(b"x" * 999)
        other.close()
        other = Spool(room)
        one.write(b"last\n")
        assert await waiting == [b"last\n"]
    one.close()
    other.write(b"x" * 1000)
    other.close()
