"""From a ModelSpec to a compiled graph: the family's encoder, then the head."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

import msgspec

from vecmill.core import Output
from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.graph.heads import Encoded, pooled, token_vectors, token_weights
from vecmill.graph.ops import IDS, MARKS, Axes, Compiled, Graph
from vecmill.graph.packed import LAYOUT, either, side_by_side
from vecmill.graph.scores import pooling_of, scores
from vecmill.graph.splade import splade
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import TokenWeights
from vecmill.model.weights import read_weights

FAMILIES = {
    "albert": "vecmill.graph.families.albert",
    "bert": "vecmill.graph.families.bert",
    "camembert": "vecmill.graph.families.roberta",
    "deberta-v2": "vecmill.graph.families.deberta_v2",
    "distilbert": "vecmill.graph.families.distilbert",
    "electra": "vecmill.graph.families.electra",
    "gemma3_text": "vecmill.graph.families.gemma3",
    "gte": "vecmill.graph.families.new",
    "jina_bert": "vecmill.graph.families.jina_bert",
    "llama": "vecmill.graph.families.llama",
    "mistral": "vecmill.graph.families.llama",
    "modernbert": "vecmill.graph.families.modernbert",
    "mpnet": "vecmill.graph.families.mpnet",
    "new": "vecmill.graph.families.new",
    "nomic_bert": "vecmill.graph.families.nomic_bert",
    "qwen2": "vecmill.graph.families.qwen",
    "qwen3": "vecmill.graph.families.qwen",
    "roberta": "vecmill.graph.families.roberta",
    "xlm-roberta": "vecmill.graph.families.roberta",
}
"""Family to the module that builds it, imported on first use; `read_spec` tells the family from config.json."""


BLIND = {"deberta-v2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"}
"""Families whose attention cannot leave out the tokens that queries are made longer with."""

PACKED = {"bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta"}
"""Families whose graphs take rows of several lengths in one pass."""

ONE_TOKEN: dict[tuple[str, ...], int] = {("cls",): 0, ("lasttoken",): -1}
"""Poolings that take one token, and which."""


def _weights(graph: Graph, x: Encoded) -> str:
    return token_weights(graph, x, x.spec.sparse) if isinstance(x.spec.sparse, TokenWeights) else splade(graph, x)


HEADS: dict[Output, tuple[Callable[[Graph, Encoded], str], Callable[[ModelSpec], Axes]]] = {
    "dense": (lambda graph, x: pooled(graph, x.states, x.spec), lambda spec: ("rows", spec.dims)),
    "multi": (token_vectors, lambda _spec: ("rows", "length", "width")),
    "scores": (scores, lambda spec: ("rows", spec.width("scores"))),
    "sparse": (_weights, lambda spec: ("rows", "length" if spec.dims else spec.vocab_size)),
}
"""Output to the end of its graph, and the axes of what comes out."""


def build(spec: ModelSpec, precision: str = "float32", outputs: Sequence[Output] = ()) -> Compiled:
    """Compile a checkpoint.

    Args:
        spec: What it is.
        precision: What its weights are kept in, one of `vecmill.graph.quantize.PRECISIONS`.
        outputs: What the graph is to give; what the model is for where none is named.

    Raises:
        UnsupportedModel: The architecture, a module or a setting is not supported.
        MissingFile: A file or a tensor is absent.
        CorruptFile: A file is damaged, a key of the config is absent, or a tensor has another shape than it says.
    """
    place = FAMILIES.get(spec.family)
    if place is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModel(f"{spec.folder}: architecture {spec.family!r} is not supported yet; supported: {known}")
    if spec.mark == "seen" and spec.family in BLIND:
        what = f"queries with tokens that others do not see, of {spec.family!r}"
        raise UnsupportedModel(f"{spec.folder}: {what}, are not in the graph; --engine torch can compute them")
    family = import_module(place)
    outputs = outputs or spec.outputs[:1]
    packed = spec.family in PACKED and set(outputs) <= POOLED and spec.mark in {None, "second"}
    graph = Graph(precision, _only_token(spec, outputs), spec.mark, packed=packed)
    weights = read_weights(spec.transformer)
    with _config_of(spec):
        states = _rows(graph, family.states(graph, spec, weights))
        encoded = Encoded(states, spec, weights, weights.strip(family.PREFIXES, family.WORDS), family.WORDS)
        results: dict[str, tuple[str, Axes]] = {
            output: (HEADS[output][0](graph, encoded), HEADS[output][1](spec)) for output in outputs
        }
    return graph.compile(results, (IDS, *([MARKS] if spec.mark else []), *(LAYOUT if packed else ())))


@contextmanager
def _config_of(spec: ModelSpec) -> Iterator[None]:
    """Within it, config.json makes a network: what it says may be of a wrong kind, or no size that there can be."""
    try:
        yield
    except UnsupportedModel as error:
        named = str(spec.folder) in str(error)  # what does not know of the checkpoint cannot name it
        raise error if named else UnsupportedModel(f"{spec.transformer}: {error}") from error
    except (msgspec.ValidationError, TypeError, ValueError, LookupError, OverflowError) as error:
        raise CorruptFile(f"{spec.transformer / 'config.json'}: {error}") from error


def _rows(graph: Graph, states: str) -> str:
    """States row by row for the heads, unless they are one token's already."""
    if not graph.packed or graph.pooled is not None:
        return states
    return either(graph, lambda: side_by_side(graph, states), lambda: graph.op("Identity", states))


POOLED: set[Output] = {"dense", "scores"}
"""Outputs that a pooling of token states begins."""


def _only_token(spec: ModelSpec, outputs: Sequence[Output]) -> int | None:
    """The one token whose last state is wanted; None where there are more, or where it differs from row to row."""
    if spec.mark == "prompt":
        return None
    modes = {output: (pooling_of(spec),) if output == "scores" else spec.pooling for output in outputs}
    tokens = {ONE_TOKEN.get(mode) if output in POOLED else None for output, mode in modes.items()}
    return tokens.pop() if len(tokens) == 1 else None
