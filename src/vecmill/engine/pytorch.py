"""PyTorch and transformers: any architecture that transformers knows, on CPUs and on accelerators (vecmill[torch]).

Poolings and modules are ours, as the checkpoint's chain says; the network is transformers' own class.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vecmill.core import Output, Sparse
from vecmill.engine.base import Batch, Column, Engine, Ids, numbers
from vecmill.engine.torch_heads import load_tail, pooled, project
from vecmill.engine.torch_network import TYPE_IDS, choose_device, load_network, takes, wants_types
from vecmill.errors import EngineFailed, UnsupportedModel
from vecmill.model.modules import Projection
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import Splade, TokenWeights, YesNo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precision to the type of the network; poolings and heads of ours are float32 in each."""

WASTE = 0.15
"""Most of a padded batch that may be padding, on devices that like large batches."""

PROBES = (5, 16)
"""Lengths of the two rows with which a network is tried for padding that changes numbers."""

MOVED = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
"""Most that padding may move an answer, as a part of its length: rounding. What a convolution takes in is more."""

SHORT_OF_MEMORY = ("out of memory", "can't allocate memory")
"""Words by which torch says that memory is short; only CUDA's error has a class of its own."""

LAST_LOGITS = "logits_to_keep"
"""Input of a language model that spares it the logits of all tokens but the last."""


class TorchEngine(Engine):
    """A checkpoint in transformers.

    On a CPU rows run in groups of one length, in half precisions one by one: torch's products round in another order
    when there are more rows, which costs float32 its last place and bfloat16 its third. On accelerators rows of near
    lengths run together, padded to the longest, with at most `WASTE` of padding, unless padding changes the network's
    numbers: some convolve or mix all places. That is tried, not guessed.

    Args:
        spec: The model.
        threads: Threads to compute with on a CPU.
        precision: One of `DTYPES`.
        device: "auto" takes an accelerator where there is one; else "cpu", "cuda", "cuda:1", "mps".

    Raises:
        UnsupportedModel: transformers has no such network, or there is no such precision or device.
        LoadError: As `vecmill.engine.torch_network.load_network`.
    """

    def __init__(self, spec: ModelSpec, *, threads: int, precision: str = "float32", device: str = "auto") -> None:
        if precision not in DTYPES:
            has = ", ".join(DTYPES)
            raise UnsupportedModel(f"{spec.folder}: the torch engine has no precision {precision!r}; it has: {has}")
        torch.set_num_threads(threads)
        self._spec = spec
        self._device = choose_device(device)
        self._model = load_network(spec, DTYPES[precision]).to(self._device)
        self._typed = wants_types(spec, self._model)
        self._pad = max(0, self._model.config.pad_token_id)
        self._tail = load_tail(spec.tail, self._device)
        self._late = load_tail(spec.late.tail, self._device) if spec.late else []
        self._weigh = self._weigher()
        self.weight_bytes = sum(one.nbytes for one in self._model.parameters())
        self._alone = self._device.type == "cpu" and precision != "float32"
        padded = self._device.type != "cpu" and not isinstance(spec.scores, YesNo) and self.ignores_padding()
        self.waste = WASTE if padded else 0.0

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """A column for each output."""
        others = [output for output in outputs if output not in self._spec.outputs]
        if others:
            raise UnsupportedModel(f"{self._spec.folder}: gives {', '.join(self._spec.outputs)}, not {others[0]}")
        lengths = batch.lengths
        values: list[list[Any]] = [[None] * len(lengths) for _ in outputs]
        groups = [np.array([place]) for place in range(len(lengths))] if self._alone else grouped(lengths, self.waste)
        for places in groups:
            columns = self._run_or_tell(batch, places, outputs)
            for column, given in zip(values, columns, strict=True):
                for place, value in zip(places, given, strict=True):
                    column[place] = value
        fixed = {"dense", "scores"}
        return [np.stack(column) if output in fixed else column for output, column in zip(outputs, values, strict=True)]

    def close(self) -> None:
        """Give the memory back."""
        del self._model, self._tail, self._late
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def ignores_padding(self) -> bool:
        """Try the network: whether a padded row's answer is the one that it has alone."""
        output = self._spec.outputs[-1]  # vectors of tokens where it has them: a mean would hide one that moved
        rng = np.random.default_rng(0)
        sizes = [min(size, self._spec.max_tokens) for size in PROBES]
        batch = Batch.pack([rng.integers(0, self._spec.vocab_size, size, np.int32) for size in sizes])
        count = sizes[0] if output == "multi" else 1
        try:
            alone, padded = (
                numbers(self._run(batch, np.arange(rows), [output])[0][0], self._spec.vocab_size).reshape(count, -1)
                for rows in (1, len(sizes))
            )
        except (RuntimeError, IndexError, TypeError, ValueError):  # the first request tells what concerns a row alone
            return False
        moved = np.linalg.norm(padded - alone, axis=1) / np.linalg.norm(alone, axis=1)
        return bool((moved <= MOVED[self._model.dtype]).all())

    def _run_or_tell(self, batch: Batch, places: NDArray[np.intp], outputs: Sequence[Output]) -> list[Column]:
        """Run a group.

        Raises:
            EngineFailed: Memory was short. Raised after the handler, as torch's own error holds the tensors of every
                layer by its traceback, and a caller that halves the batch needs their room.
        """
        try:
            return self._run(batch, places, outputs)
        except RuntimeError as error:
            if not any(word in str(error).lower() for word in SHORT_OF_MEMORY):
                raise
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        longest = batch.lengths[places].max()
        raise EngineFailed(f"{self._device} is out of memory over {len(places)} rows of up to {longest} tokens")

    def _run(self, batch: Batch, places: NDArray[np.intp], outputs: Sequence[Output]) -> list[Column]:
        rows = [batch.ids[batch.offsets[place] : batch.offsets[place + 1]] for place in places]
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self._pad, dtype=np.int64)
        for row, given in zip(ids, rows, strict=True):
            row[: len(given)] = given
        lengths = torch.tensor([len(row) for row in rows], device=self._device)[:, None]
        steps = torch.arange(longest, device=self._device)[None]
        real = steps < lengths
        marks = None if batch.marks is None else torch.from_numpy(batch.marks[places]).to(self._device)[:, None]
        with torch.inference_mode():
            inputs = self._inputs(torch.from_numpy(ids).to(self._device), real, steps, marks)
            answer = self._model(**inputs)
            return [self._column(output, answer, rows, real, steps, marks) for output in outputs]

    def _inputs(self, ids: Tensor, real: Tensor, steps: Tensor, marks: Tensor | None) -> dict[str, Any]:
        seen = real & (steps < marks) if self._spec.mark == "seen" and marks is not None else real
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": seen.long()}
        if self._typed:
            second = self._spec.mark == "second" and marks is not None
            inputs[TYPE_IDS] = (real & (steps >= marks)).long() if second else torch.zeros_like(ids)
        if isinstance(self._spec.scores, YesNo) and takes(self._model, LAST_LOGITS):
            inputs[LAST_LOGITS] = 1
        return inputs

    def _column(
        self,
        output: Output,
        answer: Any,  # noqa: ANN401 (transformers has a class for each kind of answer)
        rows: list[Ids],
        real: Tensor,
        steps: Tensor,
        marks: Tensor | None,
    ) -> Column:
        lengths = [len(row) for row in rows]
        match output:
            case "scores":
                return self._scores(answer.logits)
            case "sparse":
                return self._sparse(answer, rows, real)
            case "multi":
                states = answer.last_hidden_state.float()
                for module in self._late:
                    states = module(states)
                vectors = states.float().cpu().numpy()
                return [one[:length] for one, length in zip(vectors, lengths, strict=True)]
            case "dense":
                kept = real & (steps >= marks) if self._spec.mark == "prompt" and marks is not None else real
                states = answer.last_hidden_state
                found: NDArray[np.float32] = pooled(states, kept, self._spec.pooling, self._tail).cpu().numpy()
                return found

    def _scores(self, logits: Tensor) -> NDArray[np.float32]:
        head = self._spec.scores
        if isinstance(head, YesNo):
            last = logits[:, -1].float()  # rows of language models are not padded
            scores = last[:, head.true] - (0 if head.false is None else last[:, head.false])
            logits = scores[:, None]
        found: NDArray[np.float32] = logits.float().cpu().numpy()
        return found

    def _sparse(self, answer: Any, rows: list[Ids], real: Tensor) -> list[Sparse]:  # noqa: ANN401 (as `_column`)
        settings = self._spec.sparse
        if isinstance(settings, TokenWeights):
            weights = torch.relu(self._weigh(answer.last_hidden_state.float())).squeeze(-1).cpu().numpy()
            pairs = zip(weights, rows, strict=True)
            return [Sparse.of_tokens(one[: len(row)], row, settings.ignored) for one, row in pairs]
        splade = settings or Splade()
        # In place, as the logits of a batch are by far the largest tensor.
        logits = answer.logits.masked_fill_(~real[:, :, None], 0).relu_()
        if splade.pooling == "max":  # a weight never falls as its logit grows
            found = [Sparse.of_row(row) for row in logits.amax(1).float().cpu().numpy()]
            return [replace(one, values=_weights(one.values, splade)) for one in found]
        logits = logits.float()
        for _ in range(1 + splade.twice):
            logits = logits.log1p_()
        return [Sparse.of_row(row) for row in logits.sum(1).cpu().numpy()]

    def _weigher(self) -> torch.nn.Module:
        weights = self._spec.sparse
        if not isinstance(weights, TokenWeights):
            return torch.nn.Identity()
        return project(Projection(weights.file, "weight", "bias")).to(self._device)


def _weights(logits: NDArray[np.float32], splade: Splade) -> NDArray[np.float32]:
    for _ in range(1 + splade.twice):
        logits = np.log1p(logits)
    return logits


def grouped(lengths: Ids, waste: float) -> list[NDArray[np.intp]]:
    """Places of rows that run together: of one length where nothing may be padded, else of near ones.

    Args:
        lengths: Of rows, int32 [rows].
        waste: Most of a group that may be padding, 0 to 1.
    """
    groups: list[list[int]] = []
    total = 0
    for place in np.argsort(-lengths, kind="stable"):
        length = int(lengths[place])
        if groups and total + length >= (1 - waste) * int(lengths[groups[-1][0]]) * (len(groups[-1]) + 1):
            groups[-1].append(int(place))
            total += length
        else:
            groups.append([int(place)])
            total = length
    return [np.array(group, dtype=np.intp) for group in groups]
