"""Qwen2 (arXiv 2407.10671) and Qwen3 (arXiv 2505.09388): the decoder of Llama with settings of their own.

Qwen2 has biases on query, key and value; Qwen3 has a norm on each query and key head instead. Upper layers may see a
window only. References: transformers, models/qwen2/modeling_qwen2.py and models/qwen3/modeling_qwen3.py.
"""

from typing import ClassVar

import msgspec

from vecmill.graph.families.bert import Size
from vecmill.graph.families.llama import LOCAL, PREFIXES, WORDS, Rotated, check_decoder, decoder
from vecmill.graph.ops import Graph
from vecmill.model.spec import ModelSpec
from vecmill.model.weights import Weights

__all__ = ["PREFIXES", "WORDS", "states"]


class Qwen2(Rotated, kw_only=True):
    """Defaults are those of transformers' Qwen2Config."""

    num_key_value_heads: Size | None = 32
    use_sliding_window: bool = False
    sliding_window: Size | None = 4096
    max_window_layers: int = 28

    def __post_init__(self) -> None:
        super().__post_init__()
        if LOCAL in (self.layer_types or ()) and not (self.use_sliding_window and self.sliding_window):
            raise ValueError(f"layer_types names {LOCAL}, but no sliding_window is in use")

    @property
    def biases(self) -> frozenset[str]:
        """Query, key and value always have one."""
        return frozenset({"projections"})

    def window(self, layer: int) -> int | None:
        """None unless windows are in use and the layer has one."""
        local = layer >= self.max_window_layers if self.layer_types is None else self.layer_types[layer] == LOCAL
        return self.sliding_window if self.use_sliding_window and local else None


class Qwen3(Qwen2, kw_only=True):
    """Defaults are those of transformers' Qwen3Config."""

    head_dim: Size | None = 128
    attention_bias: bool = False

    head_norms: ClassVar[bool] = True

    @property
    def biases(self) -> frozenset[str]:
        """All of attention or nothing."""
        return frozenset({"projections", "mix"} if self.attention_bias else ())


CONFIGS: dict[str, type[Qwen2]] = {"qwen2": Qwen2, "qwen3": Qwen3}


def states(graph: Graph, spec: ModelSpec, weights: Weights) -> str:
    """Last hidden states, float32 [rows, length, hidden_size]; errors are those of BERT."""
    check_decoder(spec)
    return decoder(graph, spec, msgspec.convert(spec.config, CONFIGS[spec.family]), weights)
