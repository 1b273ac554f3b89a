"""Llama, Mistral, Qwen and Gemma in numpy and float64, from the papers: what compiled graphs are compared with."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints import Tensors

Array = NDArray[np.float64]


def states(ids: NDArray[np.int32], tensors: Tensors, config: dict[str, Any]) -> Array:
    """Last hidden states of one text, float64 [length, width]."""
    gemma = config["model_type"] == "gemma3_text"
    width, dims, length = config["hidden_size"], config["head_dim"], len(ids)
    heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
    scale = config.get("query_pre_attn_scalar", 256) if gemma else dims

    def linear(x: Array, name: str) -> Array:
        product: Array = x @ tensors[f"{name}.weight"].astype(np.float64).T
        return product + tensors[f"{name}.bias"] if f"{name}.bias" in tensors else product

    def norm(x: Array, name: str) -> Array:
        if f"{name}.weight" not in tensors:
            return x
        size = np.sqrt((x**2).mean(-1, keepdims=True) + config.get("rms_norm_eps", 1e-6))
        result: Array = x / size * (tensors[f"{name}.weight"] + float(gemma))
        return result

    def turn(x: Array, theta: float) -> Array:
        angles = np.arange(length)[:, None, None] * theta ** (-np.arange(0, dims, 2) / dims)
        pairs = (x[..., : dims // 2] + 1j * x[..., dims // 2 :]) * np.exp(1j * angles)
        return np.concatenate([pairs.real, pairs.imag], -1)

    def attention(x: Array, at: str, number: int) -> Array:
        query, key, value = (
            linear(x, f"{at}.{name}_proj").reshape(length, count, dims)
            for name, count in (("q", heads), ("k", keys), ("v", keys))
        )
        theta = theta_of(config, number)
        query, key = turn(norm(query, f"{at}.q_norm"), theta), turn(norm(key, f"{at}.k_norm"), theta)
        key, value = (np.repeat(part, heads // keys, 1) for part in (key, value))
        scores = np.einsum("qhd,khd->hqk", query, key) / math.sqrt(scale)
        weights = np.where(seen(length, config, number), np.exp(scores), 0)
        context = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), value)
        return linear(context.reshape(length, -1), f"{at}.o_proj")

    def feed_forward(x: Array, at: str) -> Array:
        return linear(
            activation(linear(x, f"{at}.gate_proj"), gemma=gemma) * linear(x, f"{at}.up_proj"), f"{at}.down_proj"
        )

    x = tensors["embed_tokens.weight"][ids].astype(np.float64) * (math.sqrt(width) if gemma else 1)
    for number in range(config["num_hidden_layers"]):
        at = f"layers.{number}"
        mixed = attention(norm(x, f"{at}.input_layernorm"), f"{at}.self_attn", number)
        x = x + (norm(mixed, f"{at}.post_attention_layernorm") if gemma else mixed)
        before = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
        fed = feed_forward(norm(x, f"{at}.{before}"), f"{at}.mlp")
        x = x + (norm(fed, f"{at}.post_feedforward_layernorm") if gemma else fed)
    return norm(x, "norm")


def activation(x: Array, *, gemma: bool) -> Array:
    """SiLU, or for Gemma the GELU by tanh."""
    if gemma:
        curve: Array = x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
        return curve
    gate: Array = x / (1 + np.exp(-x))
    return gate


def window_of(config: dict[str, Any], number: int) -> int | None:
    """The window of a layer; None where it sees everything."""
    kinds = config.get("layer_types")
    family = config["model_type"]
    if family == "gemma3_text":
        local = kinds[number] == "sliding_attention" if kinds else (number + 1) % 6 != 0
    elif family in {"qwen2", "qwen3"}:
        local = kinds[number] == "sliding_attention" if kinds else number >= config.get("max_window_layers", 28)
        local = local and config.get("use_sliding_window", False)
    else:
        local = family == "mistral"
    return config.get("sliding_window", 4096) if local else None


def theta_of(config: dict[str, Any], number: int) -> float:
    """The base of a layer's rotation."""
    if config["model_type"] != "gemma3_text":
        return float(config.get("rope_theta", 1e4))
    local = window_of(config, number) is not None
    return float(config.get("rope_local_base_freq", 1e4) if local else config.get("rope_theta", 1e6))


def seen(length: int, config: dict[str, Any], number: int) -> NDArray[np.bool_]:
    """Which key [column] a query [row] sees in a layer."""
    ahead: NDArray[np.int64] = np.arange(length) - np.arange(length)[:, None]
    window = window_of(config, number) or 2 * length
    both, half = not config.get("is_causal", True), config.get("use_bidirectional_attention")
    first, last = (-window // 2, window // 2) if half else (-window, window) if both else (1 - window, 0)
    visible: NDArray[np.bool_] = (ahead >= first) & (ahead <= last)
    return visible
