"""MPNet (Song et al., arXiv 2004.09297): BERT without token types, with RoBERTa's positions and T5's relative bias.

Reference: transformers, models/mpnet/modeling_mpnet.py.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.graph.attention import relative_bias
from vecmill.graph.families.bert import WORDS, Config, Names, check, embeddings, encoder
from vecmill.graph.ops import Graph
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "mpnet.", "model.", "0.auto_model.")

BUCKETS = 32
FARTHEST = 128
"""Distance from which on all are in the last bucket of their side."""

UNSUPPORTED = {
    "relative_attention_num_buckets": (BUCKETS, None),
    "pad_token_id": (1, None),
}
"""Settings that transformers' network ignores: it counts positions from 2 and buckets to 32 whatever they say."""

NAMES = Names(
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    mix="attention.attn.o",
    mix_norm="attention.LayerNorm",
)


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check(spec, UNSUPPORTED)
    config = msgspec.convert(spec.config, Config)
    weights = weights.strip(PREFIXES, WORDS)
    x = embeddings(graph, config, weights, first=spec.first_position, types=False)
    biases = weights.array("encoder.relative_attention_bias.weight", BUCKETS, config.num_attention_heads)
    reach = config.max_position_embeddings - spec.first_position - 1
    bias = relative_bias(graph, x, biases[buckets(np.arange(-reach, reach + 1))], reach)
    return encoder(graph, x, config, weights, names=NAMES, bias=bias)


def buckets(distances: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bucket of each distance from query to key.

    Half of them are for keys after the query. In each half the first 8 are a distance each, the others grow with the
    logarithm. In float32, as the checkpoints were trained: distances 16, 32 and 64 fall on a border.
    """
    half, exact = BUCKETS // 2, BUCKETS // 4
    away = np.abs(distances)
    growth = np.log(np.maximum(away, exact).astype(np.float32) / np.float32(exact))
    steps = growth / np.float32(np.log(FARTHEST / exact)) * np.float32(half - exact)
    far = np.minimum(exact + steps.astype(np.int64), half - 1)
    result: NDArray[np.int64] = np.where(distances > 0, half, 0) + np.where(away < exact, away, far)
    return result
