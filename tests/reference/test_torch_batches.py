"""How the torch engine runs batches: a row does not depend on its mates, and memory that is short is told."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headed
import numpy as np
import pytest
from comparison import TEXTS
from decoders import change_config
from headed import SMALL, save, save_encoder

from vecmill.config import Settings
from vecmill.embedder import Embedder
from vecmill.engine.base import Batch
from vecmill.errors import EngineFailed
from vecmill.model.spec import read_spec

pytestmark = pytest.mark.reference

MIXING: dict[str, dict[str, Any]] = {
    "convbert": {"embedding_size": 16},
    "fnet": {},
    "nystromformer": {},
}
"""Families whose numbers change where a row is padded, whatever the mask says; FNet has no bfloat16 at all."""

MASKING: dict[str, dict[str, Any]] = {"bert": {}, "ernie": {}, "qwen3": {}, "modernbert": {}}


def open_engine(folder: Path, precision: str = "float32") -> Any:
    """The engine on a CPU."""
    from vecmill.engine.pytorch import TorchEngine

    return TorchEngine(read_spec(folder), threads=2, precision=precision, device="cpu")


def texts(*lengths: int) -> list[Any]:
    """Random ids of these lengths."""
    rng = np.random.default_rng(3)
    return [rng.integers(5, 40, length).astype(np.int32) for length in lengths]


@pytest.mark.parametrize(("family", "ignored"), [*((one, False) for one in MIXING), *((one, True) for one in MASKING)])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_padding_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, precision: str, *, ignored: bool
) -> None:
    """A network whose numbers padding changes is found out."""
    sizes = {**SMALL, "max_position_embeddings": 40, **MIXING.get(family, {})}
    if family not in headed.CONFIGS:
        monkeypatch.setitem(headed.CONFIGS, family, sizes)
    assert open_engine(save_encoder(tmp_path, family), precision).ignores_padding() == ignored


@pytest.mark.parametrize("kind", ["SequenceClassification", "MaskedLM"])
def test_padding_is_tried_on_heads(tmp_path: Path, kind: str) -> None:
    """Scores and weights are tried as well."""
    folder = save(tmp_path, "bert", kind)
    task: Any = "sparse" if kind == "MaskedLM" else None
    from vecmill.engine.pytorch import TorchEngine

    assert TorchEngine(read_spec(folder, task), threads=1, device="cpu").ignores_padding()


def test_a_network_without_padding(tmp_path: Path) -> None:
    """Rows of several lengths run together also where the model has no token for padding."""
    engine = open_engine(change_config(save_encoder(tmp_path, "qwen3"), pad_token_id=None))
    rows = texts(4, 9, 2)
    wanted = engine.run(Batch.pack(rows))
    engine.waste = 1.0
    assert engine.run(Batch.pack(rows)) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_and_mates(tmp_path: Path, precision: str) -> None:
    """In half precisions a row has the same bytes alone and in a batch, on a CPU."""
    engine = open_engine(save_encoder(tmp_path, "bert", hidden_size=256, intermediate_size=512), precision)
    for length in (2, 7, 33):
        rows = texts(*[length] * 9)
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in rows])
        assert engine.run(Batch.pack(rows)).tobytes() == alone.tobytes()


class Short:
    """A network that has memory for so many rows, and raises as torch does."""

    def __init__(self, inner: Any, rows: int, error: Callable[[], Exception]) -> None:
        self.inner, self.rows, self.error = inner, rows, error
        self.held: list[weakref.ref[Any]] = []
        self.config = inner.config

    def __call__(self, **inputs: Any) -> Any:
        """Run, or fail with a tensor in hand."""
        if len(inputs["input_ids"]) <= self.rows:
            return self.inner(**inputs)
        states = inputs["input_ids"].float()
        self.held.append(weakref.ref(states))
        raise self.error()


def cuda_error() -> Exception:
    """CUDA's."""
    import torch

    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")  # type: ignore[no-any-return]


ERRORS: list[Callable[[], Exception]] = [
    cuda_error,
    lambda: RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
    lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_short_of_memory(tmp_path: Path, error: Callable[[], Exception]) -> None:
    """The error says so and holds nothing of the batch: what is retried needs the room."""
    engine = open_engine(save_encoder(tmp_path, "bert"))
    engine._model = short = Short(engine._model, 2, error)
    with pytest.raises(EngineFailed, match="cpu is out of memory over 3 rows of up to 7 tokens") as caught:
        engine.run(Batch.pack(texts(7, 7, 7)))
    assert caught.value.__context__ is None
    assert [one() for one in short.held] == [None]


def test_another_error(tmp_path: Path) -> None:
    """What is no lack of memory stays as it is."""
    engine = open_engine(save_encoder(tmp_path, "bert"))
    engine._model = Short(engine._model, 0, lambda: RuntimeError("a bad shape"))
    with pytest.raises(RuntimeError, match="a bad shape"):
        engine.run(Batch.pack(texts(7)))


def test_batches_are_halved(tmp_path: Path) -> None:
    """A request whose batches do not fit is answered in smaller ones, with the same vectors."""
    folder = save_encoder(tmp_path, "bert")
    with Embedder(str(folder), settings=Settings(threads=1, engine="torch", result_cache_mb=0)) as embedder:
        same = [TEXTS[0]] * 3 + [f"cat {word}" for word in ("dog", "sat", "mat", "the", "on")]
        wanted = embedder.embed(same)
        engine: Any = embedder._model.runner._engines.wide
        engine._model = short = Short(engine._model, 2, cuda_error)
        assert embedder.embed(same) == pytest.approx(wanted, abs=1e-6)
        assert short.held
