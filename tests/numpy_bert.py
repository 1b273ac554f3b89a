"""BERT in numpy and float64, written from the paper (arXiv 1810.04805): what the compiled graph is compared with."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints import Tensors

Array = NDArray[np.float64]

erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def states(ids: NDArray[np.int32], tensors: Tensors, config: dict[str, Any]) -> Array:
    """Last hidden states of one text, float64 [length, width]."""

    def linear(x: Array, name: str) -> Array:
        result: Array = x @ tensors[f"{name}.weight"].astype(np.float64).T + tensors[f"{name}.bias"]
        return result

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        result: Array = centred / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]
        return result

    def attention(x: Array, name: str) -> Array:
        heads = config["num_attention_heads"]
        query, key, value = (
            linear(x, f"{name}.{part}").reshape(len(x), heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1]))
        result: Array = (scores / scores.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(x.shape)
        return result

    kinds = ("word", "position", "token_type")
    words, places, types = (tensors[f"embeddings.{kind}_embeddings.weight"] for kind in kinds)
    x = norm((words[ids] + places[: len(ids)] + types[0]).astype(np.float64), "embeddings.LayerNorm")
    for number in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{number}"
        context = attention(x, f"{at}.attention.self")
        x = norm(x + linear(context, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        hidden = ACTIVATIONS[config["hidden_act"]](linear(x, f"{at}.intermediate.dense"))
        x = norm(x + linear(hidden, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    return x
