"""Weights of vocabulary entries: each family's masked language model, then the largest logit over tokens.

References: the classes `...ForMaskedLM` of transformers, SpladePooling of sentence-transformers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import UnsupportedModel
from vecmill.graph.activations import plain_activation
from vecmill.graph.heads import LENGTH_AXIS, Encoded
from vecmill.graph.ops import Graph, linear
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import Splade
from vecmill.model.weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A masked language model's head.

    Attributes:
        dense: A linear layer to the width of the word table.
        act: The key of config.json that says its activation, or that activation itself.
        norm: A LayerNorm after it.
        decoder: Its rows are the vocabulary; where the checkpoint has none it is the word table.
        bias: Of the decoder, where it is not `decoder.bias`.
    """

    dense: str
    act: str
    norm: str
    decoder: str
    bias: str


BERT = Layers(
    dense="cls.predictions.transform.dense",
    act="hidden_act",
    norm="cls.predictions.transform.LayerNorm",
    decoder="cls.predictions.decoder",
    bias="cls.predictions.bias",
)
ROBERTA = Layers(
    dense="lm_head.dense", act="gelu", norm="lm_head.layer_norm", decoder="lm_head.decoder", bias="lm_head.bias"
)

LAYERS = {
    "albert": Layers(
        dense="predictions.dense",
        act="hidden_act",
        norm="predictions.LayerNorm",
        decoder="predictions.decoder",
        bias="predictions.bias",
    ),
    "bert": BERT,
    "camembert": ROBERTA,
    "deberta-v2": BERT,
    "distilbert": Layers(
        dense="vocab_transform",
        act="activation",
        norm="vocab_layer_norm",
        decoder="vocab_projector",
        bias="vocab_projector.bias",
    ),
    "electra": Layers(
        dense="generator_predictions.dense",
        act="gelu",
        norm="generator_predictions.LayerNorm",
        decoder="generator_lm_head",
        bias="generator_lm_head.bias",
    ),
    "modernbert": Layers(
        dense="head.dense", act="classifier_activation", norm="head.norm", decoder="decoder", bias="decoder.bias"
    ),
    "mpnet": ROBERTA,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
}
"""Family to its head."""

DEFAULTS = {"hidden_act": "gelu", "activation": "gelu", "classifier_activation": "gelu"}
"""Keys of config.json that rows name, with what most families mean without them."""

ALBERT_ACT = "gelu_new"

EPSILONS = {"distilbert": 1e-12, "modernbert": 1e-5, "mpnet": 1e-12}
"""Of the norm, where config.json does not say `layer_norm_eps` or `norm_eps`."""


def splade(graph: Graph, x: Encoded) -> str:
    """Token states to [rows, vocabulary], none below zero: weights, or what `weigh` makes weights of.

    The weight of a logit never falls as the logit grows, so the largest weight is that of the largest logit, and its
    logarithm is left to `weigh`: ONNX Runtime's gives other bytes at another place of a batch.

    Raises:
        UnsupportedModel: The family has no such head, or an activation is unknown.
        MissingFile: A tensor is absent.
        CorruptFile: A tensor has another shape.
    """
    settings = x.spec.sparse if isinstance(x.spec.sparse, Splade) else Splade()
    logits = graph.op("Relu", _logits(graph, x))
    if settings.pooling == "max":
        return graph.op("ReduceMax", logits, graph.integers(LENGTH_AXIS), keepdims=0)
    for _ in range(1 + settings.twice):
        logits = graph.op("Log", graph.op("Add", logits, graph.number(1.0)))
    return graph.op("ReduceSum", logits, graph.integers(LENGTH_AXIS), keepdims=0)


def weigh(values: NDArray[np.float32], settings: Splade) -> NDArray[np.float32]:
    """Weights of what `splade` gives: log(1 + x), once or twice, where that is still to be done."""
    times = 1 + settings.twice if settings.pooling == "max" else 0
    for _ in range(times):
        values = np.log1p(values)
    return values


def _logits(graph: Graph, x: Encoded) -> str:
    """A logit for each token and vocabulary entry, [rows, length, vocabulary]."""
    spec, weights = x.spec, x.weights
    layers = LAYERS.get(spec.family)
    if layers is None:
        raise UnsupportedModel(f"{spec.folder}: sparse encoders of family {spec.family!r} are not supported")
    width = int(spec.config.get("hidden_size") or spec.config["dim"])
    narrow = int(spec.config.get("embedding_size", 128)) if spec.family in {"albert", "electra"} else width
    bias = weights.array(f"{layers.dense}.bias", narrow) if f"{layers.dense}.bias" in weights else None
    states = linear(graph, x.states, weights.array(f"{layers.dense}.weight", narrow, width), bias)
    states = plain_activation(graph, states, _activation(spec, layers))
    norm = _norm(graph, weights, layers.norm, narrow)
    states = graph.op("LayerNormalization", states, *norm, axis=-1, epsilon=_epsilon(spec))
    untied = f"{layers.decoder}.weight" in weights
    table = f"{layers.decoder}.weight" if untied else x.words
    shift = next((name for name in (f"{layers.decoder}.bias", layers.bias) if name in weights), None)
    return linear(
        graph,
        states,
        (weights if untied else x.inner).array(table, spec.vocab_size, narrow),
        None if shift is None else weights.array(shift, spec.vocab_size),
    )


def _activation(spec: ModelSpec, layers: Layers) -> str:
    if layers.act not in DEFAULTS:
        return layers.act
    default = ALBERT_ACT if spec.family == "albert" else DEFAULTS[layers.act]
    return str(spec.config.get(layers.act, default))


def _norm(graph: Graph, weights: Weights, name: str, width: int) -> list[str]:
    """Scale and shift; checkpoints converted from TensorFlow call them gamma and beta."""
    scale, shift = ("gamma", "beta") if f"{name}.gamma" in weights else ("weight", "bias")
    shifted = f"{name}.{shift}" in weights
    scales = [graph.weight(weights.array(f"{name}.{scale}", width))]
    return [*scales, graph.weight(weights.array(f"{name}.{shift}", width))] if shifted else scales


def _epsilon(spec: ModelSpec) -> float:
    stated = spec.config.get("layer_norm_eps", spec.config.get("norm_eps"))
    return float(EPSILONS.get(spec.family, 1e-12) if stated is None else stated)
