"""What comes in faster than it is worked on, line by line: a little in memory, more of it on disk."""

import asyncio
import tempfile
from collections.abc import AsyncIterator

from vecmill.errors import BodyTooLarge

MEMORY_BYTES = 4_000_000
"""What is kept in memory before it goes to disk."""

LONGEST_LINE = 1_000_000
"""Most bytes of a line."""


class Spool:
    """Bytes on their way from who writes to who reads lines.

    A client may send all that it has before it reads the first answer, so its body is taken in whatever becomes of the
    answers: else both would wait for each other.

    Args:
        most_bytes: Most bytes that may come.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (`close` closes it)
        self._written = 0
        self._read = 0
        self._news = asyncio.Event()
        self._ended = False
        self._failure: BaseException | None = None

    def write(self, part: bytes) -> None:
        """More has come.

        Raises:
            BodyTooLarge: It is too much.
            OSError: The disk does not take it.
        """
        if self._written + len(part) > self._most_bytes:
            raise BodyTooLarge(f"the body has more than {self._most_bytes} bytes; send it in parts")
        self._file.seek(self._written)
        self._file.write(part)
        self._written += len(part)
        self._news.set()

    def end(self, failure: BaseException | None = None) -> None:
        """No more comes. A failure is raised where lines are read, in place of those that were not read yet."""
        self._ended, self._failure = True, failure
        self._news.set()

    async def lines(self, most: int) -> AsyncIterator[list[bytes]]:
        """The lines that are there, up to so many at a time; empty ones are left out. Waits where there is none.

        Raises:
            BodyTooLarge: A line is.
            BaseException: As it was given to `end`.
        """
        while True:
            self._news.clear()
            if self._failure is not None:
                raise self._failure
            if found := self._next(most):
                yield found
            elif not self._ended:
                await self._news.wait()
            elif self._read == self._written:
                return

    def close(self) -> None:
        """Give everything back."""
        self._file.close()

    def _next(self, most: int) -> list[bytes]:
        self._file.seek(self._read)
        found: list[bytes] = []
        while len(found) < most and self._read < self._written:
            line = self._file.readline(LONGEST_LINE + 1)
            if not line.endswith(b"\n"):
                if len(line) > LONGEST_LINE:
                    raise BodyTooLarge(f"a line has more than {LONGEST_LINE} bytes")
                if not self._ended:
                    break
            self._read += len(line)
            if line.strip():
                found.append(line)
        return found
