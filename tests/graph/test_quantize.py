"""Weights in fewer bits."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from vecmill.graph import quantize
from vecmill.graph.ops import Graph, embedding, linear

Array = NDArray[np.float32]


def random(*shape: int, seed: int = 0) -> Array:
    """Normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(graph: Graph, result: str, ids: NDArray[np.int32]) -> Array:
    """What a graph gives for these ids, summed over nothing."""
    compiled = graph.compile({"rows": (result, ("rows", "numbers"))})
    options = ort.SessionOptions()
    options.log_severity_level = 4
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in compiled.weights.values()]
    options.add_external_initializers(list(compiled.weights), values)
    session = ort.InferenceSession(compiled.model, options, providers=["CPUExecutionProvider"])
    rows: Array = session.run(None, {"ids": ids})[0]
    return rows


def product(precision: str, table: Array, weight: Array, ids: NDArray[np.int32]) -> Array:
    """The product of looked up rows with a weight, in a precision."""
    graph = Graph(precision)
    looked_up = graph.op("Gather", graph.weight(table), "ids")
    return run(graph, linear(graph, looked_up, weight), ids)


@pytest.mark.parametrize("largest", [quantize.WIDE, quantize.NARROW])
def test_columns_are_within_half_a_step(largest: int) -> None:
    """An int8 weight times its scale is off by half a step at most, and uses the whole range."""
    weight = random(6, 40)
    small = quantize.columns(weight, largest)
    assert small.values.shape == (40, 6)
    assert np.abs(small.values).max(axis=0).tolist() == [largest] * 6
    assert (np.abs(small.values.T * small.scales[:, None] - weight) <= small.scales[:, None] / 2 + 1e-7).all()


def test_zeros_stay_zeros() -> None:
    """An output whose weights are all zero gives zeros, not NaN."""
    weight = np.zeros((3, 64), dtype=np.float32)
    for small in (quantize.columns(weight, quantize.WIDE), quantize.rows(weight)):
        assert not small.values.any()
        assert np.isfinite(small.scales).all()


def test_blocks_pack_two_numbers_a_byte() -> None:
    """An int4 weight is 16 bytes a block of 32, the first number in the low half, within half a step."""
    weight = random(5, 64)
    small = quantize.blocks(weight)
    assert small.values.shape == (5, 2, 16)
    low, high = small.values & 15, small.values >> 4
    values = np.stack([low, high], axis=-1).reshape(5, 2, 32).astype(np.float32) - 8
    assert (
        np.abs(values * small.scales[:, :, None] - weight.reshape(5, 2, 32)) <= small.scales[:, :, None] / 2 + 1e-7
    ).all()


@pytest.mark.parametrize(("precision", "error"), [("float32", 1e-6), ("int8", 0.02), ("int4", 0.15)])
@pytest.mark.parametrize("into", [32, 48, 64, 130])
def test_products_are_close(precision: str, error: float, into: int) -> None:
    """A product in fewer bits is that of float32 within its precision, for widths that fill no block too."""
    table, weight = random(50, into), random(24, into, seed=1)
    ids = np.arange(20, dtype=np.int32).reshape(4, 5)
    wanted = table[ids] @ weight.T
    got = product(precision, table, weight, ids)
    assert np.linalg.norm(got - wanted) / np.linalg.norm(wanted) < error


@pytest.mark.parametrize("precision", quantize.PRECISIONS)
def test_a_row_does_not_depend_on_its_mates(precision: str) -> None:
    """A product is the same bytes alone and beside a row of numbers a thousand times larger."""
    table, weight = random(50, 64), random(24, 64, seed=1)
    table[0] *= 1000
    together = product(precision, table, weight, np.array([[0, 3, 0], [1, 2, 3]], dtype=np.int32))
    alone = product(precision, table, weight, np.array([[1, 2, 3]], dtype=np.int32))
    assert together[1].tobytes() == alone[0].tobytes()


def test_a_token_of_zeros_is_no_nan() -> None:
    """Zeros in, zeros out."""
    table = np.zeros((4, 64), dtype=np.float32)
    assert not product("int8", table, random(8, 64), np.array([[1, 2]], dtype=np.int32)).any()


@pytest.mark.parametrize("precision", quantize.PRECISIONS)
def test_tables_are_close(precision: str) -> None:
    """A looked up row is the table's, within an int8 step of its largest number."""
    table = random(50, 16)
    graph = Graph(precision)
    ids = np.array([[3, 49, 0]], dtype=np.int32)
    got = run(graph, embedding(graph, table), ids)
    step = 0.0 if precision == "float32" else float(np.abs(table).max() / quantize.WIDE)
    assert np.abs(got - table[ids]).max() <= step / 2 + 1e-7


@pytest.mark.parametrize(
    ("flags", "largest"),
    [("flags : fpu avx2 fma", 63), ("flags : avx2 avx512_vnni", 127), ("flags : avx2 avx_vnni", 127), ("", 63)],
)
def test_weights_leave_room_where_products_are_narrow(tmp_path: Path, flags: str, largest: int) -> None:
    """Without instructions that add byte products in 32 bits, weights use 7 bits, so that no sum overflows."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(flags)
    assert quantize.largest_weight(cpuinfo) == largest
    assert quantize.largest_weight(tmp_path / "nowhere") == 63


def test_no_pair_of_products_overflows() -> None:
    """The narrow range is the widest in which two products of a byte and a weight fit 16 bits."""
    assert 2 * 255 * quantize.NARROW < 2**15 <= 2 * 255 * (quantize.NARROW + 2)
