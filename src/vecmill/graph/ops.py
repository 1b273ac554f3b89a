"""The vocabulary of graphs: each function emits nodes and returns the name of its result.

Weights go beside the model, not into it: the model stays a few kilobytes and the 2 GB limit of protobuf never matters.
Fused operators are ONNX Runtime's (domain com.microsoft), where they measured faster than their parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from vecmill.graph import quantize
from vecmill.model.tasks import Mark

OPSET = 18
IR_VERSION = 9
FUSED = "com.microsoft"

INPUT = "ids"

INT32, INT64, BOOL = TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
"""Types of tensors."""

Array = NDArray[np.float32 | np.int8 | np.uint8]
Attribute = float | list[int] | onnx.GraphProto

Axes = Sequence[str | int]
"""A tensor's axes: names of those that differ from run to run, sizes of the others."""

Norm = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""Scale [width] and shift [width] of a LayerNorm."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph ready for a session.

    Attributes:
        model: The serialised ONNX model, whose weights are external.
        weights: The weights by name, C-contiguous; some are views of the mapped checkpoint.
    """

    model: bytes
    weights: dict[str, Array]


class Given(NamedTuple):
    """An input: its name, its type of ONNX, and what its axes are."""

    name: str
    kind: int
    axes: tuple[str, ...]


IDS = Given(INPUT, TensorProto.INT32, ("rows", "length"))
MARKS = Given("marks", TensorProto.INT32, ("rows",))
STATES = Given("states", TensorProto.FLOAT, ("rows", "length", "width"))
POOLED = Given("pooled", TensorProto.FLOAT, ("rows", "width"))
"""What a graph can begin with: token ids, a place in each row, states of tokens, or rows that are pooled already."""


class Graph:
    """Nodes and weights under construction.

    The input is `IDS`, where `compile` says no other: all rows of a batch are of one length, so no graph holds a mask.

    Args:
        precision: One of `PRECISIONS`: what the weights of products and tables are kept in.
        pooled: The one token that the pooling takes, 0 or -1: a family may leave the others out of its last layer.
            None where it takes more.
        mark: What `MARKS`, which is then an input as well, means.
        packed: Rows may be of several lengths, laid end to end: `vecmill.graph.packed`.
    """

    def __init__(
        self, precision: str = "float32", pooled: int | None = None, mark: Mark | None = None, *, packed: bool = False
    ) -> None:
        self.precision = precision
        self.pooled = pooled
        self.mark = mark
        self.packed = packed
        self.mixed = False  # while the branch for rows of several lengths is built
        self._names = 0
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, Array] = {}
        self._constants: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Attribute) -> str:
        """Emit a node and return the name of its first output."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]  # what is left out at the end is not written
        name = f"{kind}_{self._names}"
        self._names += 1
        names = _outputs(name, outputs)
        self._nodes.append(helper.make_node(kind, inputs, names, name=name, domain=domain, **attributes))  # type: ignore[arg-type]  # the stub knows no attributes
        return name

    def repeat(self, x: str, times: int, body: Callable[[str], str]) -> str:
        """body(... body(x)), at least once, with one set of weights: the first turn's nodes are emitted again."""
        start = len(self._nodes)
        last = result = body(x)
        nodes = self._nodes[start:]
        for _ in range(times - 1):
            names = {x: last}
            for node in nodes:
                inputs = [names.get(name, name) for name in node.input]
                attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
                name = self.op(node.op_type, *inputs, domain=node.domain, outputs=len(node.output), **attributes)
                names |= zip(node.output, _outputs(name, len(node.output)), strict=True)
            last = names[result]
        return last

    def branch(self, body: Callable[[], str]) -> onnx.GraphProto:
        """The nodes that `body` emits as a graph within this one, whose tensors it sees."""
        outer, self._nodes = self._nodes, []
        result = helper.make_empty_tensor_value_info(body())
        nodes, self._nodes = self._nodes, outer
        return helper.make_graph(nodes, f"of_{result.name}", [], [result])

    def weight(self, array: Array) -> str:
        """Add a weight, shared with the session without a copy where it is contiguous."""
        name = f"weight_{len(self._weights)}"
        self._weights[name] = np.ascontiguousarray(array)
        return name

    def integers(self, *values: int) -> str:
        """A constant int64 [n]."""
        return self._constant(TensorProto.INT64, [len(values)], *values)

    def scalar(self, value: int) -> str:
        """A constant int64 without dimensions."""
        return self._constant(TensorProto.INT64, [], value)

    def number(self, value: float) -> str:
        """A constant float32 without dimensions."""
        return self._constant(TensorProto.FLOAT, [], value)

    def byte(self, value: int) -> str:
        """A constant uint8 without dimensions."""
        return self._constant(TensorProto.UINT8, [], value)

    def _constant(self, kind: int, shape: list[int], *values: float) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(helper.make_tensor(name, kind, shape, values))
        return name

    def compile(self, results: dict[str, tuple[str, Axes]], given: tuple[Given, ...] = (IDS,)) -> Compiled:
        """Finish the graph.

        Args:
            results: What each output is called, its tensor and its axes, all float32.
            given: The inputs.
        """
        self._nodes += [helper.make_node("Identity", [name], [output]) for output, (name, _) in results.items()]
        graph = helper.make_graph(
            self._nodes,
            "vecmill",
            [helper.make_tensor_value_info(*one) for one in given],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, axes) for name, (_, axes) in results.items()],
            initializer=[*self._constants, *map(_external, self._weights, self._weights.values())],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return Compiled(model.SerializeToString(), self._weights)


def _outputs(name: str, count: int) -> list[str]:
    """Names of a node's outputs; the first is its own."""
    return [name, *(f"{name}_{number}" for number in range(1, count))]


def _external(name: str, array: Array) -> onnx.TensorProto:
    """A placeholder that the session fills from memory; the location is never opened."""
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="memory")
    return tensor


def linear(graph: Graph, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None) -> str:
    """X W^T + b, with the weight as torch stores it: [out, in]."""
    product = PRODUCTS[graph.precision](graph, x, weight)
    return product if bias is None else graph.op("Add", product, graph.weight(bias))


def embedding(graph: Graph, table: NDArray[np.float32]) -> str:
    """The rows of a table [vocabulary, width] that the ids name: [rows, length, width]."""
    if graph.precision == "float32":
        return graph.op("Gather", graph.weight(table), INPUT)
    small = quantize.rows(table)
    values = graph.op("Gather", graph.weight(small.values), INPUT)
    scales = graph.op("Gather", graph.weight(small.scales[:, None]), INPUT)
    return graph.op("Mul", graph.op("Cast", values, to=TensorProto.FLOAT), scales)


def length_of(graph: Graph, x: str) -> str:
    """The length of [rows, length, ...], int64 [1]."""
    return graph.op("Shape", x, start=1, end=2)


def from_mark(graph: Graph, x: str = INPUT, mark: str = MARKS.name) -> str:
    """Whether a token is at its row's mark or after it, bool [rows, length]; of `x` only the length counts."""
    places = graph.op("Range", graph.scalar(0), graph.op("Squeeze", length_of(graph, x)), graph.scalar(1))
    marks = graph.op("Unsqueeze", graph.op("Cast", mark, to=TensorProto.INT64), graph.integers(1))
    return graph.op("GreaterOrEqual", places, marks)


def _float_product(graph: Graph, x: str, weight: NDArray[np.float32]) -> str:
    return graph.op("MatMul", x, graph.weight(weight.T))


def _int8_product(graph: Graph, x: str, weight: NDArray[np.float32]) -> str:
    """Each token is scaled so that its largest number becomes 127, rounded, multiplied, and scaled back."""
    small = quantize.columns(weight, quantize.largest_weight())
    peak = graph.op("ReduceMax", graph.op("Abs", x), graph.integers(-1), keepdims=1)
    scale = graph.op("Max", graph.op("Mul", peak, graph.number(1 / quantize.WIDE)), graph.number(TINY))
    one, zero = graph.number(1.0), graph.byte(quantize.ACTIVATION_ZERO)
    rounded = graph.op("QuantizeLinear", graph.op("Div", x, scale), one, zero)
    weights = [graph.weight(small.values), one, graph.weight(small.scales), zero]
    return graph.op("Mul", graph.op("MatMulIntegerToFloat", rounded, *weights, domain=FUSED), scale)


def _int4_product(graph: Graph, x: str, weight: NDArray[np.float32]) -> str:
    small = quantize.blocks(weight)
    out, into = weight.shape
    weights = [graph.weight(small.values), graph.weight(small.scales)]
    return graph.op(
        "MatMulNBits", x, *weights, domain=FUSED, K=into, N=out, bits=4, block_size=quantize.BLOCK, accuracy_level=4
    )


PRODUCTS: dict[str, Callable[[Graph, str, NDArray[np.float32]], str]] = {
    "float32": _float_product,
    "int8": _int8_product,
    "int4": _int4_product,
}

TINY = 1e-30
"""A token of zeros is divided by this instead of by zero."""


def add_norm(
    graph: Graph,
    x: str,
    residual: str,
    bias: NDArray[np.float32] | None,
    norm: Norm,
    epsilon: float,
) -> str:
    """LayerNorm(x + bias + residual), with scale and shift in `norm`.

    Three operators: ONNX Runtime's one for all of it, SkipLayerNormalization, takes up to three times as long.
    """
    biased = x if bias is None else graph.op("Add", x, graph.weight(bias))
    scales = [graph.weight(array) for array in norm if array is not None]
    return graph.op("LayerNormalization", graph.op("Add", biased, residual), *scales, axis=-1, epsilon=epsilon)


def rms_norm(graph: Graph, x: str, scale: NDArray[np.float32], epsilon: float) -> str:
    """RMSNorm over the last axis: x / sqrt(mean(x^2) + epsilon) * scale."""
    return graph.op("SimplifiedLayerNormalization", x, graph.weight(scale), axis=-1, epsilon=epsilon)
