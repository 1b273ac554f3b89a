"""Two processes that ask each other."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from vecmill.api.channel import Answers, Channel, Unanswered


@asynccontextmanager
async def asking(answers: Answers) -> AsyncIterator[Channel]:
    """One end, of which the other answers so; in the end both are closed."""
    ours, theirs = [await Channel.open(end) for end in socket.socketpair()]
    running = [asyncio.create_task(ours.run({})), asyncio.create_task(theirs.run(answers))]
    try:
        yield ours
    finally:
        await ours.close()
        await asyncio.gather(*running)


async def echo(text: str) -> str:
    """What was sent."""
    return text


async def broken(text: str) -> str:
    """Nothing."""
    raise ValueError(f"no {text}")


async def test_what_is_asked_is_answered() -> None:
    """Any text comes back as it is, also one with the ends of lines."""
    async with asking({"echo": echo}) as channel:
        for text in ("", "two\nlines", "a\u2028b\x85c\rd"):
            assert await channel.ask("echo", text) == text


@pytest.mark.parametrize(("word", "why"), [("broken", "no page"), ("unknown", "unknown")])
async def test_what_cannot_be_answered_is_an_error(word: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who asks what the other cannot answer, or does not know, is told so and does not wait; the rest is answered."""
    async with asking({"echo": echo, "broken": broken}) as channel, asyncio.timeout(30):
        with pytest.raises(Unanswered, match=why):
            await channel.ask(word, "page")
        assert await channel.ask("echo", "on") == "on"
    assert f"{word} cannot be answered" in caplog.text


async def test_who_is_gone_answers_nothing() -> None:
    """When the other end closes, what was asked of it is an error, and what is asked then too."""
    ours, theirs = socket.socketpair()
    channel = await Channel.open(ours)
    running = asyncio.create_task(channel.run({}))
    asked = asyncio.create_task(channel.ask("page"))
    await asyncio.sleep(0)
    theirs.close()
    with pytest.raises(ConnectionResetError):
        await asked
    with pytest.raises(ConnectionResetError):
        await channel.ask("page")
    await running
