"""This checkout against another revision of it, in turns on the same texts; prints what a change has changed.

usage: turns.py REVISION [WORKLOAD [PRECISION [ROUNDS [SECONDS]]]]

A machine's speed changes more from hour to hour than most changes to code do. So both servers are there from the start,
and stand still (SIGSTOP) but for the one that is asked; each round asks both the same, the bare engine beside them,
and what counts is the median of the ratios within a round.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bare import Bare
from load import MODEL, measured
from rivals import BARE, SEEDS, bare
from served import Served, served

from vecmill.config import DEFAULT_MODEL

HERE = Path(__file__).parents[1]
GIT = shutil.which("git") or "git"

Figures = dict[str, float]


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The files of a revision, for so long.

    Raises:
        CalledProcessError: There is no such revision.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "checkout"
        subprocess.run([GIT, "worktree", "add", "--quiet", "--detach", folder, revision], cwd=HERE, check=True)
        try:
            yield folder
        finally:
            subprocess.run([GIT, "worktree", "remove", "--force", folder], cwd=HERE, check=True)


def asked(server: Served, workload: str, seconds: float, seed: int) -> Figures:
    """What a server that stands still does of a workload once it runs, by the kind of request and the figure."""
    with server.turn():
        before = server.cpu_s()
        found: dict[str, Any] = measured(server, "/v1/embeddings", workload, seconds, seed)
        spent = server.cpu_s() - before
    texts = sum(kind["texts_per_s"] for kind in found.values()) * seconds
    figures = {f"{kind} {name}": value for kind, told in found.items() for name, value in told.items()}
    return figures | {"cpu_us_a_text": round(spent / texts * 1e6)}


def rounds(revision: str, workload: str, precision: str, count: int, seconds: float) -> Iterator[list[Figures]]:
    """The figures of each round: of the revision, of this checkout, and of the bare engine where it has such texts."""
    engine = Bare(precision=precision)
    with ExitStack() as stack:
        folder = stack.enter_context(checkout(revision))
        servers = []
        for source in (folder, HERE):
            arguments = (f"{MODEL}={DEFAULT_MODEL}", "--precision", precision)
            server = stack.enter_context(served(*arguments, source=source / "src"))
            stack.enter_context(server.standing())
            servers.append(server)
        for number in range(count):
            seed = 100 * number + SEEDS[workload]
            alone = {"bare": bare(engine, workload, seed)} if workload in BARE else {}
            order = servers if number % 2 else servers[::-1]  # neither is always the first
            found = {server.pid: asked(server, workload, seconds, seed) for server in order}
            yield [*(found[server.pid] for server in servers), alone]


def main(
    revision: str, workload: str = "mixed", precision: str = "float32", count: str = "6", seconds: str = "5"
) -> None:
    """Measure and print."""
    seen = []
    for one in rounds(revision, workload, precision, int(count), float(seconds)):
        seen.append(one)
        print(*one, sep="\n", end="\n\n", flush=True)
    for name in seen[0][0]:
        before, now = ([found[which][name] for found in seen] for which in (0, 1))
        ratios = [new / old for old, new in zip(before, now, strict=True) if old]
        print(
            f"{name:20} {statistics.median(before):8.2f} -> {statistics.median(now):8.2f}, "
            f"ratio {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
