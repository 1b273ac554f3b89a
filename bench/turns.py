"""This checkout against another revision of it, in turns on the same texts: what a change has changed.

usage: turns.py REVISION [WORKLOAD [PRECISION [ROUNDS [SECONDS]]]]

A machine's speed changes more from hour to hour than most changes to code do. So both servers are there from the start,
and stand still (SIGSTOP) but for the one that is asked; each round asks both the same, the bare engine beside them,
and what counts is the median of the ratios within a round. results/turns.json keeps the last run of each workload.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import machine
from bare import Bare
from load import MODEL, measured
from rivals import BARE, SEEDS, bare
from served import Served, served

from vecmill.config import DEFAULT_MODEL

HERE = Path(__file__).parents[1]
RESULTS = HERE / "bench" / "results" / "turns.json"
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
    """Measure, print and keep."""
    seen, told = [], dict[str, Any]()
    for one in rounds(revision, workload, precision, int(count), float(seconds)):
        seen.append(one)
        print(*one, sep="\n", end="\n\n", flush=True)
    for name in seen[0][0]:
        before, now = ([found[which][name] for found in seen] for which in (0, 1))
        ratios = [round(new / old, 3) for old, new in zip(before, now, strict=True) if old]
        middles = (round(statistics.median(numbers), 3) for numbers in (before, now, ratios))
        told[name] = {**dict(zip(("before", "now", "ratio"), middles, strict=True)), "ratio of each round": ratios}
        print(f"{name:20} {told[name]}")
    command = [GIT, "describe", "--always", "--dirty"]
    now_is = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
    facts = {"machine": machine.describe(), "before": revision, "now": now_is, "seconds": float(seconds)}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[f"{workload} {precision}"] = {**facts, **told}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
