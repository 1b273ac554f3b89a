"""Activations by the names of transformers and torch, beside their formulas in numpy."""

from collections.abc import Callable
from math import erf

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from vecmill.graph.activations import ACTIVATIONS, IDENTITIES, MADE, activation, plain_activation
from vecmill.graph.ops import Graph

Array = NDArray[np.float64]

X = np.linspace(-14, 14, 57)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    result: Array = 1 / (1 + np.exp(-x))
    return result


def gelu(x: Array) -> Array:
    """X times the normal distribution's part below it."""
    result: Array = x * np.array([(1 + erf(value / np.sqrt(2))) / 2 for value in x])
    return result


def tanh_gelu(x: Array) -> Array:
    """Its approximation by the hyperbolic tangent."""
    result: Array = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


FORMULAS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("gelu", "gelu_python", "GELU"), gelu),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"), tanh_gelu),
    "gelu_10": lambda x: np.clip(gelu(x), -10, 10),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    **dict.fromkeys(("relu", "ReLU"), lambda x: np.maximum(x, 0)),
    **dict.fromkeys(("relu6", "ReLU6"), lambda x: np.clip(x, 0, 6)),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    **dict.fromkeys(("leaky_relu", "LeakyReLU"), lambda x: np.where(x > 0, x, x / 100)),
    **dict.fromkeys(("elu", "ELU"), lambda x: np.where(x > 0, x, np.expm1(x))),
    "SELU": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    **dict.fromkeys(("silu", "swish", "SiLU"), lambda x: x * sigmoid(x)),
    **dict.fromkeys(("mish", "Mish"), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    **dict.fromkeys(("tanh", "Tanh"), np.tanh),
    **dict.fromkeys(("sigmoid", "Sigmoid"), sigmoid),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    **dict.fromkeys(("Identity", "linear", "none"), lambda x: x),
}


def test_each_is_tried() -> None:
    """No activation is without its formula here."""
    assert FORMULAS.keys() == {*ACTIVATIONS, *MADE, *IDENTITIES}


@pytest.mark.parametrize("name", FORMULAS)
def test_values(name: str) -> None:
    """Alone and with a bias, an activation is its formula."""
    bias = np.full(len(X), 0.5, np.float32)
    for biased, formula in ((None, FORMULAS[name](X)), (bias, FORMULAS[name](X + 0.5))):
        graph = Graph()
        x = graph.weight(X.astype(np.float32)[None])
        out = plain_activation(graph, x, name) if biased is None else activation(graph, x, biased, name)
        assert run(graph, out)[0] == pytest.approx(formula, abs=2e-5, rel=1e-5)


def run(graph: Graph, out: str) -> NDArray[np.float32]:
    """What a graph of constants gives."""
    compiled = graph.compile({"out": (out, ("rows", "width"))})
    options = onnxruntime.SessionOptions()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in compiled.weights.items()}
    options.add_external_initializers(list(values), list(values.values()))
    session = onnxruntime.InferenceSession(compiled.model, options)
    (rows,) = session.run(None, {"ids": np.zeros((1, 1), np.int32)})
    result: NDArray[np.float32] = rows
    return result
