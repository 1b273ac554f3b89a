"""What turns token states into one row: pooling, Dense, LayerNorm, Normalize, as the last nodes of the graph.

Modes are those of sentence-transformers (modules/pooling.py). All rows of a batch have one length and no padding, so a
mean is a plain mean; where the pooling leaves the prompt out, the tokens before each row's mark do not count.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vecmill.errors import CorruptFile
from vecmill.graph import packed
from vecmill.graph.activations import plain_activation
from vecmill.graph.ops import BOOL, INT64, MARKS, STATES, Compiled, Given, Graph, from_mark, length_of, linear
from vecmill.graph.packed import either
from vecmill.model.spec import Dense, LayerNorm, ModelSpec, Normalize, Projection, Tail
from vecmill.model.tasks import TokenWeights
from vecmill.model.weights import Weights, read_torch, read_weights

LENGTH_AXIS = 1

LOWEST = float(np.finfo(np.float32).min)

EPSILON = 1e-5
"""Of torch's LayerNorm where nothing else is said."""


def cls(graph: Graph, states: str) -> str:
    """The state of the first token that counts."""
    if graph.mark != "prompt":
        return _token(graph, states, 0)
    places = graph.op("Cast", graph.op("Unsqueeze", MARKS.name, graph.integers(1)), to=INT64)
    return graph.op("GatherND", states, places, batch_dims=1)


def lasttoken(graph: Graph, states: str) -> str:
    """The state of the last token."""
    if graph.packed and graph.pooled is None:
        return either(graph, lambda: packed.last(graph, states), lambda: _token(graph, states, -1))
    return _token(graph, states, -1)


def mean(graph: Graph, states: str) -> str:
    """The mean over tokens."""
    kept = _kept(graph, states)
    return graph.op("Div", _weighted_sum(graph, states, kept), _total(graph, kept))


def maximum(graph: Graph, states: str) -> str:
    """The largest value over tokens, number by number."""
    if graph.mark == "prompt" or graph.packed:
        counted = graph.op("Cast", _kept(graph, states), to=BOOL)
        states = graph.op("Where", _columns(graph, counted), states, graph.number(LOWEST))
    return graph.op("ReduceMax", states, graph.integers(LENGTH_AXIS), keepdims=0)


def mean_sqrt_len(graph: Graph, states: str) -> str:
    """The sum over tokens, divided by the square root of their number."""
    kept = _kept(graph, states)
    return graph.op("Div", _weighted_sum(graph, states, kept), graph.op("Sqrt", _total(graph, kept)))


def weightedmean(graph: Graph, states: str) -> str:
    """The mean over tokens weighted by position, 1 for the first (SGPT, arXiv 2202.08904)."""
    weights = graph.op("CumSum", _ones(graph, states), _scalar(graph, 0))
    if graph.mark == "prompt" or graph.packed:
        weights = graph.op("Mul", weights, _kept(graph, states))
    return graph.op("Div", _weighted_sum(graph, states, weights), _total(graph, weights))


POOLING: dict[str, Callable[[Graph, str], str]] = {
    "cls": cls,
    "max": maximum,
    "mean": mean,
    "mean_sqrt_len_tokens": mean_sqrt_len,
    "weightedmean": weightedmean,
    "lasttoken": lasttoken,
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoder in a graph, ready for its heads.

    Attributes:
        states: Token states [rows, length, width]; one token's alone where all heads take no other.
        spec: The model.
        weights: All tensors by the checkpoint's names.
        inner: The encoder's tensors by its own names.
        words: What the encoder calls its word table.
    """

    states: str
    spec: ModelSpec
    weights: Weights
    inner: Weights
    words: str


def head_alone(spec: ModelSpec, given: Given) -> Compiled:
    """The head as a graph of its own, for states or pooled rows that another graph computes.

    Args:
        spec: The model.
        given: `STATES`, or `POOLED` where only the modules after the pooling are left.

    Raises:
        UnsupportedModel: As `pooled`.
    """
    graph = Graph(mark=spec.mark)
    row = pooled(graph, given.name, spec) if given is STATES else tail(graph, given.name, spec.tail)
    marks = (MARKS,) if spec.mark and given is STATES else ()
    return graph.compile({"dense": (row, ("rows", spec.dims))}, (given, *marks))


def pooled(graph: Graph, states: str, spec: ModelSpec) -> str:
    """Token states [rows, length, width] to [rows, dims].

    Raises:
        UnsupportedModel: An activation is unknown.
    """
    modes = [POOLING[mode](graph, states) for mode in spec.pooling]
    row = modes[0] if len(modes) == 1 else graph.op("Concat", *modes, axis=-1)
    return tail(graph, row, spec.tail)


def tail(graph: Graph, row: str, modules: Tail) -> str:
    """The modules after pooling, in order."""
    for module in modules:
        match module:
            case Normalize():
                row = graph.op("LpNormalization", row, axis=-1, p=2)
            case Projection():
                row = project(graph, row, module)
            case LayerNorm():
                row = layer_norm(graph, row, module)
            case Dense():
                row = dense(graph, row, module)
    return row


def dense(graph: Graph, row: str, module: Dense) -> str:
    """A linear layer with its activation."""
    weights = read_weights(module.folder)
    weight = weights.array("linear.weight", module.out_features, module.in_features)
    bias = weights.array("linear.bias", module.out_features) if module.bias else None
    out = plain_activation(graph, linear(graph, row, weight, bias), module.activation)
    if not module.residual:
        return out
    if module.in_features == module.out_features:
        return graph.op("Add", out, row)
    across = weights.array("residual.weight", module.out_features, module.in_features)
    return graph.op("Add", out, linear(graph, row, across))


def project(graph: Graph, row: str, module: Projection) -> str:
    """A linear layer in float32, of the size of its tensor.

    Raises:
        MissingFile: There is no such tensor.
        CorruptFile: It is no matrix.
    """
    file = module.place.suffix == ".pt"
    weights = Weights(read_torch(module.place), module.place.parent) if file else read_weights(module.place)
    shape = weights[module.weight].shape if module.weight in weights else (0, 0)
    if len(shape) != len(("out", "in")):
        raise CorruptFile(f"{module.place}: {module.weight!r} has shape {list(shape)}, a matrix is needed")
    product = graph.op("MatMul", row, graph.weight(weights.array(module.weight, *shape).T))
    if module.bias is None:
        return product
    return graph.op("Add", product, graph.weight(weights.array(module.bias, shape[0])))


def token_vectors(graph: Graph, x: Encoded) -> str:
    """A vector for each token, [rows, length, dims]: its state, after what a late interaction does with it."""
    return tail(graph, x.states, x.spec.late.tail) if x.spec.late else x.states


def token_weights(graph: Graph, x: Encoded, weights: TokenWeights) -> str:
    """A weight for each token, none below zero, [rows, length]."""
    weighed = project(graph, x.states, Projection(weights.file, "weight", "bias"))
    return graph.op("Squeeze", graph.op("Relu", weighed), graph.integers(-1))


def layer_norm(graph: Graph, row: str, module: LayerNorm) -> str:
    """A LayerNorm with torch's epsilon."""
    weights = read_weights(module.folder)
    scale, shift = (graph.weight(weights.array(f"norm.{name}", module.dims)) for name in ("weight", "bias"))
    return graph.op("LayerNormalization", row, scale, shift, axis=-1, epsilon=EPSILON)


def _token(graph: Graph, states: str, index: int) -> str:
    return graph.op("Gather", states, _scalar(graph, index), axis=LENGTH_AXIS)


def _weighted_sum(graph: Graph, states: str, weights: str) -> str:
    """The sum over tokens, each times its weight; weights are float32 [length] or [rows, length].

    A product of a vector and a matrix for each row, because its bytes are the same for a row alone and in a batch;
    those of ReduceMean and ReduceSum are not: ONNX Runtime adds in another order when there is one row. In a packed
    graph the vector stands there twice, as its product of one vector adds in an order that depends on the length.
    """
    if graph.packed:
        twice = graph.op("Expand", graph.op("Unsqueeze", weights, graph.integers(1)), graph.integers(1, 2, 1))
        return graph.op("Gather", graph.op("MatMul", twice, states), graph.scalar(0), axis=1)
    if graph.mark != "prompt":
        return graph.op("MatMul", weights, states)
    product = graph.op("MatMul", graph.op("Unsqueeze", weights, graph.integers(1)), states)
    return graph.op("Squeeze", product, graph.integers(1))


def _kept(graph: Graph, states: str) -> str:
    """1.0 for each token that counts, float32 [length]; or [rows, length], 0.0 for a prompt's, and where none is."""
    if graph.packed:
        rows = graph.op("Shape", states, start=0, end=2)
        return either(
            graph,
            lambda: _as_float(graph, packed.seen(graph)),
            lambda: _as_float(graph, graph.op("Expand", graph.integers(1), rows)),
        )
    return _as_float(graph, from_mark(graph, states)) if graph.mark == "prompt" else _ones(graph, states)


def _total(graph: Graph, weights: str) -> str:
    """The sum of weights, float32 [1] or [rows, 1]; exact, as they are whole numbers."""
    return graph.op("ReduceSum", weights, graph.integers(-1), keepdims=1)


def _columns(graph: Graph, x: str) -> str:
    return graph.op("Unsqueeze", x, graph.integers(-1))


def _ones(graph: Graph, states: str) -> str:
    """1.0 for each token, float32 [length]."""
    return _as_float(graph, graph.op("Expand", graph.integers(1), length_of(graph, states)))


def _scalar(graph: Graph, value: int) -> str:
    return graph.op("Squeeze", graph.integers(value))


def _as_float(graph: Graph, x: str) -> str:
    return graph.op("Cast", x, to=1)
