"""The vocabulary of graphs: each function emits nodes and returns the name of its result.

Weights go beside the model, not into it: the model stays a few kilobytes and the 2 GB limit of protobuf never matters.
Fused operators are ONNX Runtime's (domain com.microsoft), where they measured faster than their parts.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from vecmill.errors import UnsupportedModel

OPSET = 18
IR_VERSION = 9
FUSED = "com.microsoft"

INPUT = "ids"
OUTPUT = "rows"

Array = NDArray[np.float32] | NDArray[np.int64]
Attribute = float | list[int]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph ready for a session.

    Attributes:
        model: The serialised ONNX model, whose weights are external.
        weights: The weights by name, C-contiguous; some are views of the mapped checkpoint.
    """

    model: bytes
    weights: dict[str, Array]


class Graph:
    """Nodes and weights under construction.

    The input is `ids`, int32 [rows, length]: all rows of a batch are of one length, so no graph holds a mask.
    The output is `rows`, float32 [rows, dims].
    """

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, Array] = {}
        self._constants: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Attribute) -> str:
        """Emit a node and return the name of its first output."""
        name = f"{kind}_{len(self._nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self._nodes.append(helper.make_node(kind, inputs, names, name=name, domain=domain, **attributes))  # type: ignore[arg-type]  # the stub knows no attributes
        return name

    def weight(self, array: NDArray[np.float32]) -> str:
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

    def _constant(self, kind: int, shape: list[int], *values: float) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(helper.make_tensor(name, kind, shape, values))
        return name

    def compile(self, result: str, dims: int) -> Compiled:
        """Finish the graph: `result` becomes the output."""
        self._nodes.append(helper.make_node("Identity", [result], [OUTPUT]))
        graph = helper.make_graph(
            self._nodes,
            "vecmill",
            [helper.make_tensor_value_info(INPUT, TensorProto.INT32, ["rows", "length"])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["rows", dims])],
            initializer=[*self._constants, *map(_external, self._weights, self._weights.values())],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return Compiled(model.SerializeToString(), self._weights)


def _external(name: str, array: Array) -> onnx.TensorProto:
    """A placeholder that the session fills from memory; the location is never opened."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="memory")
    return tensor


def linear(graph: Graph, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None) -> str:
    """X W^T + b, with the weight as torch stores it: [out, in]."""
    product = graph.op("MatMul", x, graph.weight(weight.T))
    return product if bias is None else graph.op("Add", product, graph.weight(bias))


def add_norm(
    graph: Graph,
    x: str,
    residual: str,
    bias: NDArray[np.float32],
    norm: tuple[NDArray[np.float32], NDArray[np.float32]],
    epsilon: float,
) -> str:
    """LayerNorm(x + bias + residual), with scale and shift in `norm`."""
    scale, shift = norm
    weights = [graph.weight(array) for array in (scale, shift, bias)]
    return graph.op("SkipLayerNormalization", x, residual, *weights, domain=FUSED, epsilon=epsilon)


def activation(graph: Graph, x: str, bias: NDArray[np.float32], kind: str) -> str:
    """f(x + bias) for an activation named as transformers or torch names it.

    Raises:
        UnsupportedModel: There is no such activation.
    """
    fused = FUSED_ACTIVATIONS.get(kind)
    if fused is not None:
        return graph.op(fused, x, graph.weight(bias), domain=FUSED)
    return plain_activation(graph, graph.op("Add", x, graph.weight(bias)), kind)


def plain_activation(graph: Graph, x: str, kind: str) -> str:
    """f(x) for an activation named as transformers or torch names it.

    Raises:
        UnsupportedModel: There is no such activation.
    """
    if kind in IDENTITIES:
        return x
    if kind in {"silu", "swish", "SiLU"}:
        return graph.op("Mul", x, graph.op("Sigmoid", x))
    row = ACTIVATIONS.get(kind)
    if row is None:
        raise UnsupportedModel(f"activation {kind!r} is not supported; supported: {', '.join(sorted(ACTIVATIONS))}")
    name, domain = row
    return graph.op(name, x, domain=domain)


IDENTITIES = {"Identity", "linear", "none"}

FUSED_ACTIVATIONS = {
    "gelu": "BiasGelu",
    "gelu_new": "FastGelu",
    "gelu_fast": "FastGelu",
    "gelu_pytorch_tanh": "FastGelu",
}

ACTIVATIONS = {
    "gelu": ("Gelu", FUSED),
    "GELU": ("Gelu", FUSED),
    "gelu_new": ("FastGelu", FUSED),
    "gelu_fast": ("FastGelu", FUSED),
    "gelu_pytorch_tanh": ("FastGelu", FUSED),
    "relu": ("Relu", ""),
    "ReLU": ("Relu", ""),
    "tanh": ("Tanh", ""),
    "Tanh": ("Tanh", ""),
    "sigmoid": ("Sigmoid", ""),
    "Sigmoid": ("Sigmoid", ""),
}
