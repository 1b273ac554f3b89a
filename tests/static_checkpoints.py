"""Tiny static models in the layouts of the libraries that write them."""

from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from safetensors.numpy import save_file

from checkpoints import VOCABULARY, write_json, write_tokenizer

DIMS = 16
TABLE: NDArray[np.float32] = np.random.default_rng(4).normal(0, 1, (len(VOCABULARY), DIMS)).astype(np.float32)
UNKNOWN = VOCABULARY["[UNK]"]


def write_static(
    folder: Path,
    *,
    place: str = "0_StaticEmbedding",
    tensors: dict[str, Any] | None = None,
    modules: tuple[str, ...] = ("Normalize",),
    truncation: int | None = 40,
) -> Path:
    """What sentence-transformers writes: a table in the folder of the first module, no config.json."""
    write_table(folder / place, tensors or {"embedding.weight": TABLE}, truncation)
    chain = [("StaticEmbedding", place), *((kind, f"{number}_{kind}") for number, kind in enumerate(modules, 1))]
    rows = [
        {"name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(chain)
    ]
    write_json(folder / "modules.json", rows)
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "query : "}})
    return folder


def write_model2vec(folder: Path, *, tensors: dict[str, Any] | None = None, **config: Any) -> Path:
    """What model2vec writes, less its modules.json."""
    write_table(folder, tensors or {"embeddings": TABLE}, None)
    write_json(folder / "config.json", config or {"model_type": "model2vec", "normalize": True})
    return folder


def write_table(folder: Path, tensors: dict[str, Any], truncation: int | None) -> None:
    """The table and a tokenizer whose frame of special tokens nobody may use."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    write_tokenizer(folder)
    (folder / "tokenizer_config.json").unlink()
    native = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    if truncation:
        native.enable_truncation(truncation)
    native.save(str(folder / "tokenizer.json"))
