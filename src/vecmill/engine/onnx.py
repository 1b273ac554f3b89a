"""ONNX Runtime on a compiled graph: the CPU engine."""

from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from vecmill.engine.base import Batch
from vecmill.errors import CorruptFile
from vecmill.graph.build import build
from vecmill.graph.ops import INPUT, OUTPUT, Compiled
from vecmill.model.spec import ModelSpec

SPIN_US = 50
"""How long an idle compute thread busy-waits: enough for the gaps inside a pass, too short to starve the event loop.

Figures: docs/decisions/0003-spinning-threads.md.
"""

LARGE_SCORES = 1024 * 1024
"""Rows x length x length from which a run gives its memory back: attention scores of one long input take hundreds of
megabytes, which ONNX Runtime would otherwise keep for the next."""

FATAL_ONLY = 4

_ERRORS = vars(ort.capi.onnxruntime_pybind11_state).values()

REFUSALS = tuple(kind for kind in _ERRORS if isinstance(kind, type) and issubclass(kind, Exception))
"""What ONNX Runtime raises; its errors have no base of their own."""


class OnnxEngine:
    """A checkpoint on ONNX Runtime.

    Rows run in groups of equal length, so nothing is padded and no mask is needed.

    Args:
        spec: The model.
        threads: Threads to compute with.
        precision: One of `vecmill.graph.quantize.PRECISIONS`.

    Raises:
        LoadError: As `vecmill.graph.build.build`; CorruptFile also when the session refuses the weights.
    """

    def __init__(self, spec: ModelSpec, *, threads: int, precision: str = "float32") -> None:
        compiled = build(spec, precision)
        self.weight_bytes = sum(array.nbytes for array in compiled.weights.values())
        self._session = open_session(compiled, threads, spec.folder)
        self._dims = spec.dims

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Rows of the batch, float32 [rows, dims]."""
        return batch.by_length(self._dims, self._run_equal)

    def close(self) -> None:
        """Give the memory back."""
        del self._session

    def _run_equal(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        return cast("NDArray[np.float32]", self._session.run([OUTPUT], {INPUT: ids}, run_options(ids))[0])


def run_options(ids: NDArray[np.int32]) -> ort.RunOptions | None:
    """How to run ids [rows, length]: a run beyond `LARGE_SCORES` gives its memory back."""
    rows, length = ids.shape
    if rows * length * length < LARGE_SCORES:
        return None
    thrifty = ort.RunOptions()
    thrifty.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return thrifty


def open_session(model: Compiled | Path, threads: int, place: Path) -> ort.InferenceSession:
    """A session on our graph or on a file.

    Args:
        model: What it computes.
        threads: Threads to compute with.
        place: Where it comes from, for the message.

    Raises:
        CorruptFile: ONNX Runtime refuses it.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = FATAL_ONLY
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    if isinstance(model, Compiled):
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in model.weights.values()]
        options.add_external_initializers(list(model.weights), values)
    source = str(model) if isinstance(model, Path) else model.model
    try:
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except REFUSALS as error:
        raise CorruptFile(f"{place}: ONNX Runtime refuses the model: {error}") from error
