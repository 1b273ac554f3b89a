"""A real `vecmill` in a process of its own: started, read, and ended by its own id."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

COMMAND = [sys.executable, "-m", "vecmill"]
LIMIT_S = 60
"""A process that is still there after this long is killed, so that a test that would hang fails."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers.

    Attributes:
        process: The server; both its outputs are pipes.
        banner: What it printed when it was ready.
    """

    process: subprocess.Popen[str]
    banner: str

    @property
    def url(self) -> str:
        """Where it listens, from its banner."""
        return self.banner.partition(" is ready on ")[2].partition(" ")[0]

    @property
    def grpc(self) -> str:
        """Where it listens for gRPC, from its banner."""
        return self.banner.partition("gRPC (tei.v1) is ready on ")[2].partition("\n")[0]

    def told(self, word: str) -> str:
        """The lines on standard error up to the first that holds a word."""
        return read_to(self.process.stderr, word)

    def terminate(self) -> None:
        """Send the signal that operators send."""
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """Wait for the end."""
        return self.process.wait()


@contextmanager
def running(
    *arguments: str | Path, command: Sequence[str] = COMMAND, limit_s: float = LIMIT_S, **variables: str
) -> Iterator[Running]:
    """`vecmill serve ARGUMENTS` on a free port, with these environment variables; drained and ended in the end."""
    serve = [*command, "serve", "--port", "0", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(serve, stdout=pipe, stderr=pipe, text=True, env=environment(variables)) as process:
        watchdog = threading.Timer(limit_s, process.kill)
        watchdog.start()
        try:
            yield Running(process, read_to(process.stdout, "curl"))
        finally:
            process.send_signal(signal.SIGTERM)  # nothing happens where it has ended
            process.wait()
            watchdog.cancel()


def finished(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`vecmill ARGUMENTS` with these environment variables, run to its end."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment(variables)
    )


def environment(variables: dict[str, str]) -> dict[str, str]:
    """This process's environment without settings of vecmill, and with these."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")} | variables


def read_to(lines: IO[str] | None, word: str) -> str:
    """The lines up to the first that holds a word; an error where none does."""
    assert lines
    read = []
    for line in lines:
        read.append(line)
        if word in line:
            return "".join(read)
    raise AssertionError(f"the process ended without a line with {word!r}:\n{''.join(read)}")
