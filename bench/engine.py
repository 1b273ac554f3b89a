"""The compiled graph against ONNX Runtime's own fused BERT and against sentence-transformers, on the same weights.

usage: engine.py        (in the reference environment: `make bench-engine`)

Speeds are medians of runs in turns, tokens a second.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from workload import passages

from vecmill.config import DEFAULT_MODEL
from vecmill.engine.base import Batch, usable_cpus
from vecmill.engine.onnx import SPIN_US, OnnxEngine
from vecmill.graph.quantize import PRECISIONS
from vecmill.model.source import resolve
from vecmill.model.spec import ModelSpec, read_spec
from vecmill.model.tokenizer import Tokenizer

RESULTS = Path(__file__).parent / "results"

SHAPES = [(1, 16), (4, 32), (1, 128), (4, 128), (1, 512)]
TURNS = 25
TEXTS = 256

Ids = NDArray[np.int32]


class Fused:
    """An export of the model, fused by ONNX Runtime's transformer optimizer; made anew, in a temporary folder."""

    def __init__(self, spec: ModelSpec, threads: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export(spec, path)
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            # In turns, threads that still spin from one engine's run would slow the next one's.
            options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._types = {i.name: np.int32 if "int32" in i.type else np.int64 for i in self._session.get_inputs()}

    def run(self, ids: Ids) -> None:
        """Token states of [rows, length]."""
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        self._session.run(None, {name: feed[name].astype(kind) for name, kind in self._types.items()})


def export(spec: ModelSpec, path: Path) -> None:
    """Write the fused model."""
    import torch
    from onnxruntime.transformers import optimizer
    from transformers import AutoModel

    class Encoder(torch.nn.Module):  # type: ignore[misc]  # torch is not typed where mypy runs
        """The model with its inputs by position: the exporter passes no names."""

        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(spec.transformer, attn_implementation="eager").eval()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
            """Token states."""
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.randint(0, 1000, (2, 9))
    axes = {name: {0: "rows", 1: "length"} for name in [*names, "states"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own internals
        torch.onnx.export(
            Encoder(),
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            str(path),
            input_names=names,
            output_names=["states"],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
    heads, width = spec.config["num_attention_heads"], spec.config["hidden_size"]
    fused = optimizer.optimize_model(str(path), model_type="bert", num_heads=heads, hidden_size=width)
    fused.save_model_to_file(str(path))


def by_shape(spec: ModelSpec, engines: dict[str, OnnxEngine], fused: Fused) -> dict[str, dict[str, int]]:
    """Tokens a second of each at each shape."""
    rng = np.random.default_rng(0)
    speeds = {}
    for rows, length in SHAPES:
        ids = rng.integers(1000, spec.vocab_size, (rows, length)).astype(np.int32)
        batch = Batch.pack(list(ids))
        runs: dict[str, list[float]] = {name: [] for name in ["fused", *engines]}
        for turn in range(TURNS + 3):
            for name, seconds in runs.items():
                started = time.perf_counter()
                if name == "fused":
                    fused.run(ids)
                else:
                    engines[name].run(batch)
                if turn >= 3:
                    seconds.append(time.perf_counter() - started)
        speeds[f"{rows}x{length}"] = {
            name: round(rows * length / statistics.median(seconds)) for name, seconds in runs.items()
        }
    return speeds


def against_sentence_transformers(spec: ModelSpec, engine: OnnxEngine, threads: int) -> dict[str, float]:
    """Texts a second over passages of mixed length, each at its best: sorted by length."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    reference = SentenceTransformer(str(spec.folder), device="cpu")
    tokenizer, ratios, ours = Tokenizer(spec), [], []
    for seed in range(4):
        texts = passages(seed, TEXTS)
        started = time.perf_counter()
        _embed_all(engine, [tokens.ids for tokens in tokenizer.encode(texts)])
        own = time.perf_counter() - started
        started = time.perf_counter()
        reference.encode(texts)
        if seed:  # the first is a warm-up
            ratios.append((time.perf_counter() - started) / own)
            ours.append(TEXTS / own)
    return {"texts_per_s": round(statistics.median(ours), 1), "ratio": round(statistics.median(ratios), 2)}


def _embed_all(engine: OnnxEngine, ids: list[Ids]) -> None:
    ordered = sorted(ids, key=len)
    while ordered:
        length = len(ordered[-1])
        size = max(1, min(512 // length, sum(len(row) == length for row in ordered)))
        engine.run(Batch.pack(ordered[-size:]))
        del ordered[-size:]


def loading(spec: ModelSpec, threads: int) -> dict[str, dict[str, float]]:
    """Seconds to load, what the weights take, and memory after it, of each precision in a process of its own."""
    return {precision: _load(spec, threads, precision) for precision in PRECISIONS}


def _load(spec: ModelSpec, threads: int, precision: str) -> dict[str, float]:
    given = [str(spec.folder), precision, str(threads)]
    done = subprocess.run([sys.executable, "-c", LOADER, *given], check=True, capture_output=True, text=True)
    row: dict[str, float] = json.loads(done.stdout)
    row["bound_mb"] = round(row["weights_mb"] * 1.35 + 120, 1)
    return row


LOADER = """
import json, sys, time
from pathlib import Path
from vecmill.engine.base import load_engine
from vecmill.model.spec import read_spec
started = time.perf_counter()
engine = load_engine("onnx", read_spec(Path(sys.argv[1])), threads=int(sys.argv[3]), precision=sys.argv[2])
load_s = round(time.perf_counter() - started, 2)
pages = int(Path("/proc/self/statm").read_text().split()[1])
sizes = {"weights_mb": round(engine.weight_bytes / 1e6, 1), "resident_mb": round(pages * 4096 / 1e6, 1)}
print(json.dumps({"load_s": load_s, **sizes}))
"""


def main() -> None:
    """Measure, print and keep."""
    spec, threads = read_spec(resolve(DEFAULT_MODEL).folder), usable_cpus()
    load = loading(spec, threads)
    engines = {name: OnnxEngine(spec, threads=threads, precision=name) for name in PRECISIONS}
    engines["float32, cls"] = OnnxEngine(replace(spec, pooling=("cls",)), threads=threads)
    speeds = by_shape(spec, engines, Fused(spec, threads))
    ratios = {shape: round(row["float32"] / row["fused"], 3) for shape, row in speeds.items()}
    small = {shape: round(row["int8"] / row["float32"], 3) for shape, row in speeds.items()}
    result: dict[str, Any] = {
        "machine": machine.describe(),
        "tokens_per_s": speeds,
        "float32_to_fused": ratios,
        "float32_to_fused_geometric_mean": round(statistics.geometric_mean(ratios.values()), 3),
        "int8_to_float32": small,
        "int8_to_float32_geometric_mean": round(statistics.geometric_mean(small.values()), 3),
        "cls_to_mean": {shape: round(row["float32, cls"] / row["float32"], 3) for shape, row in speeds.items()},
        "speed_at_512_to_128": round(speeds["1x512"]["float32"] / speeds["1x128"]["float32"], 3),
        "sentence_transformers": against_sentence_transformers(spec, engines["float32"], threads),
        "loading": load,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "engine.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
