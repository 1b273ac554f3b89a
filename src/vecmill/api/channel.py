"""Two processes that ask each other: lines of JSON over a socket, each a question or the answer to one."""

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Self

import msgspec

from vecmill.api.keys import Keys
from vecmill.config import Settings

log = logging.getLogger(__name__)

LONGEST = 64 * 1024 * 1024
"""Bytes of a line: a page of metrics has some kilobytes a model and route."""

Answers = Mapping[str, Callable[[str], Awaitable[str]]]
"""Word of a question to what answers it."""


class Unanswered(ConnectionError):
    """The other process is there and cannot answer: what it says is why."""


class Line(msgspec.Struct, array_like=True):
    """A question, or the answer to the question of that number, which has no word; or why there is none."""

    number: int
    word: str
    text: str
    failed: bool = False


class Start(msgspec.Struct):
    """What a worker begins with.

    Attributes:
        number: Which of the workers it is, from 1.
        references: The models.
        settings: Everything else; `grpc_port` is the port itself, keys are in none of it.
        keys: Whose requests are answered, as the parent read it once: the same in every worker, whenever it starts.
        alone: No other answers yet, so this one does while its models load.
        begun: All have been ready once.
    """

    number: int
    references: list[str]
    settings: Settings
    keys: Keys
    alone: bool
    begun: bool

    def written(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self, enc_hook=str)

    @classmethod
    def read(cls, text: bytes) -> "Start":
        """From its JSON."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda _, value: Path(value))


class Channel:
    """One end. `open` makes it, `run` reads and answers, `ask` asks the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[str]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._over = False

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """The channel on this end of a pair of sockets."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=LONGEST))

    async def ask(self, word: str, text: str = "") -> str:
        """What the other end answers.

        Raises:
            ConnectionError: It is gone, or cannot answer that.
        """
        if self._over:
            raise ConnectionResetError("the other process has ended")
        number = next(self._numbers)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._send(Line(number, word, text))
            return await answer
        finally:
            del self._asked[number]

    def tell(self, word: str, text: str) -> None:
        """Ask without waiting for the answer."""
        self._send(Line(next(self._numbers), word, text))

    async def close(self) -> None:
        """Send what was told and close."""
        await self._writer.drain()
        self._writer.close()
        await self._writer.wait_closed()

    async def run(self, answers: Answers) -> None:
        """Answer until the other end is gone; what is asked meanwhile is answered side by side."""
        try:
            while received := await self._reader.readline():
                line = msgspec.json.decode(received, type=Line)
                if line.word:
                    task = asyncio.create_task(self._answer(line, answers))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
                elif (asked := self._asked.get(line.number)) and not asked.done():
                    if line.failed:
                        asked.set_exception(Unanswered(line.text))
                    else:
                        asked.set_result(line.text)
        except (ConnectionError, msgspec.DecodeError):
            pass  # killed, perhaps within a line
        finally:
            self._over = True
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(ConnectionResetError("the other process has ended"))
            self._writer.close()

    async def _answer(self, line: Line, answers: Answers) -> None:
        """Answer always: who asked would wait for ever."""
        try:
            answer = Line(line.number, "", await answers[line.word](line.text))
        except Exception as error:
            log.exception("%s cannot be answered", line.word)
            answer = Line(line.number, "", repr(error), failed=True)
        self._send(answer)

    def _send(self, line: Line) -> None:
        self._writer.write(msgspec.json.encode(line) + b"\n")


async def spawn(module: str, listener: socket.socket) -> tuple[asyncio.subprocess.Process, Channel]:
    """A process of Python that runs a module, and the channel to it.

    Args:
        module: Called with two descriptors: the listener, and its end of the channel.
        listener: Shared with it.

    Raises:
        OSError: There can be none now: too many processes or files, or too little memory.
    """
    ours, theirs = socket.socketpair()
    handed = (listener.fileno(), theirs.fileno())
    with theirs:
        try:
            # A group of its own: Ctrl-C in a terminal is for the parent, who tells it.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, *map(str, handed)),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=handed,
                process_group=0,
            )
        except OSError:
            ours.close()
            raise
    return process, await Channel.open(ours)
