"""What comes in faster than it is worked on, line by line: a little in memory, more of it on disk."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator

from vecmill.errors import BodyTooLarge, Overloaded

MEMORY_BYTES = 4_000_000
"""What is kept in memory before it goes to disk."""

LONGEST_LINE = 1_000_000
"""Most bytes of a line, and about how much is looked at before others have their turn. Of a longer one its beginning is
handed out, one byte too long, and the rest is skipped."""

BLANK_BYTES = 4096
"""How much is looked at to find the end of empty lines: one by one, ten megabytes of them take half a minute."""

FULL_RETRY_S = 10.0
"""When it is worth to come back where others have all the room: until one of them has been answered."""


class Room:
    """What spools have together.

    Args:
        most_bytes: Most bytes that may wait in all of them.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._taken = 0

    def take(self, held: int, size: int) -> None:
        """A spool that holds so many bytes wants more.

        Raises:
            BodyTooLarge: It wants more than there is, whatever others hold.
            Overloaded: Others hold too much.
        """
        if held + size > self.most_bytes:
            raise BodyTooLarge(
                f"more than {self.most_bytes} bytes of the body wait to be worked on; send it in parts, "
                "or read the answers while you send"
            )
        if self._taken + size > self.most_bytes:
            raise Overloaded(
                f"streams have sent {self._taken} bytes that wait to be worked on, and {self.most_bytes} may wait",
                retry_after_s=FULL_RETRY_S,
            )
        self._taken += size

    def give_back(self, size: int) -> None:
        """So many bytes are held no more."""
        self._taken -= size


class Spool:
    """Bytes on their way from who writes to who reads lines.

    A client may send all that it has before it reads the first answer, so its body is taken in whatever becomes of the
    answers: else both would wait for each other.

    Args:
        room: What it has together with others.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (`close` closes it)
        self._written = 0
        self._read = 0
        self._news = asyncio.Event()
        self._ended = False
        self._skips = False  # the rest of a line that is too long
        self._left: BaseException | None = None
        self._failure: BaseException | None = None

    def write(self, part: bytes) -> None:
        """More has come.

        Raises:
            BodyTooLarge: It is too much.
            Overloaded: It is too much with what others hold, or for the disk.
        """
        self._room.take(self._written, len(part))
        self._written += len(part)
        with on_disk():
            self._file.seek(self._written - len(part))
            self._file.write(part)
            self._file.flush()
        self._news.set()

    def end(self, failure: BaseException | None = None) -> None:
        """No more comes. A failure is raised where lines are read, after those that came whole."""
        self._ended, self._failure = True, failure
        self._news.set()

    def give_up(self, failure: BaseException) -> None:
        """Nobody waits for what was not read yet: this is raised in its place."""
        self._left = failure
        self._news.set()

    async def lines(self, most: int) -> AsyncIterator[list[bytes]]:
        """The lines that are there, up to so many at a time; empty ones are left out. Waits where there is none.

        Raises:
            Overloaded: The disk does not give back what it took.
            BaseException: As it was given to `end` or `give_up`.
        """
        while True:
            self._news.clear()
            if self._left is not None:
                raise self._left
            before = self._read
            if found := self._next(most):
                yield found
            elif self._read > before:
                await asyncio.sleep(0)  # there may be more empty lines than others should wait for
            elif self._ended:
                if self._failure is not None:
                    raise self._failure
                return
            else:
                await self._news.wait()
            if self._read == self._written > 0:
                self._rewind()

    def close(self) -> None:
        """Give everything back."""
        with contextlib.suppress(OSError):  # what a full disk did not take is tried once more
            self._file.close()
        self._room.give_back(self._written)
        self._written = 0

    def _next(self, most: int) -> list[bytes]:
        """Lines that are there, of about as many bytes as a line may have; perhaps none where some are empty."""
        found: list[bytes] = []
        end = min(self._written, self._read + LONGEST_LINE)
        with on_disk():
            self._file.seek(self._read)
            while len(found) < most and self._read < end:
                line = self._file.readline(LONGEST_LINE + 1)
                whole, rest = line.endswith(b"\n"), self._skips
                self._skips = not whole and (rest or len(line) > LONGEST_LINE)
                if not (whole or self._skips or (self._ended and self._failure is None)):
                    break
                self._read += len(line)
                if rest:
                    continue
                if line.strip():
                    found.append(line)
                else:
                    self._skip_blank()
        return found

    def _skip_blank(self) -> None:
        ahead = self._file.read(BLANK_BYTES)
        self._read += len(ahead) - len(ahead.lstrip())
        self._file.seek(self._read)

    def _rewind(self) -> None:
        """All has been read: its room is free."""
        self._file.seek(0)
        self._file.truncate()
        self._room.give_back(self._written)
        self._written = self._read = 0


@contextlib.contextmanager
def on_disk() -> Iterator[None]:
    """Say what is wrong with the disk as an error that the caller understands."""
    try:
        yield
    except OSError as error:
        message = f"the server's disk does not take what waits of this stream ({error.strerror or error})"
        raise Overloaded(message, retry_after_s=FULL_RETRY_S) from error
