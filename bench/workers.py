"""Two workers against one: answers a second and memory, for a model that computes and for a table that hardly does."""

import json
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from load import MODEL, measured
from safetensors.numpy import save_file
from served import Served, served

from vecmill.config import DEFAULT_MODEL
from vecmill.model.source import resolve

SECONDS = 6.0
ROUNDS = 2
DIMS = 256
FIGURES = {
    "minilm": {"index": "bulk", "query": "query", "single": "query"},
    "table": {"query": "query", "single": "query"},
}
"""Model to its workloads, each with the kind of request that counts."""


def table(folder: Path) -> str:
    """A static model with the demo model's tokenizer and a table of random numbers."""
    shutil.copy(resolve(DEFAULT_MODEL).folder / "tokenizer.json", folder)
    size = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    rows = np.random.default_rng(0).normal(size=(size, DIMS)).astype(np.float32)
    save_file({"embeddings": rows}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
    return str(folder)


def measure() -> dict[str, Any]:
    """Texts a second, p50 and megabytes of each round, with one worker and with two."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in {"minilm": DEFAULT_MODEL, "table": table(Path(folder))}.items():
            for number in range(ROUNDS):
                for workers in ("1", "2"):
                    with served(f"{MODEL}={model}", "--workers", workers) as server:
                        for workload, kind in FIGURES[name].items():
                            figure = "p50_ms" if workload == "single" else "texts_per_s"
                            row = found.setdefault(f"{name} {workload} {figure}", {})
                            row.setdefault(workers, []).append(_figure(server, workload, kind, figure, number))
                        for field, megabytes in memory(server).items():
                            found.setdefault(f"{name} {field}_mb", {}).setdefault(workers, []).append(megabytes)
    return found


def _figure(server: Served, workload: str, kind: str, figure: str, seed: int) -> float:
    """Of two clients' processes, as one alone would be the bound where the engine is quick."""
    if figure == "p50_ms":
        return float(measured(server, "/v1/embeddings", workload, SECONDS, seed)[kind][figure])
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(measured, server, "/v1/embeddings", workload, SECONDS, 2 * seed + one) for one in (0, 1)]
        return float(round(sum(one.result()[kind][figure] for one in asked), 1))


def memory(server: Served) -> dict[str, float]:
    """Resident and proportional megabytes of a server and its workers; what is shared counts once in the latter."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    pages = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (server.pid, *children)]
    fields = {"rss": "Rss", "pss": "Pss", "file": "Pss_File"}
    return {
        name: round(sum(int(re.findall(rf"^{field}: +(\d+)", page, re.MULTILINE)[0]) for page in pages) / 1024)
        for name, field in fields.items()
    }
