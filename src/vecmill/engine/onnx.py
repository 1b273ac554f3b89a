"""ONNX Runtime on a compiled graph: the CPU engine."""

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

FATAL_ONLY = 4


class OnnxEngine:
    """A checkpoint on ONNX Runtime.

    Rows run in groups of equal length, so nothing is padded and no mask is needed.

    Args:
        spec: The model.
        threads: Threads to compute with.

    Raises:
        LoadError: As `vecmill.graph.build.build`; CorruptFile also when the session refuses the weights.
    """

    def __init__(self, spec: ModelSpec, *, threads: int) -> None:
        try:
            self._session = _session(build(spec), threads)
        except ort.capi.onnxruntime_pybind11_state.Fail as error:
            raise CorruptFile(f"{spec.folder}: ONNX Runtime refuses the model: {error}") from error
        self._dims = spec.dims

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Rows of the batch, float32 [rows, dims]."""
        lengths = batch.lengths
        distinct = np.unique(lengths)
        if len(distinct) == 1:
            return self._run_equal(batch.ids.reshape(len(lengths), distinct[0]))
        rows = np.empty((len(lengths), self._dims), dtype=np.float32)
        for length in distinct:
            chosen = np.flatnonzero(lengths == length)
            rows[chosen] = self._run_equal(batch.ids[batch.offsets[chosen][:, None] + np.arange(length)])
        return rows

    def close(self) -> None:
        """Give the memory back."""
        del self._session

    def _run_equal(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        return cast("NDArray[np.float32]", self._session.run([OUTPUT], {INPUT: ids})[0])


def _session(compiled: Compiled, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = FATAL_ONLY
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in compiled.weights.values()]
    options.add_external_initializers(list(compiled.weights), values)
    return ort.InferenceSession(compiled.model, options, providers=["CPUExecutionProvider"])
