"""ELECTRA (Clark et al., arXiv 2003.10555): BERT with embeddings of their own width, projected to that of the layers.

Reference: transformers, models/electra/modeling_electra.py.
"""

import msgspec

from vecmill.graph.families import bert
from vecmill.graph.families.bert import UNSUPPORTED, WORDS, Size, check, dense, embeddings, encoder
from vecmill.graph.ops import Graph, linear
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "electra.", "discriminator.", "model.", "0.auto_model.")


class Config(bert.Config):
    """What this graph reads of config.json; defaults are those of transformers' ElectraConfig."""

    embedding_size: Size = 128


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check(spec, UNSUPPORTED)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    narrow, wide = config.embedding_size, config.hidden_size
    x = embeddings(graph, config, weights, width=narrow)
    if narrow != wide:
        x = linear(graph, x, *dense(weights, "embeddings_project", wide, narrow))
    return encoder(graph, x, config, weights)
