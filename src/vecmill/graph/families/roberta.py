"""RoBERTa (Liu et al., arXiv 1907.11692), XLM-RoBERTa and CamemBERT: BERT whose positions start after the padding's id.

A padding token that a text itself spells takes a position here as any other; transformers gives it the padding's own
position and does not count it. Reference: transformers, models/roberta/modeling_roberta.py.
"""

import msgspec

from vecmill.graph.families.bert import UNSUPPORTED, WORDS, Config, check, embeddings, encoder
from vecmill.graph.ops import Graph
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "roberta.", "model.", "0.auto_model.", "bert.")


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check(spec, UNSUPPORTED)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    x = embeddings(graph, config, weights, first=spec.first_position)
    return encoder(graph, x, config, weights)
