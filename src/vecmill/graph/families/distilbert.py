"""DistilBERT (Sanh et al., arXiv 1910.01108): half of BERT's layers, no token types, other names.

Reference: transformers, models/distilbert/modeling_distilbert.py.
"""

from typing import Annotated

import msgspec

from vecmill.graph.families import bert
from vecmill.graph.families.bert import WORDS, Names, Size, embeddings, encoder
from vecmill.graph.ops import Graph
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

PREFIXES = ("", "distilbert.", "model.", "0.auto_model.", "bert.")

NAMES = Names(
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    mix="attention.out_lin",
    mix_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    down_norm="output_layer_norm",
)


class Config(msgspec.Struct):
    """What this graph reads of config.json; the default is that of transformers' DistilBertConfig.

    Sinusoidal positions (`sinusoidal_pos_embds`) are in the checkpoint like learned ones.
    """

    vocab_size: Size
    dim: Size
    hidden_dim: Size
    max_position_embeddings: Size
    n_heads: Size
    n_layers: Annotated[int, msgspec.Meta(ge=0)]
    activation: str = "gelu"

    def as_bert(self) -> bert.Config:
        """The same by BERT's names; the norms' epsilon is BERT's default."""
        return bert.Config(
            vocab_size=self.vocab_size,
            hidden_size=self.dim,
            intermediate_size=self.hidden_dim,
            max_position_embeddings=self.max_position_embeddings,
            num_attention_heads=self.n_heads,
            num_hidden_layers=self.n_layers,
            hidden_act=self.activation,
        )


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, dim]; errors are those of BERT."""
    config = msgspec.convert(spec.config, Config).as_bert()
    weights = weights.strip(PREFIXES, WORDS)
    x = embeddings(graph, config, weights, types=False)
    return encoder(graph, x, config, weights, place="transformer.layer", names=NAMES)
