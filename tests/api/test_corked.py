"""Writes go out together, in order, and none is kept waiting."""

import asyncio
from typing import cast

from vecmill.api.corked import Corked


class Transport:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def write(self, data: bytes) -> None:
        """One system call."""
        self.calls.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        """One system call."""
        self.calls.append(b"".join(parts))

    def close(self) -> None:
        """The end."""
        self.calls.append(b"<closed>")

    def get_extra_info(self, name: str) -> str:
        """Something else."""
        return name


def corked() -> tuple[Corked, Transport]:
    """One over the other."""
    transport = Transport()
    return Corked(cast("asyncio.Transport", transport)), transport


async def test_head_and_body_are_one_call() -> None:
    """Two writes of one turn of the loop are one; nothing is written twice."""
    one, transport = corked()
    one.write(b"head ")
    one.write(b"body")
    assert transport.calls == [b"head body"]
    await asyncio.sleep(0)
    assert transport.calls == [b"head body"]


async def test_a_head_alone_goes_out_in_the_next_turn() -> None:
    """Who streams need not say anything more for its head to leave; an empty write is none."""
    one, transport = corked()
    one.write(b"")
    one.write(b"head")
    assert transport.calls == []
    await asyncio.sleep(0)
    assert transport.calls == [b"head"]


async def test_order_over_many_writes() -> None:
    """Whatever is held, bytes leave in the order in which they came."""
    one, transport = corked()
    for number in range(9):
        one.write(b"%d" % number)
        if number % 3 == 2:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert b"".join(transport.calls) == b"012345678"


async def test_closing_writes_what_is_held() -> None:
    """The last write is not lost with its connection; everything else is the transport's own."""
    one, transport = corked()
    one.write(b"last")
    one.close()
    assert transport.calls == [b"last", b"<closed>"]
    assert one.get_extra_info("peername") == "peername"
