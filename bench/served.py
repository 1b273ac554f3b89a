"""A real `vecmill serve` in a process of its own, and what can be read of it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

STOP_S = 30


@dataclass(frozen=True)
class Served:
    """A server that has said that it is ready.

    Attributes:
        pid: Its process.
        host: Where it listens.
        port: Where it listens.
        ready_s: Seconds from starting the process to its first line.
    """

    pid: int
    host: str
    port: int
    ready_s: float

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Resident memory of the process now, or at its peak (VmHWM)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        if found is None:
            raise ValueError(f"no {field} in the status of process {self.pid}")
        return int(found[1]) / 1024

    def cpu_s(self) -> float:
        """Processor time of the process so far, all threads together."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def standing(self) -> AbstractContextManager[None]:
        """Stand still, but in its turns; in the end it runs, as who is stopped does not see SIGTERM."""
        return self._between(signal.SIGSTOP, signal.SIGCONT)

    def turn(self) -> AbstractContextManager[None]:
        """Run for so long, where it stands still."""
        return self._between(signal.SIGCONT, signal.SIGSTOP)

    @contextmanager
    def _between(self, first: int, last: int) -> Iterator[None]:
        os.kill(self.pid, first)
        try:
            yield
        finally:
            os.kill(self.pid, last)


@contextmanager
def served(*arguments: str, script: Path | None = None, source: Path | None = None) -> Iterator[Served]:
    """Serve the demo model, or what the arguments say, on a free port; end with SIGTERM.

    Args:
        arguments: Of `vecmill serve`.
        script: Runs in place of vecmill.
        source: Where vecmill's package lies; None is where this process has it from.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable,
            *([script] if script else ["-m", "vecmill"]),
            "serve",
            *arguments,
            "--port",
            "0",
            "--log-level",
            "warning",
        ],
        env=os.environ if source is None else {**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        ready_s = time.perf_counter() - started
        found = re.search(r"ready on (http://\S+)", line)
        if found is None:
            raise RuntimeError(f"the server did not start: {line!r}")
        address = urlsplit(found[1])
        yield Served(process.pid, address.hostname or "", address.port or 0, ready_s)
    finally:
        process.terminate()
        process.wait(STOP_S)
        if process.stdout:
            process.stdout.close()
