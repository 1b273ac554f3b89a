"""The ONNX file that came with a checkpoint, for architectures that vecmill does not build itself.

The file turns ids into states of tokens; pooling and what follows are ours, as the checkpoint's chain says.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vecmill.core import DENSE, Output
from vecmill.engine.base import Batch, Column, Engine, Ids, only_dense
from vecmill.engine.onnx import REFUSALS, open_session, run_options, unmarked
from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.graph.heads import head_alone
from vecmill.graph.ops import MARKS, POOLED, STATES, Given
from vecmill.model.onnxfile import NAMES, choose_onnx, onnx_files, size_bytes
from vecmill.model.spec import Dense, ModelSpec

STATE_OUTPUTS = ("last_hidden_state", "token_embeddings")
"""What exporters call the states of tokens."""

POOLED_OUTPUT = "sentence_embedding"

INTEGERS: dict[str, np.dtype[Any]] = {"tensor(int64)": np.dtype(np.int64), "tensor(int32)": np.dtype(np.int32)}
FLOATS = {"tensor(float)", "tensor(float16)"}

PROBES = (1, 2, 7, 16)
"""Lengths at which a file is tried for rows that depend on their mates."""

MATES = 4

Rows = NDArray[np.float32]


class ExportedEngine(Engine):
    """A checkpoint's own ONNX file on ONNX Runtime.

    Rows run in groups of equal length. A file whose rows change with their mates runs them one by one: quantised files
    scale a whole batch by its largest number, so that a text would have another vector in every company. That is tried,
    not guessed.

    Args:
        spec: The model.
        threads: Threads to compute with.
        precision: float32 takes the plain file as it is, int8 a quantised one.

    Raises:
        MissingFile: There is no file for the precision.
        UnsupportedModel: The file wants an input that is not known, or gives no states of tokens.
        CorruptFile: ONNX Runtime refuses it, or its rows have another width than the checkpoint says.
    """

    shared = True

    def __init__(self, spec: ModelSpec, *, threads: int, precision: str = "float32") -> None:
        file = find_file(spec.transformer, precision)
        self._path = spec.transformer / file
        self._spec = spec
        self.weight_bytes = size_bytes(spec.transformer, file)
        self._session = open_session(self._path, threads, self._path)
        self._inputs = {given.name: _input_type(given, self._path) for given in self._session.get_inputs()}
        self._output, given = choose_output(self._session.get_outputs(), spec, self._path)
        self._given = given.name
        self._head = open_session(head_alone(spec, given), threads, spec.folder)
        self._alone = self._depends_on_mates()

    def gives(self, output: Output) -> bool:
        """Dense rows, and states of tokens where the file gives them."""
        states = self._given == STATES.name and self._spec.late is None
        return output == "dense" or (output == "multi" and states)

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """A column for each output."""
        if not all(map(self.gives, outputs)):
            only_dense(outputs, self._path)
        return batch.by_length(partial(self._columns, tuple(outputs)))

    def close(self) -> None:
        """Give the memory back."""
        del self._session, self._head

    def _columns(self, outputs: tuple[Output, ...], ids: Ids, marks: Ids | None) -> list[Column]:
        return (self._run_singly if self._alone else self._run_equal)(outputs, ids, marks)

    def _run_singly(self, outputs: tuple[Output, ...], ids: Ids, marks: Ids | None = None) -> list[Column]:
        each: Sequence[Ids | None] = [None] * len(ids) if marks is None else list(marks[:, None])
        parts = [self._run_equal(outputs, row[None], mark) for row, mark in zip(ids, each, strict=True)]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _run_equal(self, outputs: tuple[Output, ...], ids: Ids, marks: Ids | None = None) -> list[Column]:
        first = self._spec.first_position
        feeds = {name: FEEDS[name](ids, first).astype(kind) for name, kind in self._inputs.items()}
        states = self._session.run([self._output], feeds, run_options(*ids.shape))[0].astype(np.float32, copy=False)
        return [states if output == "multi" else self._pool(states, ids, marks) for output in outputs]

    def _pool(self, states: Rows, ids: Ids, marks: Ids | None) -> Rows:
        given: dict[str, NDArray[Any]] = {self._given: states}
        if self._spec.mark and self._given == STATES.name:
            given[MARKS.name] = unmarked(self._spec.mark, ids) if marks is None else marks
        return cast("Rows", self._head.run(list(DENSE), given)[0])

    def _depends_on_mates(self) -> bool:
        """Try the file; whether a row has other bytes alone than in a batch."""
        rng = np.random.default_rng(0)
        try:
            for length in PROBES:
                ids = rng.integers(0, self._spec.vocab_size, (MATES, min(length, self._spec.max_tokens)), np.int32)
                rows, alone = (np.asarray(run(DENSE, ids)[0]) for run in (self._run_equal, self._run_singly))
                if rows.shape != (MATES, self._spec.dims):
                    width, dims = rows.shape[-1], self._spec.dims
                    raise CorruptFile(f"{self._path}: gives rows of {width} numbers, the checkpoint says {dims}")
                if rows.tobytes() != alone.tobytes():
                    return True
        except REFUSALS as error:
            raise CorruptFile(f"{self._path}: ONNX Runtime cannot run it: {error}") from error
        return False


FEEDS: dict[str, Callable[[Ids, int], NDArray[Any]]] = {
    "input_ids": lambda ids, _: ids,
    "attention_mask": lambda ids, _: np.ones_like(ids),
    "token_type_ids": lambda ids, _: np.zeros_like(ids),
    "position_ids": lambda ids, first: np.broadcast_to(np.arange(first, first + ids.shape[1]), ids.shape),
}
"""Input to what it is given for ids [rows, length] and the first position: nothing is padded, a text is one segment."""


def find_file(folder: Path, precision: str) -> str:
    """The file for a precision, as a path relative to the folder.

    Raises:
        UnsupportedModel: ONNX files are not served in that precision.
        MissingFile: There is none for it.
    """
    files = onnx_files(folder)
    if precision not in NAMES:
        raise UnsupportedModel(f"{folder}: an ONNX file is not served in {precision}; it can be: {', '.join(NAMES)}")
    file = choose_onnx(files, precision)
    if file is None:
        wanted, has = " or ".join(NAMES[precision]), ", ".join(files) or "no ONNX file"
        raise MissingFile(f"{folder}: {precision} needs {wanted}, there or in onnx/; it has {has}")
    return file


def choose_output(outputs: Sequence[Any], spec: ModelSpec, path: Path) -> tuple[str, Given]:
    """The output to take, and what it is.

    States of tokens where modules.json says how they are pooled. Without it sentence-transformers' mean would be a
    guess, and a row that the file itself has pooled is better. A Dense may be in such a row or not, so none is taken
    where the chain has one.

    Raises:
        UnsupportedModel: There is none.
    """
    by_name = {one.name: one for one in outputs if one.type in FLOATS}
    three = [name for name, one in by_name.items() if len(one.shape) == 3 and name != "logits"]
    states = next((name for name in STATE_OUTPUTS if name in by_name), three[0] if three else None)
    dense = any(isinstance(module, Dense) for module in spec.tail)
    guess = states is None or not (spec.folder / "modules.json").is_file()
    if POOLED_OUTPUT in by_name and guess and not dense:
        return POOLED_OUTPUT, POOLED
    if states is None:
        has = ", ".join(one.name for one in outputs)
        raise UnsupportedModel(f"{path}: no output with states of tokens ({' or '.join(STATE_OUTPUTS)}); it has: {has}")
    return states, STATES


def _input_type(given: Any, path: Path) -> np.dtype[Any]:  # noqa: ANN401 (onnxruntime has no types)
    if given.name not in FEEDS:
        raise UnsupportedModel(f"{path}: input {given.name!r} is not known; known: {', '.join(FEEDS)}")
    if given.type not in INTEGERS:
        raise UnsupportedModel(f"{path}: input {given.name!r} is a {given.type}; supported: {', '.join(INTEGERS)}")
    return INTEGERS[given.type]
