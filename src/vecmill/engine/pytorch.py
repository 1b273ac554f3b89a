"""PyTorch and transformers: any architecture that transformers knows, on CPUs and on accelerators (vecmill[torch]).

Poolings and modules are ours, as the checkpoint's chain says; the network is transformers' own class. No code of a
repository is run, and nothing is downloaded.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from vecmill.core import Output, Sparse
from vecmill.engine.base import Batch, Column, Engine, Ids
from vecmill.engine.torch_heads import load_tail, pooled, project
from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.modules import Projection
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import Splade, TokenWeights, YesNo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precision to the type of the network; poolings and heads of ours are float32 in each."""

WASTE = 0.15
"""Most of a padded batch that may be padding, on devices that like large batches."""

UNUSED = ("pooler.", "lm_head.", "position_ids")
"""Parts of names of tensors that an encoder may lack."""


class TorchEngine(Engine):
    """A checkpoint in transformers.

    On a CPU rows run in groups of one length and nothing is padded. On accelerators rows of near lengths run together,
    padded to the longest, with at most `WASTE` of padding.

    Args:
        spec: The model.
        threads: Threads to compute with on a CPU.
        precision: One of `DTYPES`.
        device: "auto" takes an accelerator where there is one; else "cpu", "cuda", "cuda:1", "mps".

    Raises:
        UnsupportedModel: transformers has no such network, or there is no such precision or device.
        MissingFile: The checkpoint lacks tensors of the network.
        CorruptFile: Its files do not make one.
    """

    def __init__(self, spec: ModelSpec, *, threads: int, precision: str = "float32", device: str = "auto") -> None:
        if precision not in DTYPES:
            has = ", ".join(DTYPES)
            raise UnsupportedModel(f"{spec.folder}: the torch engine has no precision {precision!r}; it has: {has}")
        torch.set_num_threads(threads)
        self._spec = spec
        self._device = choose_device(device)
        self._model = load_network(spec, DTYPES[precision]).to(self._device)
        self._typed = spec.mark == "second"
        self._tail = load_tail(spec.tail, self._device)
        self._late = load_tail(spec.late.tail, self._device) if spec.late else []
        self._weigh = self._weigher()
        self.weight_bytes = sum(one.nbytes for one in self._model.parameters())
        last = isinstance(spec.scores, YesNo) or "score.weight" in self._model.state_dict()
        self.waste = 0.0 if self._device.type == "cpu" or last else WASTE

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """A column for each output."""
        others = [output for output in outputs if output not in self._spec.outputs]
        if others:
            raise UnsupportedModel(f"{self._spec.folder}: gives {', '.join(self._spec.outputs)}, not {others[0]}")
        lengths = batch.lengths
        values: list[list[Any]] = [[None] * len(lengths) for _ in outputs]
        for places in grouped(lengths, self.waste):
            columns = self._run(batch, places, outputs)
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

    def _run(self, batch: Batch, places: NDArray[np.intp], outputs: Sequence[Output]) -> list[Column]:
        rows = [batch.ids[batch.offsets[place] : batch.offsets[place + 1]] for place in places]
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self._model.config.pad_token_id or 0, dtype=np.int64)
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

    def _inputs(self, ids: Tensor, real: Tensor, steps: Tensor, marks: Tensor | None) -> dict[str, Tensor]:
        seen = real & (steps < marks) if self._spec.mark == "seen" and marks is not None else real
        inputs = {"input_ids": ids, "attention_mask": seen.long()}
        if self._typed:
            types = torch.zeros_like(ids) if marks is None else (real & (steps >= marks)).long()
            inputs["token_type_ids"] = types
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
                return self._scores(answer.logits, real)
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

    def _scores(self, logits: Tensor, real: Tensor) -> NDArray[np.float32]:
        head = self._spec.scores
        if isinstance(head, YesNo):
            last = logits[torch.arange(len(logits)), real.sum(1) - 1].float()
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
        logits = torch.relu(answer.logits.float()) * real[:, :, None]
        for _ in range(1 + splade.twice):
            logits = torch.log1p(logits)
        dense = (logits.amax(1) if splade.pooling == "max" else logits.sum(1)).cpu().numpy()
        return [Sparse.of_row(row) for row in dense]

    def _weigher(self) -> torch.nn.Module:
        weights = self._spec.sparse
        if not isinstance(weights, TokenWeights):
            return torch.nn.Identity()
        return project(Projection(weights.file, "weight", "bias")).to(self._device)


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


def choose_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        UnsupportedModel: There is none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UnsupportedModel(f"device {name!r} is not here: {error}") from error
    return device


def load_network(spec: ModelSpec, dtype: torch.dtype) -> Any:  # noqa: ANN401 (any of transformers' classes)
    """Transformers' network for a checkpoint, ready to run."""
    folder = str(spec.transformer)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        network = getattr(transformers, _auto_class(spec, config))
        model, told = network.from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except Exception as error:  # transformers and the readers below it raise what they like
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedModel(f"{folder}: transformers cannot load it: {lines[0]}") from error
    lacking = sorted(name for name in told["missing_keys"] if not any(part in name for part in UNUSED))
    if lacking:
        raise MissingFile(f"{folder}: the checkpoint has no tensor {lacking[0]!r}, and {len(lacking) - 1} more lack")
    if told["mismatched_keys"]:
        raise CorruptFile(f"{folder}: {next(iter(told['mismatched_keys']))} has another shape than the config says")
    if model.config.pad_token_id is None:
        model.config.pad_token_id = -1  # no token is padding, as rows of one length run together
    return model.eval()


def _auto_class(spec: ModelSpec, config: Any) -> str:  # noqa: ANN401 (transformers' configuration)
    if isinstance(spec.scores, YesNo):
        return "AutoModelForCausalLM"
    if spec.scores is not None:
        return "AutoModelForSequenceClassification"
    if isinstance(spec.sparse, Splade):
        return "AutoModelForMaskedLM"
    encodes = type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
    return "AutoModelForTextEncoding" if encodes else "AutoModel"  # the encoder alone of T5 and its kin
