"""What the tail of a graph makes of token states: pooling, Dense, Normalize, beside the same in numpy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from checkpoints import write_dense
from numpy_bert import ACTIVATIONS
from vecmill.engine.onnx import open_session
from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.graph.heads import POOLING, tail
from vecmill.graph.ops import INPUT, Graph
from vecmill.model.spec import POOLINGS, Dense, Normalize, Tail

WIDTH = 6
TABLE = np.random.default_rng(3).normal(0, 2, (50, WIDTH)).astype(np.float32)

Array = NDArray[Any]


def positions(states: Array) -> Array:
    """1, 2, 3 ... as a column, one for each token."""
    return np.arange(1.0, len(states) + 1)[:, None]


IN_NUMPY: dict[str, Callable[[Array], Array]] = {
    "cls": lambda states: states[0],
    "lasttoken": lambda states: states[-1],
    "max": lambda states: states.max(0),
    "mean": lambda states: states.mean(0),
    "mean_sqrt_len_tokens": lambda states: states.sum(0) / np.sqrt(len(states)),
    "weightedmean": lambda states: (states * positions(states)).sum(0) / positions(states).sum(),
}


def test_every_mode_has_a_graph() -> None:
    """Each pooling mode that a spec may name can be built."""
    assert set(POOLINGS) == set(POOLING) == set(IN_NUMPY)


@pytest.mark.parametrize("length", [1, 2, 5, 33, 256])
@pytest.mark.parametrize("mode", POOLINGS)
def test_pooling(mode: str, length: int) -> None:
    """A mode pools each text of a batch as numpy does."""
    ids = np.random.default_rng(length).integers(0, len(TABLE), (3, length)).astype(np.int32)
    rows = run(ids, POOLING[mode])
    assert rows == pytest.approx(np.stack([IN_NUMPY[mode](TABLE[row].astype(np.float64)) for row in ids]), abs=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 16, 33, 64, 100, 256])
@pytest.mark.parametrize("mode", POOLINGS)
def test_pooling_alone_and_in_a_batch(mode: str, length: int) -> None:
    """A text is pooled to the same bytes alone and among others."""
    ids = np.random.default_rng(length).integers(0, len(TABLE), (9, length)).astype(np.int32)
    rows = run(ids, POOLING[mode])
    alone = [run(ids[number : number + 1], POOLING[mode]) for number in range(9)]
    assert np.array_equal(rows, np.concatenate(alone))


def test_normalize() -> None:
    """Rows are divided by their length; one that is short stays what it is in direction."""
    states = IN_NUMPY["mean"](TABLE[[4, 5]])
    assert pooled([4, 5], (Normalize(),)) == pytest.approx(states / np.linalg.norm(states), abs=1e-6)
    assert np.linalg.norm(pooled([0], (Normalize(),))) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid"])
@pytest.mark.parametrize("bias", [False, True])
def test_dense(tmp_path: Path, name: str, *, bias: bool) -> None:
    """A Dense is a product with its weight, its bias if it has one, and its activation."""
    module = write(tmp_path, 5, bias=bias, activation=name)
    tensors = load_file(tmp_path / "model.safetensors")
    wanted = IN_NUMPY["mean"](TABLE[[1, 2, 3]]).astype(np.float64) @ tensors["linear.weight"].T
    wanted = wanted + tensors["linear.bias"] if bias else wanted
    wanted = wanted if name == "Identity" else ACTIVATIONS[name.lower()](wanted)
    assert pooled([1, 2, 3], (module,)) == pytest.approx(wanted, abs=1e-6)


def test_modules_run_in_order(tmp_path: Path) -> None:
    """A Normalize before a Dense normalises what the Dense gets, not what it gives."""
    module = write(tmp_path, 3, bias=False, activation="Identity")
    weight = load_file(tmp_path / "model.safetensors")["linear.weight"]
    row = IN_NUMPY["mean"](TABLE[[7, 8]])
    assert pooled([7, 8], (Normalize(), module)) == pytest.approx(row / np.linalg.norm(row) @ weight.T, abs=1e-6)
    wanted = row @ weight.T
    assert pooled([7, 8], (module, Normalize())) == pytest.approx(wanted / np.linalg.norm(wanted), abs=1e-6)


def test_an_activation_that_is_not_supported(tmp_path: Path) -> None:
    """An activation that cannot be built is refused by name, with those that can."""
    with pytest.raises(UnsupportedModel, match=r"activation 'Hardtanh' is not supported; supported: ELU, elu"):
        pooled([1], (write(tmp_path, 3, bias=True, activation="Hardtanh"),))


def test_a_dense_of_another_shape(tmp_path: Path) -> None:
    """A Dense whose weights are not of the shape that its settings say is refused with both shapes."""
    write(tmp_path, 3, bias=True, activation="Tanh")
    with pytest.raises(CorruptFile, match=r"'linear.weight' has shape \[3, 6\], the config wants \[4, 6\]"):
        pooled([1], (Dense(tmp_path, WIDTH, 4, bias=True, activation="Tanh"),))


def write(folder: Path, out: int, *, bias: bool, activation: str) -> Dense:
    """A Dense module with random weights from the width of the states."""
    write_dense(folder, {"in_features": WIDTH, "out_features": out, "bias": bias})
    return Dense(folder, WIDTH, out, bias=bias, activation=activation)


def pooled(ids: list[int], modules: Tail) -> Array:
    """The row of one text after mean pooling and these modules."""
    dims = next((module.out_features for module in modules if isinstance(module, Dense)), WIDTH)
    batch = np.array([ids], dtype=np.int32)
    return run(batch, lambda graph, states: tail(graph, POOLING["mean"](graph, states), modules), dims).reshape(-1)


def run(ids: NDArray[np.int32], head: Callable[[Graph, str], str], dims: int = WIDTH) -> Array:
    """What a graph gives whose states of a token are a row of `TABLE`: float32 [texts, dims]."""
    graph = Graph()
    states = graph.op("Gather", graph.weight(TABLE), INPUT)
    session = open_session(graph.compile({"rows": (head(graph, states), ("rows", dims))}), 1, Path())
    rows: Array = session.run(["rows"], {INPUT: ids})[0]
    return rows
