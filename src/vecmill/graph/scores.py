"""Scores of labels: each family's own classification head, and the yes and no of language models.

Reference: the classes `...ForSequenceClassification` of transformers. Heads stay in float32 in every precision: they
are small, and what they give is the answer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.activations import plain_activation
from vecmill.graph.heads import EPSILON, POOLING, Encoded
from vecmill.graph.ops import Graph
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import YesNo
from vecmill.model.weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A classification head, in the order of its parts.

    Attributes:
        pooling: The key of config.json that says which mode of `POOLING` goes before it, or that mode itself.
        dense: A square linear layer; "" for none.
        act: The key of config.json that says its activation, or that activation itself.
        norm: A LayerNorm after that; "" for none.
        out: The linear layer of labels.
    """

    pooling: str = "cls"
    dense: str = ""
    act: str = "tanh"
    norm: str = ""
    out: str = "classifier"


BERT = Layers(dense="pooler.dense")
ROBERTA = Layers(dense="classifier.dense", out="classifier.out_proj")
DECODER = Layers(pooling="lasttoken", out="score")

LAYERS = {
    "albert": Layers(dense="pooler"),
    "bert": BERT,
    "camembert": ROBERTA,
    "deberta-v2": Layers(dense="pooler.dense", act="pooler_hidden_act"),
    "distilbert": Layers(dense="pre_classifier", act="relu"),
    "electra": Layers(dense="classifier.dense", act="gelu", out="classifier.out_proj"),
    "gemma3_text": DECODER,
    "gte": BERT,
    "jina_bert": BERT,
    "llama": DECODER,
    "mistral": DECODER,
    "modernbert": Layers(
        pooling="classifier_pooling", dense="head.dense", act="classifier_activation", norm="head.norm"
    ),
    "mpnet": ROBERTA,
    "new": BERT,
    "nomic_bert": BERT,
    "qwen2": DECODER,
    "qwen3": DECODER,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
}
"""Family to its head."""

DEFAULTS = {"classifier_pooling": "cls", "classifier_activation": "gelu", "pooler_hidden_act": "gelu"}
"""Keys of config.json that rows name, with transformers' defaults."""


def pooling_of(spec: ModelSpec) -> str:
    """What of the states the head takes, a key of `POOLING`.

    Raises:
        UnsupportedModel: The family has no head, or takes something unknown.
    """
    if isinstance(spec.scores, YesNo):
        return "lasttoken"
    layers = LAYERS.get(spec.family)
    if layers is None:
        raise UnsupportedModel(f"{spec.folder}: classifiers of family {spec.family!r} are not supported")
    mode = _setting(spec, layers.pooling)
    if mode not in POOLING:
        raise UnsupportedModel(f"{spec.transformer / 'config.json'}: classifier_pooling = {mode!r} is not supported")
    return mode


def scores(graph: Graph, x: Encoded) -> str:
    """Token states to scores [rows, labels], as they are before any softmax.

    Raises:
        UnsupportedModel: As `pooling_of`, or an activation is unknown.
        MissingFile: A tensor is absent.
        CorruptFile: A tensor has another shape.
    """
    spec = x.spec
    row = POOLING[pooling_of(spec)](graph, x.states)
    width = int(spec.config.get("hidden_size") or spec.config["dim"])
    if isinstance(spec.scores, YesNo):
        return _product(graph, row, _yes_less_no(x, spec.scores, width), None)
    layers = LAYERS[spec.family]
    if layers.dense:
        holder = x.weights if f"{layers.dense}.weight" in x.weights else x.inner  # a pooler is the encoder's
        row = _linear(graph, row, holder, layers.dense, (width, width))
        row = plain_activation(graph, row, _setting(spec, layers.act))
    if layers.norm:
        scale = graph.weight(x.weights.array(f"{layers.norm}.weight", width))
        bias = f"{layers.norm}.bias"
        shift = [graph.weight(x.weights.array(bias, width))] if bias in x.weights else []
        epsilon = float(spec.config.get("norm_eps", EPSILON))
        row = graph.op("LayerNormalization", row, scale, *shift, axis=-1, epsilon=epsilon)
    return _linear(graph, row, x.weights, layers.out, (spec.width("scores"), width))


def _yes_less_no(x: Encoded, head: YesNo, width: int) -> NDArray[np.float32]:
    """The rows of the language model's head that say yes and no, one less the other, [1, width]."""
    size = x.spec.vocab_size
    untied = "lm_head.weight" in x.weights
    table = x.weights.array("lm_head.weight", size, width) if untied else x.inner.array(x.words, size, width)
    return table[[head.true]] if head.false is None else table[[head.true]] - table[[head.false]]


def _setting(spec: ModelSpec, name: str) -> str:
    """The value of a key of config.json, or the name itself where it is none."""
    return str(spec.config.get(name, DEFAULTS[name])) if name in DEFAULTS else name


def _linear(graph: Graph, x: str, weights: Weights, name: str, shape: tuple[int, int]) -> str:
    bias = weights.array(f"{name}.bias", shape[0]) if f"{name}.bias" in weights else None
    return _product(graph, x, weights.array(f"{name}.weight", *shape), bias)


def _product(graph: Graph, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None) -> str:
    product = graph.op("MatMul", x, graph.weight(weight.T))
    return product if bias is None else graph.op("Add", product, graph.weight(bias))
