"""Activation functions by the names that transformers and torch give them."""

from collections.abc import Callable

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
    if made := MADE.get(kind):
        return made(graph, x)
    row = ACTIVATIONS.get(kind)
    if row is None:
        known = ", ".join(sorted({*ACTIVATIONS, *MADE, *IDENTITIES}, key=lambda name: (name.lower(), name)))
        raise UnsupportedModel(f"activation {kind!r} is not supported; supported: {known}")
    name, domain = row
    return graph.op(name, x, domain=domain)


def _silu(graph: Graph, x: str) -> str:
    return graph.op("Mul", x, graph.op("Sigmoid", x))


def _quick_gelu(graph: Graph, x: str) -> str:
    return graph.op("Mul", x, graph.op("Sigmoid", graph.op("Mul", x, graph.number(1.702))))


def _mish(graph: Graph, x: str) -> str:
    """Misra, arXiv 1908.08681."""
    return graph.op("Mul", x, graph.op("Tanh", graph.op("Softplus", x)))


def _relu2(graph: Graph, x: str) -> str:
    above = graph.op("Relu", x)
    return graph.op("Mul", above, above)


def _relu6(graph: Graph, x: str) -> str:
    return graph.op("Clip", x, graph.number(0), graph.number(6))


def _gelu_10(graph: Graph, x: str) -> str:
    return graph.op("Clip", graph.op("Gelu", x, domain=FUSED), graph.number(-10), graph.number(10))


IDENTITIES = {"Identity", "linear", "none"}

MADE: dict[str, Callable[[Graph, str], str]] = {
    **dict.fromkeys(("silu", "swish", "SiLU"), _silu),
    **dict.fromkeys(("mish", "Mish"), _mish),
    **dict.fromkeys(("relu6", "ReLU6"), _relu6),
    "gelu_10": _gelu_10,
    "quick_gelu": _quick_gelu,
    "relu2": _relu2,
}
"""Those that are several operations."""

FUSED_ACTIVATIONS = dict.fromkeys(
    ("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"), "FastGelu"
)
"""One formula, with the hyperbolic tangent, under all of its names."""

ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python", "GELU"), ("Gelu", FUSED)),
    **{kind: (name, FUSED) for kind, name in FUSED_ACTIVATIONS.items()},
    **dict.fromkeys(("relu", "ReLU"), ("Relu", "")),
    **dict.fromkeys(("leaky_relu", "LeakyReLU"), ("LeakyRelu", "")),
    **dict.fromkeys(("elu", "ELU"), ("Elu", "")),
    **dict.fromkeys(("tanh", "Tanh"), ("Tanh", "")),
    **dict.fromkeys(("sigmoid", "Sigmoid"), ("Sigmoid", "")),
    "SELU": ("Selu", ""),
    "Softplus": ("Softplus", ""),
    "Softsign": ("Softsign", ""),
}
