"""Activation functions by the names that transformers and torch give them."""

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.ops import FUSED, Graph


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
