"""Static models: a vector for each token and nothing else, read from the files of two libraries.

sentence-transformers 6 has a module `StaticEmbedding` in modules.json, with tokenizer.json and a table
`embedding.weight` in its folder (modules/static_embedding.py). model2vec 0.10 has a bare folder with a table
`embeddings`, perhaps a `mapping` from tokens to rows and `weights` of tokens (model2vec/model.py). Where modules.json
names the chain it decides, also for a table of model2vec's.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.jsonfile import read_json
from vecmill.model.weights import Weights, read_weights

STATIC = "static"
"""The family of these models."""

MODULE = "StaticEmbedding"

MAX_TOKENS = 100_000
"""Most tokens of an input where the files state none: a book. Beyond it one input would hold up all others."""

TABLES = ("embedding.weight", "embeddings")
"""What the table is called by sentence-transformers and by model2vec."""

WIDENED = {np.dtype(np.float64): np.float32}
"""Types that are converted when they are read; others stay as the file has them."""


@dataclass(frozen=True, slots=True)
class Table:
    """Vectors of tokens: token t has values[index[t]] * scale[t].

    Attributes:
        values: float32, float16 or int8 [rows, dims], as stored; a view of the file.
        index: The row of each token, integers [tokens]; None where it is the token's id.
        scale: What each token's vector is multiplied by, float32 [tokens]; None is 1.
    """

    values: NDArray[Any]
    index: NDArray[Any] | None = None
    scale: NDArray[np.float32] | None = None

    @property
    def tokens(self) -> int:
        """How many tokens have a vector."""
        return len(self.values if self.index is None else self.index)

    @property
    def dims(self) -> int:
        """Numbers of a vector."""
        return int(self.values.shape[1])

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return sum(array.nbytes for array in (self.values, self.index, self.scale) if array is not None)


def find_static(folder: Path, modules: list[tuple[str, str]]) -> Path | None:
    """Where the table and the tokenizer of a static model lie; None where the model is no static one.

    Args:
        folder: The checkpoint.
        modules: Its chain, as `vecmill.model.modules.read_modules` gives it.
    """
    kind, place = modules[0]
    if kind == MODULE:
        return folder / place
    bare = not (folder / "modules.json").is_file()
    return folder if bare and _is_model2vec(read_json(folder / "config.json", optional=True)) else None


def read_table(folder: Path) -> Table:
    """Map the table of a static model.

    Raises:
        MissingFile: There is no model.safetensors, or no table in it.
        CorruptFile: Its parts do not fit each other.
    """
    weights = read_weights(folder)
    name = next((name for name in TABLES if name in weights), None)
    if name is None:
        raise MissingFile(f"{folder}: the checkpoint has no table; looked for {' and '.join(TABLES)}")
    values, index, scale = (_read(weights, key) for key in (name, "mapping", "weights"))
    table = Table(values, index, None if scale is None else scale.astype(np.float32))  # type: ignore[arg-type]  # found
    _check(table, folder, name)
    return table


def read_limit(folder: Path, config: dict[str, Any], *, by_chain: bool) -> int:
    """Most tokens of an input.

    Args:
        folder: Where tokenizer.json is.
        config: config.json.
        by_chain: modules.json decides; sentence-transformers then heeds what tokenizer.json says of truncation, while
            model2vec heeds config.json alone.

    Raises:
        UnsupportedModel: The tokenizer cuts on the left.
    """
    truncation = read_json(folder / "tokenizer.json").get("truncation") or {} if by_chain else {}
    if truncation.get("direction", "Right") != "Right":
        raise UnsupportedModel(f"{folder / 'tokenizer.json'}: truncation on the left is not supported")
    stated = truncation.get("max_length") if by_chain else config.get("max_length")
    return min(stated, MAX_TOKENS) if isinstance(stated, int) and stated > 0 else MAX_TOKENS


def _is_model2vec(config: dict[str, Any]) -> bool:
    """Some of its versions write no model_type."""
    if "model_type" in config:
        return bool(config["model_type"] == "model2vec")
    return "embedding_dtype" in config or "normalize" in config


def _read(weights: Weights, name: str) -> NDArray[Any] | None:
    if name not in weights:
        return None
    array = weights.stored(name)
    return array.astype(WIDENED[array.dtype]) if array.dtype in WIDENED else array


def _check(table: Table, folder: Path, name: str) -> None:
    if table.values.ndim != 2:
        raise CorruptFile(f"{folder}: {name!r} has shape {list(table.values.shape)}, rows of vectors are needed")
    index, scale = table.index, table.scale
    if index is not None and not (index.ndim == 1 and index.min() >= 0 and index.max() < len(table.values)):
        raise CorruptFile(f"{folder}: 'mapping' leads to rows that the table of {len(table.values)} has not")
    if scale is not None and scale.shape != (table.tokens,):
        raise CorruptFile(f"{folder}: 'weights' has shape {list(scale.shape)}, there are {table.tokens} tokens")
