"""vecmill and Infinity on the same bytes in one run, beside the bare engine; writes bench/results/rivals.json.

usage: rivals.py INFINITY_PYTHON [SECONDS]

Each server runs in a fresh process, alone with the load generator on the same cores. Infinity runs its ONNX engine
(optimum) on a graph that torch exports from the same weights. Each workload has its seed, the same for all servers.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
BARE = {"query": 2000, "bulk": 24}
"""Requests of each kind that the bare engine computes."""


def bare(precision: str) -> dict[str, Any]:
    """What the engine alone makes of the same kinds of texts: sorted by length, in full batches; and one by one."""
    engine = Bare(precision=precision)
    rates = {}
    for kind, requests in BARE.items():
        rng = random.Random(1)
        texts = [text for _ in range(requests) for text in TEXTS[kind](rng)]
        engine.embed_all(texts[:64])
        seconds, _ = engine.embed_all(texts)
        rates[kind] = round(len(texts) / seconds, 1)
    rng = random.Random(2)
    alone = sorted(engine.embed_one(TEXTS["query"](rng)[0]) for _ in range(500))
    return {"query": rates["query"], "index": rates["bulk"], "single_p50_ms": round(alone[250] * 1000, 2)}


def figures(server: Served, path: str, seconds: float) -> dict[str, Any]:
    """All workloads against a server."""
    found: dict[str, Any] = {"ready_s": round(server.ready_s, 2)}
    for workload, seed in SEEDS.items():
        found[workload] = measured(server, path, workload, seconds, seed)
        print(f"  {workload:7} {found[workload]}", flush=True)
    found["memory_mb"] = round(server.memory_mb())
    return found


@contextmanager
def infinity(python: str, folder: Path) -> Iterator[Served]:
    """Infinity on a model folder with model.onnx at its top; ended with SIGTERM."""
    started = time.perf_counter()
    options = f"--model-id . --served-model-name {MODEL} --engine optimum --device cpu --port {PORT}"
    command: list[str | Path] = [Path(python).with_name("infinity_emb"), "v2", *options.split()]
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
    """What is promised, as ratios within this run."""
    rival = found["infinity float32"]
    told: dict[str, float] = {}
    for precision in ("float32", "int8"):
        ours, ceiling = found[f"vecmill {precision}"], found[f"bare {precision}"]
        index = ours["index"]["bulk"]["texts_per_s"]
        told |= {
            f"{precision} index / bare": index / ceiling["index"],
            f"{precision} index / Infinity": index / rival["index"]["bulk"]["texts_per_s"],
            f"{precision} query / bare": ours["query"]["query"]["texts_per_s"] / ceiling["query"],
            f"{precision} query / Infinity": ours["query"]["query"]["texts_per_s"]
            / rival["query"]["query"]["texts_per_s"],
            f"{precision} single p50 - bare, ms": ours["single"]["query"]["p50_ms"] - ceiling["single_p50_ms"],
            f"{precision} mixed query p50, ms": ours["mixed"]["query"]["p50_ms"],
            f"{precision} mixed query p99, ms": ours["mixed"]["query"]["p99_ms"],
            f"{precision} mixed bulk / index": ours["mixed"]["bulk"]["texts_per_s"] / index,
        }
    return {name: round(value, 2) for name, value in told.items()}


def main(python: str, seconds: float = 15.0) -> None:
    """Run everything once and write the results."""
    found: dict[str, Any] = {}
    for precision in ("float32", "int8"):
        found[f"bare {precision}"] = bare(precision)
        print(f"bare {precision}: {found[f'bare {precision}']}", flush=True)
        print(f"vecmill {precision}:", flush=True)
        with served(f"{MODEL}={DEFAULT_MODEL}", "--precision", precision) as server:
            found[f"vecmill {precision}"] = figures(server, "/v1/embeddings", seconds)
    with tempfile.TemporaryDirectory() as folder:
        print("infinity float32:", flush=True)
        with infinity(python, exported(python, Path(folder) / "model")) as server:
            found["infinity float32"] = figures(server, "/embeddings", seconds)
    versions = {"infinity-emb": _version(python, "infinity-emb"), "onnxruntime there": _version(python, "onnxruntime")}
    told = ratios(found)
    for name, value in told.items():
        print(f"  {name:36} {value}")
    result = {"machine": machine.describe(), "rival": versions, "seconds": seconds, "ratios": told, **found}
    (HERE / "results" / "rivals.json").write_text(json.dumps(result, indent=1) + "\n")


def _version(python: str, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
