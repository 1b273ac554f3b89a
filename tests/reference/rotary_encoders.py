"""Tiny encoders with rotary or ALiBi positions, and what is asked of each of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from checkpoints import VOCABULARY, Tensors, random_tensor, write_json, write_tokenizer
from vecmill.engine.base import Batch, load_engine
from vecmill.errors import CorruptFile, LoadError, MissingFile
from vecmill.model.spec import read_spec

Shapes = dict[str, tuple[int, ...]]
Config = dict[str, Any]

SIZES: Config = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}

PROMPTS = {"prompts": {"query": "query : ", "long": "a b c " * 30}}


def random_tensors(shapes: Shapes, seed: int = 0) -> Tensors:
    """Random weights; scales of norms are about 1."""
    rng = np.random.default_rng(seed)
    return {name: random_tensor(rng, shape) + _is_scale(name, shape) for name, shape in shapes.items()}


def _is_scale(name: str, shape: tuple[int, ...]) -> np.float32:
    return np.float32(len(shape) == 1 and name.endswith("weight"))


def write_encoder(folder: Path, config: Config, tensors: Tensors) -> Path:
    """A bare transformer: config, weights, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors")
    write_tokenizer(folder, max_tokens=config.get("max_position_embeddings") or config["n_positions"])
    return folder


def change_config(folder: Path, *absent: str, **changes: Any) -> Path:
    """Change config.json and nothing else."""
    config = json.loads((folder / "config.json").read_text()) | changes
    write_json(folder / "config.json", {key: value for key, value in config.items() if key not in absent})
    return folder


def rows(folder: Path, texts: list[NDArray[np.int32]]) -> NDArray[np.float32]:
    """The rows of token ids, run together."""
    return load_engine("onnx", read_spec(folder), threads=1).run(Batch.pack(texts))


def random_ids(*lengths: int) -> list[NDArray[np.int32]]:
    """Texts of these lengths."""
    rng = np.random.default_rng(len(lengths))
    return [rng.integers(0, len(VOCABULARY), length).astype(np.int32) for length in lengths]


def assert_bytes_do_not_depend_on_mates(folder: Path) -> None:
    """A row has the same bytes alone and in a batch, at lengths from 1 to the limit."""
    spec = read_spec(folder)
    engine = load_engine("onnx", spec, threads=2)
    rng = np.random.default_rng(0)
    for length in sorted({1, 2, 7, 16, 33, spec.max_tokens}):
        texts = list(rng.integers(0, spec.vocab_size, (9, length)).astype(np.int32))
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in texts])
        for size in (2, 3, 9):
            assert np.array_equal(engine.run(Batch.pack(texts[:size])), alone[:size]), (length, size)


def assert_each_tensor_is_checked(folder: Path) -> None:
    """A tensor that is missing or of another shape is named."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        save_file({other: kept for other, kept in tensors.items() if other != name}, path)
        assert_refused(folder, MissingFile, f"no tensor {name!r}")
        save_file({**tensors, name: np.concatenate([tensor, tensor[:1]])}, path)
        assert_refused(folder, CorruptFile, f"the config wants {list(tensor.shape)}")
    save_file(tensors, path)


def assert_refused(folder: Path, error: type[LoadError], message: str) -> None:
    """Loading the folder raises exactly that error, with this in its message."""
    with pytest.raises(LoadError) as caught:
        load_engine("onnx", read_spec(folder), threads=1)
    assert type(caught.value) is error
    assert message in str(caught.value)
