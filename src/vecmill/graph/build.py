"""From a ModelSpec to a compiled graph: the family's encoder, then the head."""

from collections.abc import Callable
from importlib import import_module

import msgspec

from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.graph.heads import head
from vecmill.graph.ops import Compiled, Graph
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights, read_weights

FAMILIES = {"bert": "vecmill.graph.families.bert"}
"""model_type of config.json to the module that builds it, imported on first use."""


def build(spec: ModelSpec) -> Compiled:
    """Compile a checkpoint.

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
    graph = Graph()
    weights = read_weights(spec.transformer)
    try:
        result = head(graph, states(graph, spec, weights), spec)
    except msgspec.ValidationError as error:
        raise CorruptFile(f"{spec.transformer / 'config.json'}: {error}") from error
    return graph.compile(result, spec.dims)
