"""What a model's micro-batches cost, kept on disk between starts: measured once, corrected from what runs.

A file is known by the checkpoint's files, what computes them and on which machine. What it says is believed where a
probe takes about as long as it says.
"""

import hashlib
import json
import logging
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecmill import __version__
from vecmill.model.identity import facts_of_files
from vecmill.serving.cost import DOUBT, CostModel

log = logging.getLogger(__name__)

FORMAT = 2
"""To be raised where the same version would measure otherwise."""

AGREES = 2.0
"""A probe may take so many times longer or shorter than was kept."""

LEAST_S = 0.05
"""What is measured in less time is measured at every start."""

MOST_FILES = 200
"""The oldest go beyond it."""


@dataclass(frozen=True, slots=True)
class KeptCost:
    """One model's file.

    Attributes:
        path: The file.
        batch_s: As `CostModel`: a setting, and not kept.
    """

    path: Path
    batch_s: float

    def start(self, probe: Callable[[], tuple[int, int, float]], measure: Callable[[], CostModel]) -> CostModel:
        """The cost that was kept, where a probe agrees with it; else measured, and kept where that took its time.

        Args:
            probe: Runs a small batch: rows, length and seconds.
            measure: Measures anew.
        """
        found = self.read()
        if found is not None:
            rows, length, seconds = probe()
            if 1 / AGREES <= seconds / found.seconds(rows, length) <= AGREES:
                found.pace = seconds / found.seconds(rows, length)
                return found
            log.info("a batch takes %.2g s, not the %.2g s kept: measured anew", seconds, found.seconds(rows, length))
        started = time.perf_counter()
        measured = measure()
        if time.perf_counter() - started >= LEAST_S:
            self.write(measured)
        return measured

    def learned(self, before: CostModel, now: CostModel) -> None:
        """Keep what was learned while it ran, where anything is kept and it is near enough to what was believed."""
        changes = [new / old for new, old in zip(now.token_s, before.token_s, strict=True)]
        if self.path.is_file() and all(1 / DOUBT <= change <= DOUBT for change in changes):
            self.write(now)

    def read(self) -> CostModel | None:
        """What is kept; None where nothing is, or nothing that makes sense."""
        try:
            kept = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read and is measured anew: %s", self.path, error)
            return None
        if not _is_sane(kept):
            log.warning("%s is damaged and is measured anew", self.path)
            return None
        return CostModel(self.batch_s, kept["overhead_s"], kept["lengths"], kept["token_s"])

    def write(self, cost: CostModel) -> None:
        """Keep it, whole or not at all; a disk that does not take it costs a line in the log."""
        kept = {"overhead_s": cost.overhead_s, "lengths": list(cost.lengths), "token_s": list(cost.token_s)}
        if not _is_sane(kept):
            return
        unfinished = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(json.dumps(kept))
            unfinished.replace(self.path)
            files = sorted(self.path.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for oldest in files[:-MOST_FILES]:
                oldest.unlink(missing_ok=True)
        except OSError as error:
            log.warning("what batches cost is not kept: %s", error)


def kept_cost(folder: Path, checkpoint: Path, asked: tuple[object, ...], batch_s: float) -> KeptCost:
    """The file of a model.

    Args:
        folder: Where such files are.
        checkpoint: The model's own files.
        asked: What else decides its speed: precision, engine, threads ...
        batch_s: As `CostModel`.
    """
    facts = [FORMAT, __version__, cpu_name(), *asked, *facts_of_files(checkpoint)]
    return KeptCost(folder / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:40]}.json", batch_s)


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What this machine calls its CPU."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, f"{platform.machine()} {platform.processor()}")


def _is_sane(kept: Any) -> bool:  # noqa: ANN401 (whatever a file holds)
    """Whether it is a cost model: times and lengths that can be."""
    if not isinstance(kept, dict) or kept.keys() != {"overhead_s", "lengths", "token_s"}:
        return False
    overhead_s, lengths, token_s = kept["overhead_s"], kept["lengths"], kept["token_s"]
    if not (_is_time(overhead_s) and isinstance(lengths, list) and isinstance(token_s, list)):
        return False
    if not lengths or len(lengths) != len(token_s) or not all(type(one) is int and one > 0 for one in lengths):
        return False
    return lengths == sorted(set(lengths)) and all(_is_time(one) and one > 0 for one in token_s)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0
