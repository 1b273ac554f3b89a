"""What turns token states into one row: pooling, Dense, Normalize, as the last nodes of the graph.

Modes are those of sentence-transformers (modules/pooling.py). All rows of a batch have one length and no padding, so a
mean is a plain mean.
"""

from collections.abc import Callable

from vecmill.errors import UnsupportedModel
from vecmill.graph.ops import STATES, Compiled, Given, Graph, linear, plain_activation
from vecmill.model.spec import Dense, ModelSpec, Normalize, Tail
from vecmill.model.weights import read_weights

LENGTH_AXIS = 1


def cls(graph: Graph, states: str) -> str:
    """The state of the first token."""
    return _token(graph, states, 0)


def lasttoken(graph: Graph, states: str) -> str:
    """The state of the last token."""
    return _token(graph, states, -1)


def mean(graph: Graph, states: str) -> str:
    """The mean over tokens."""
    ones, count = _ones(graph, states), _as_float(graph, _length(graph, states))
    return graph.op("Div", _weighted_sum(graph, states, ones), count)


def maximum(graph: Graph, states: str) -> str:
    """The largest value over tokens, number by number."""
    return graph.op("ReduceMax", states, graph.integers(LENGTH_AXIS), keepdims=0)


def mean_sqrt_len(graph: Graph, states: str) -> str:
    """The sum over tokens, divided by the square root of their number."""
    ones, count = _ones(graph, states), _as_float(graph, _length(graph, states))
    return graph.op("Div", _weighted_sum(graph, states, ones), graph.op("Sqrt", count))


def weightedmean(graph: Graph, states: str) -> str:
    """The mean over tokens weighted by position, 1 for the first (SGPT, arXiv 2202.08904)."""
    weights = graph.op("CumSum", _ones(graph, states), _scalar(graph, 0))
    total = graph.op("ReduceSum", weights, keepdims=0)
    return graph.op("Div", _weighted_sum(graph, states, weights), total)


POOLING: dict[str, Callable[[Graph, str], str]] = {
    "cls": cls,
    "max": maximum,
    "mean": mean,
    "mean_sqrt_len_tokens": mean_sqrt_len,
    "weightedmean": weightedmean,
    "lasttoken": lasttoken,
}


def head_alone(spec: ModelSpec, given: Given) -> Compiled:
    """The head as a graph of its own, for states or pooled rows that another graph computes.

    Args:
        spec: The model.
        given: `STATES`, or `POOLED` where only the modules after the pooling are left.

    Raises:
        UnsupportedModel: As `head`.
    """
    graph = Graph()
    result = head(graph, given.name, spec) if given is STATES else tail(graph, given.name, spec.tail)
    return graph.compile(result, spec.dims, given)


def head(graph: Graph, states: str, spec: ModelSpec) -> str:
    """Token states [rows, length, width] to [rows, dims].

    Raises:
        UnsupportedModel: The pooling leaves out prompt tokens, or an activation is unknown.
    """
    if not spec.include_prompt and any(spec.prompts.values()):
        raise UnsupportedModel(f"{spec.folder}: pooling without the prompt's tokens (include_prompt) is not supported")
    pooled = [POOLING[mode](graph, states) for mode in spec.pooling]
    row = pooled[0] if len(pooled) == 1 else graph.op("Concat", *pooled, axis=-1)
    return tail(graph, row, spec.tail)


def tail(graph: Graph, row: str, modules: Tail) -> str:
    """The modules after pooling, in order."""
    for module in modules:
        match module:
            case Normalize():
                row = graph.op("LpNormalization", row, axis=-1, p=2)
            case Dense():
                row = dense(graph, row, module)
    return row


def dense(graph: Graph, row: str, module: Dense) -> str:
    """A linear layer with its activation."""
    weights = read_weights(module.folder)
    weight = weights.array("linear.weight", module.out_features, module.in_features)
    bias = weights.array("linear.bias", module.out_features) if module.bias else None
    return plain_activation(graph, linear(graph, row, weight, bias), module.activation)


def _token(graph: Graph, states: str, index: int) -> str:
    return graph.op("Gather", states, _scalar(graph, index), axis=LENGTH_AXIS)


def _weighted_sum(graph: Graph, states: str, weights: str) -> str:
    """The sum over tokens, each times its weight; weights are float32 [length].

    A product of a vector and a matrix for each row, because its bytes are the same for a row alone and in a batch;
    those of ReduceMean and ReduceSum are not: ONNX Runtime adds in another order when there is one row.
    """
    return graph.op("MatMul", weights, states)


def _ones(graph: Graph, states: str) -> str:
    """1.0 for each token, float32 [length]."""
    return _as_float(graph, graph.op("Expand", graph.integers(1), _length(graph, states)))


def _length(graph: Graph, states: str) -> str:
    """The number of tokens, int64 [1]."""
    return graph.op("Shape", states, start=LENGTH_AXIS, end=LENGTH_AXIS + 1)


def _scalar(graph: Graph, value: int) -> str:
    return graph.op("Squeeze", graph.integers(value))


def _as_float(graph: Graph, x: str) -> str:
    return graph.op("Cast", x, to=1)
