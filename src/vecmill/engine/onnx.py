"""ONNX Runtime on a compiled graph: the CPU engine."""

import ctypes
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from vecmill.core import Output, Sparse
from vecmill.engine.base import Batch, Column, Engine, Ids
from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.graph.build import build
from vecmill.graph.kept import kept
from vecmill.graph.ops import INPUT, MARKS, Compiled
from vecmill.graph.packed import PLACES, equal_layout, layout, near
from vecmill.graph.quantize import PRECISIONS
from vecmill.graph.splade import weigh
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import Mark, Splade, TokenWeights

SPIN_US = 50
"""How long an idle compute thread busy-waits: enough for the gaps inside a pass, too short to starve the event loop.

Figures: docs/decisions/0003-spinning-threads.md.
"""

LARGE_SCORES = 1024 * 1024
"""Rows x length x length from which a run gives its memory back: attention scores of one long input take hundreds of
megabytes, which ONNX Runtime would otherwise keep for the next."""

Feeds = dict[str, NDArray[Any]]
"""Inputs of a graph by their names."""

FATAL_ONLY = 4

SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion", "EmbedLayerNormFusion")
"""Fusions of ONNX Runtime whose operators take longer than their parts: docs/decisions/0007-slower-fusions.md."""

_ERRORS = vars(ort.capi.onnxruntime_pybind11_state).values()

REFUSALS = tuple(kind for kind in _ERRORS if isinstance(kind, type) and issubclass(kind, Exception))
"""What ONNX Runtime raises; its errors have no base of their own."""


class OnnxEngine(Engine):
    """A checkpoint on ONNX Runtime, for any number of threads at once.

    Rows run in groups of equal length, so nothing is padded and no mask is needed.

    Args:
        spec: The model.
        threads: Threads to compute with.
        precision: One of `vecmill.graph.quantize.PRECISIONS`.
        keep: Where quantised weights are kept for the next start, and most bytes of them; None keeps none.

    Raises:
        UnsupportedModel: There is no such precision.
        LoadError: As `vecmill.graph.build.build`; CorruptFile also when the session refuses the weights.
    """

    shared = True

    def __init__(
        self, spec: ModelSpec, *, threads: int, precision: str = "float32", keep: tuple[Path, int] | None = None
    ) -> None:
        if precision not in PRECISIONS:
            has = ", ".join(PRECISIONS)
            raise UnsupportedModel(f"{spec.folder}: the onnx engine has no precision {precision!r}; it has: {has}")
        self._spec = spec
        self._threads = threads
        self._precision = precision
        self._keep = keep if precision != "float32" else None
        self._sessions: dict[tuple[Output, ...], ort.InferenceSession] = {}
        self._packed: set[tuple[Output, ...]] = set()
        self._opening = threading.Lock()
        self.weight_bytes = self._open(spec.native)

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """A column for each output. Outputs that were never asked for have their graph built on the first call."""
        wanted = tuple(outputs)
        with self._opening:
            if not any(set(wanted) <= set(given) for given in self._sessions):
                self._refuse_others(wanted)
                self.weight_bytes += self._open(wanted)
        if self._given(wanted) in self._packed:
            return batch.in_groups(near, partial(self._run_packed, wanted))
        summed = isinstance(self._spec.sparse, Splade) and self._spec.sparse.pooling == "sum"
        return batch.by_length(partial(self._run_singly if summed else self._run_equal, wanted))

    def alike(self, length: int) -> int:
        """Short inputs of near lengths run in one pass, where the graph can."""
        return near(length) if self._spec.native in self._packed else length

    def close(self) -> None:
        """Give the memory back."""
        self._sessions.clear()

    def _open(self, outputs: tuple[Output, ...]) -> int:
        """Build the graph of these outputs; the bytes of its weights."""
        make = partial(build, self._spec, self._precision, outputs)
        asked = (self._precision, *outputs)
        compiled = kept(*self._keep, self._spec, asked, make) if self._keep else make()
        session = open_session(compiled, self._threads, self._spec.folder)
        if any(one.name == PLACES.name for one in session.get_inputs()):
            self._packed.add(outputs)
        self._sessions[outputs] = session
        size = sum(array.nbytes for array in compiled.weights.values())
        del compiled, make
        give_back()
        return size

    def _refuse_others(self, outputs: tuple[Output, ...]) -> None:
        others = [output for output in outputs if output not in self._spec.outputs]
        if others:
            given = ", ".join(self._spec.outputs)
            raise UnsupportedModel(f"{self._spec.folder}: gives {given}, not {', '.join(others)}")

    def _given(self, wanted: tuple[Output, ...]) -> tuple[Output, ...]:
        """The outputs of the session that gives these."""
        return next(given for given in self._sessions if set(wanted) <= set(given))

    def _run_packed(self, outputs: tuple[Output, ...], batch: Batch) -> list[Column]:
        """Rows of one length as they are, others end to end."""
        lengths, marks = batch.lengths, batch.marks
        if (lengths == lengths[0]).all():
            ids = batch.ids.reshape(len(lengths), -1)
            return self._run(outputs, self._feeds(ids, marks) | equal_layout(ids.shape[1]), ids.shape)
        feeds: Feeds = {INPUT: batch.ids[None], **layout(lengths)}
        if self._spec.mark:
            feeds[MARKS.name] = np.repeat(lengths if marks is None else marks, lengths)
        return self._run(outputs, feeds, (len(lengths), int(lengths.max())))

    def _run_equal(self, outputs: tuple[Output, ...], ids: Ids, marks: Ids | None) -> list[Column]:
        columns = self._run(outputs, self._feeds(ids, marks), ids.shape)
        return [
            self._sparse(column, ids) if output == "sparse" else column
            for output, column in zip(outputs, columns, strict=True)
        ]

    def _feeds(self, ids: Ids, marks: Ids | None) -> Feeds:
        if not self._spec.mark:
            return {INPUT: ids}
        return {INPUT: ids, MARKS.name: unmarked(self._spec.mark, ids) if marks is None else marks}

    def _run(self, outputs: tuple[Output, ...], feeds: Feeds, shape: tuple[int, ...]) -> list[Any]:
        given = self._given(outputs)
        options = run_options(*shape, part=given != outputs)
        return list(self._sessions[given].run(list(outputs), feeds, options))

    def _run_singly(self, outputs: tuple[Output, ...], ids: Ids, marks: Ids | None) -> list[Column]:
        """Row by row: the logarithms that some graphs sum have other bytes at another place of a batch."""
        parts = [self._run_equal(outputs, row[None], marks) for row in ids]
        return [[value for column in columns for value in column] for columns in zip(*parts, strict=True)]

    def _sparse(self, rows: NDArray[np.float32], ids: Ids) -> list[Sparse]:
        """Rows [rows, vocabulary] without their zeros; or the largest weight of each token of [rows, length]."""
        settings = self._spec.sparse
        if isinstance(settings, TokenWeights):
            return [Sparse.of_tokens(row, tokens, settings.ignored) for row, tokens in zip(rows, ids, strict=True)]
        found = [Sparse.of_row(row) for row in rows]
        return [replace(one, values=weigh(one.values, settings or Splade())) for one in found]


def give_back() -> None:
    """Return to the system what was freed: packing weights leaves the C library with holes as large as the weights."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def unmarked(mark: Mark, ids: Ids) -> Ids:
    """The marks of rows [rows, length] that have no prompt, no second text and nothing unseen, int32 [rows]."""
    return np.full(len(ids), 0 if mark == "prompt" else ids.shape[1], dtype=np.int32)


def run_options(rows: int, length: int, *, part: bool = False) -> ort.RunOptions | None:
    """How to run rows of a length: a run beyond `LARGE_SCORES` gives memory back; a `part` of a graph runs alone."""
    large = rows * length * length >= LARGE_SCORES
    if not large and not part:
        return None
    options = ort.RunOptions()
    options.only_execute_path_to_fetches = part
    if large:
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


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
        return ort.InferenceSession(
            source, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(SLOWER)
        )
    except REFUSALS as error:
        raise CorruptFile(f"{place}: ONNX Runtime refuses the model: {error}") from error
