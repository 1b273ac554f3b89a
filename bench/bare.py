"""The ceiling: the engine alone, with ONNX Runtime's own defaults, no HTTP, no queue."""

import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

from vecmill.config import DEFAULT_MODEL
from vecmill.engine.base import usable_cpus
from vecmill.engine.onnx import SLOWER
from vecmill.graph.build import build
from vecmill.graph.ops import INPUT
from vecmill.graph.packed import equal_layout
from vecmill.model.source import resolve
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

BATCH_TOKENS = 512


class Bare:
    """A session and a tokenizer, called directly."""

    def __init__(self, folder: Path | None = None, precision: str = "float32") -> None:
        spec = read_spec(folder or resolve(DEFAULT_MODEL).folder)
        compiled = build(spec, precision)
        options = ort.SessionOptions()
        options.intra_op_num_threads = usable_cpus()
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in compiled.weights.values()]
        options.add_external_initializers(list(compiled.weights), values)
        providers = ["CPUExecutionProvider"]
        self._session = ort.InferenceSession(compiled.model, options, providers, disabled_optimizers=list(SLOWER))
        self._tokenizer = Tokenizer(spec)

    def embed_one(self, text: str) -> float:
        """Seconds from text to row."""
        started = time.perf_counter()
        (tokens,) = self._tokenizer.encode([text])
        self._run(tokens.ids[None])
        return time.perf_counter() - started

    def embed_all(self, texts: list[str]) -> tuple[float, int]:
        """Seconds and tokens of texts grouped by exact length, the tokenising not counted."""
        groups: dict[int, list[np.ndarray[tuple[int], np.dtype[np.int32]]]] = {}
        for tokens in self._tokenizer.encode(texts):
            groups.setdefault(len(tokens.ids), []).append(tokens.ids)
        started = time.perf_counter()
        for length, rows in sorted(groups.items()):
            size = max(1, BATCH_TOKENS // length)
            for start in range(0, len(rows), size):
                self._run(np.stack(rows[start : start + size]))
        return time.perf_counter() - started, sum(length * len(rows) for length, rows in groups.items())

    def _run(self, ids: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> None:
        self._session.run(None, {INPUT: ids, **equal_layout(ids.shape[1])})
