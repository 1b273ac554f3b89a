"""vecmill and Infinity on the same bytes, in turns with the bare engine; writes bench/results/rivals.json.

usage: rivals.py INFINITY_PYTHON [SECONDS]

All servers are there from the start, and stand still (SIGSTOP) but for the one that is asked, which is alone with the
load generator on the same cores. A machine's speed changes from minute to minute, so ratios are of what ran next to
each other, and the median of the rounds is told. Infinity runs its ONNX engine (optimum) on a graph that torch exports
from the same weights. Each workload has its seed, the same for all servers; each round has others.
"""

import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import machine
from bare import Bare
from load import CLIENTS, MODEL, TEXTS, measured
from served import Served, served

from vecmill.config import DEFAULT_MODEL
from vecmill.model.source import resolve

HERE = Path(__file__).parent
PORT = 7997
START_S = 180
SEEDS = {name: 11 + number for number, name in enumerate(CLIENTS)}
PRECISIONS = ("float32", "int8")
ROUNDS = 3
BARE = {"single": 500, "query": 2000, "index": 512}
"""Workload to the texts that the bare engine computes of its kind in a round."""


def bare(engine: Bare, workload: str, seed: int) -> float:
    """What the engine alone makes of texts of a workload.

    Texts a second of such that are sorted by length, in full batches; of "single" the median milliseconds of one.
    """
    rng = random.Random(seed)
    texts: list[str] = []
    while len(texts) < BARE[workload]:
        texts += TEXTS["bulk" if workload == "index" else "query"](rng)
    if workload == "single":
        return statistics.median(map(engine.embed_one, texts)) * 1000
    return len(texts) / engine.embed_all(texts)[0]


def one_round(servers: dict[str, tuple[Served, str]], engines: dict[str, Bare], number: int, seconds: float) -> Any:  # noqa: ANN401 (JSON)
    """Every workload against every server, each beside what the bare engine does at that time."""
    found: dict[str, dict[str, Any]] = {name: {} for name in (*servers, *(f"bare {name}" for name in engines))}
    for workload, seed in SEEDS.items():
        for precision, engine in engines.items() if workload in BARE else ():
            found[f"bare {precision}"][workload] = bare(engine, workload, 100 * number + seed)
        for name, (server, path) in servers.items():
            with server.turn():
                found[name][workload] = measured(server, path, workload, seconds, 100 * number + seed)
            print(f"  {name:16} {workload:7} {found[name][workload]}", flush=True)
    return found


@contextmanager
def infinity(python: str, folder: Path) -> Iterator[Served]:
    """Infinity on a model folder with model.onnx at its top; ended with SIGTERM."""
    started = time.perf_counter()
    options = f"--model-id . --served-model-name {MODEL} --engine optimum --device cpu --port {PORT}"
    command: list[str | Path] = [Path(python).absolute().with_name("infinity_emb"), "v2", *options.split()]
    quiet = {**os.environ, "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, cwd=folder, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _listens():
            if process.poll() is not None or time.perf_counter() - started > START_S:
                raise RuntimeError("Infinity did not start")
            time.sleep(0.05)
        yield Served(process.pid, "127.0.0.1", PORT, time.perf_counter() - started)
    finally:
        process.terminate()
        process.wait(30)


def exported(python: str, folder: Path) -> Path:
    """A copy of the demo model with the graph that torch exports of it."""
    shutil.copytree(resolve(DEFAULT_MODEL).folder, folder)
    subprocess.run([python, HERE / "export.py", folder], check=True, stderr=subprocess.DEVNULL)
    return folder


def _listens() -> bool:
    """Infinity opens its port once its model is loaded."""
    try:
        socket.create_connection(("127.0.0.1", PORT), timeout=5).close()
    except OSError:
        return False
    return True


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """What is promised, as ratios within a round."""
    rival = found["infinity float32"]
    told: dict[str, float] = {}
    for precision in PRECISIONS:
        ours, ceiling = found[f"vecmill {precision}"], found[f"bare {precision}"]
        index = ours["index"]["bulk"]["texts_per_s"]
        query = ours["query"]["query"]["texts_per_s"]
        told |= {
            f"{precision} index / bare": index / ceiling["index"],
            f"{precision} index / Infinity": index / rival["index"]["bulk"]["texts_per_s"],
            f"{precision} query / bare": query / ceiling["query"],
            f"{precision} query / Infinity": query / rival["query"]["query"]["texts_per_s"],
            f"{precision} single p50 - bare, ms": ours["single"]["query"]["p50_ms"] - ceiling["single"],
            f"{precision} mixed query p50, ms": ours["mixed"]["query"]["p50_ms"],
            f"{precision} mixed query p99, ms": ours["mixed"]["query"]["p99_ms"],
            f"{precision} mixed bulk / index": ours["mixed"]["bulk"]["texts_per_s"] / index,
        }
    return told


def median(rounds: list[Any]) -> Any:  # noqa: ANN401 (JSON)
    """The median of each number of all rounds."""
    if isinstance(rounds[0], dict):
        return {name: median([one[name] for one in rounds]) for name in rounds[0]}
    return round(statistics.median(rounds), 2)


@contextmanager
def standing(python: str, folder: Path) -> Iterator[dict[str, tuple[Served, str]]]:
    """Every server with the path that it answers, all of them stopped."""
    with ExitStack() as stack:
        servers = {
            f"vecmill {precision}": (
                stack.enter_context(served(f"{MODEL}={DEFAULT_MODEL}", "--precision", precision)),
                "/v1/embeddings",
            )
            for precision in PRECISIONS
        }
        servers["infinity float32"] = (stack.enter_context(infinity(python, folder)), "/embeddings")
        for server, _ in servers.values():
            stack.enter_context(server.standing())
        yield servers


def main(python: str, seconds: float = 8.0) -> None:
    """Run all rounds and write the results."""
    engines = {precision: Bare(precision=precision) for precision in PRECISIONS}
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = exported(python, Path(scratch) / "model")
        with standing(python, folder) as servers:
            for number in range(ROUNDS):
                print(f"round {number + 1} of {ROUNDS}:", flush=True)
                rounds.append(one_round(servers, engines, number, seconds))
            facts = {
                name: {"ready_s": round(server.ready_s, 2), "memory_mb": round(server.memory_mb())}
                for name, (server, _) in servers.items()
            }
    versions = {"infinity-emb": _version(python, "infinity-emb"), "onnxruntime there": _version(python, "onnxruntime")}
    each = [ratios(one) for one in rounds]
    told = median(each)
    for name, value in told.items():
        print(f"  {name:36} {value:6} ({', '.join(f'{one[name]:.2f}' for one in each)})")
    found = {name: facts.get(name, {}) | figures for name, figures in median(rounds).items()}
    result = {
        "machine": machine.describe(),
        "rival": versions,
        "rounds": ROUNDS,
        "seconds": seconds,
        "ratios": told,
        "ratios of each round": [{name: round(value, 2) for name, value in one.items()} for one in each],
        **found,
    }
    (HERE / "results" / "rivals.json").write_text(json.dumps(result, indent=1) + "\n")


def _version(python: str, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
