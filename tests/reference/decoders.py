"""Tiny decoders as transformers itself makes and saves them, and what is asked of each family."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from comparison import LEAST_COSINE, MOST_DIFFERENCE
from states import load_transformer

from checkpoints import write_json, write_modules
from tiny_decoders import SIZES, TOKENIZERS, write_tokenizer
from vecmill.engine.base import Batch, load_engine
from vecmill.model.spec import read_spec

CLASSES = {
    "gemma3_text": ("Gemma3TextConfig", "Gemma3TextModel", "Gemma3ForCausalLM"),
    "llama": ("LlamaConfig", "LlamaModel", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralModel", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2Model", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3Model", "Qwen3ForCausalLM"),
}
"""Every family to its classes in transformers: of the config, the model, the language model."""

POOLINGS = ("lasttoken", "mean", "cls")

PROMPTS = {"prompts": {"query": "the cat: ", "long": "do that " * 30}}

TEXTS = [
    "cat",
    "the cat that sat!\n\nThe dog?",
    "Hello, WORLD! 0123 中文 é",
    "  the  dog ",
    "a b c d e f g h " * 9,
    "?",
    "dogs that do",
    "the cat, the dog: " * 2,
    "x",
]
"""Of 1 to more than 40 tokens in each tiny vocabulary."""

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {**LLAMA3, "original_max_position_embeddings": 20},
    {**LLAMA3, "original_max_position_embeddings": 200, "low_freq_factor": 2.0, "high_freq_factor": 3.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False, "beta_fast": 16},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8, "beta_slow": 2, "beta_fast": 2},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 0.5},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.3},
]
"""Every scaling of rotary positions, with every setting that it has."""


def save_decoder(folder: Path, family: str, *, head: bool = False, dtype: str = "float32", **changes: Any) -> Path:
    """What `save_pretrained` writes of a random model; `changes` go into its config, with `head` a language model's."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    size = write_tokenizer(folder, TOKENIZERS[family])
    config, model, language_model = (getattr(transformers, name) for name in CLASSES[family])
    made = config(**{**SIZES, "vocab_size": size, "initializer_range": 0.3, **changes})
    torch.manual_seed(0)
    network = (language_model if head else model)(made)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 1:  # norms and biases, which are 0 or 1 in a fresh model
                parameter.add_(0.3 * torch.randn_like(parameter))
    network.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="20KB" if head else "1GB")
    return folder


def change_config(folder: Path, *absent: str, **changes: Any) -> Path:
    """Change config.json and nothing else."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in config.items() if key not in absent})
    return folder


def assert_same_tokens(folder: Path, lengths: tuple[int, ...] = (1, 2, 5, 6, 7, 19)) -> None:
    """Both programs give the same states of the first and the last token and the same mean, together and alone."""
    write_modules(folder, pooling={"pooling_mode": ["cls", "lasttoken", "mean"]}, normalize=False)
    spec = read_spec(folder)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(0, spec.vocab_size, length).astype(np.int32) for length in (*lengths, 7, spec.max_tokens)]
    wanted = token_states(folder, inputs)
    engine = load_engine("onnx", spec, threads=1)
    together = engine.run(Batch.pack(inputs))
    assert np.array_equal(np.concatenate([engine.run(Batch.pack([ids])) for ids in inputs]), together)
    ours, theirs = (rows.reshape(3 * len(inputs), -1) for rows in (together, wanted))
    lengths_of_both = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    assert float(np.abs(ours - theirs).max()) <= MOST_DIFFERENCE
    assert float((np.sum(ours * theirs, axis=1) / lengths_of_both).min()) >= LEAST_COSINE


def token_states(folder: Path, inputs: list[Any]) -> Any:
    """First, last and mean of transformers' last hidden states of each input alone, float32 [inputs, 3 x width]."""
    import torch

    torch.set_num_threads(1)  # on models this small more threads only wait for each other
    model = load_transformer(folder)
    rows = []
    with torch.no_grad():
        for ids in inputs:
            states = model(torch.tensor(ids[None]).long()).last_hidden_state[0]
            rows.append(torch.cat([states[0], states[-1], states.mean(0)]).numpy())
    return np.stack(rows)


def assert_same_defaults(config: type[msgspec.Struct], family: str) -> None:
    """Each setting that both programs read, and that ours does not demand, has one default."""
    import transformers

    theirs = {field.name: field.default for field in dataclasses.fields(getattr(transformers, CLASSES[family][0]))}
    ours = {field.encode_name: field.default for field in msgspec.structs.fields(config)}
    common = [name for name, value in ours.items() if name in theirs and value is not msgspec.NODEFAULT]
    assert "rms_norm_eps" in common
    assert {name: ours[name] for name in common} == {name: theirs[name] for name in common}
