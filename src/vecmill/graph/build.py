"""From a ModelSpec to a compiled graph: the family's encoder, then the head."""

from collections.abc import Callable
from importlib import import_module

import msgspec

from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.graph.heads import head
from vecmill.graph.ops import Compiled, Graph
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights, read_weights

FAMILIES = {
    "albert": "vecmill.graph.families.albert",
    "bert": "vecmill.graph.families.bert",
    "camembert": "vecmill.graph.families.roberta",
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


ONE_TOKEN: dict[tuple[str, ...], int] = {("cls",): 0, ("lasttoken",): -1}
"""Poolings that take one token, and which."""


def build(spec: ModelSpec, precision: str = "float32") -> Compiled:
    """Compile a checkpoint.

    Args:
        spec: What it is.
        precision: What its weights are kept in, one of `vecmill.graph.quantize.PRECISIONS`.

    Raises:
        UnsupportedModel: The architecture, a module or a setting is not supported.
        MissingFile: A file or a tensor is absent.
        CorruptFile: A file is damaged, a key of the config is absent, or a tensor has another shape than it says.
    """
    family = FAMILIES.get(spec.family)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModel(f"{spec.folder}: architecture {spec.family!r} is not supported yet; supported: {known}")
    states: Callable[[Graph, ModelSpec, Weights], str] = import_module(family).states
    graph = Graph(precision, ONE_TOKEN.get(spec.pooling))
    weights = read_weights(spec.transformer)
    try:
        result = head(graph, states(graph, spec, weights), spec)
    except msgspec.ValidationError as error:
        raise CorruptFile(f"{spec.transformer / 'config.json'}: {error}") from error
    return graph.compile(result, spec.dims)
