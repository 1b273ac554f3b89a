"""A checkpoint's tensors as memory-mapped arrays: pages are read when touched and shared between processes.

The safetensors library copies every tensor into anonymous memory when asked for numpy arrays (a 90 MB model costs 90 MB
more) and gives no bfloat16. The format is small: 8 bytes of header length (little-endian), a JSON header of
{name: {dtype, shape, data_offsets}}, then the data (https://huggingface.co/docs/safetensors).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.pickled import read_pickled

STORED: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F64": np.dtype("<f8"),
}
"""Types that weights may be stored in; tensors of other types (position ids, counters) are no weights."""

NUMBERS: dict[str, np.dtype[Any]] = STORED | {
    "I8": np.dtype("i1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
"""Types of tables that are looked up, not multiplied."""

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8} | {
    name: dtype.itemsize for name, dtype in STORED.items()
}


class Entry(msgspec.Struct):
    """One row of a safetensors header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies: its file, and its bytes as a view of the mapped file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


class Weights(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name, from one file or many.

    Args:
        tensors: Name to tensor.
        folder: Where they come from, for messages.
    """

    def __init__(self, tensors: dict[str, Tensor], folder: Path) -> None:
        self._tensors = tensors
        self._folder = folder

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def array(self, name: str, *shape: int) -> NDArray[np.float32]:
        """The tensor as float32 of this shape; a view of the file where it is stored as float32.

        Raises:
            MissingFile: There is no such tensor.
            CorruptFile: Its shape is another.
        """
        tensor = self._tensors.get(name)
        if tensor is None:
            raise MissingFile(f"{self._folder}: the checkpoint has no tensor {name!r} (it holds {len(self)} tensors)")
        if tensor.shape != shape:
            raise CorruptFile(f"{tensor.path}: {name!r} has shape {list(tensor.shape)}, the config wants {list(shape)}")
        return _float32(tensor)

    def stored(self, name: str) -> NDArray[Any]:
        """The tensor of that name, which is there, in the type and shape that it is stored in; bfloat16 as float32.

        Raises:
            UnsupportedModel: It is of another type than those of `NUMBERS`.
        """
        tensor = self._tensors[name]
        dtype = NUMBERS.get(tensor.dtype)
        if dtype is None:
            raise UnsupportedModel(f"{tensor.path}: {name!r} of type {tensor.dtype}; supported: {', '.join(NUMBERS)}")
        if tensor.dtype == "BF16":
            return _float32(tensor)
        return np.require(tensor.data.view(dtype).reshape(tensor.shape), dtype, ["A", "E"])

    def strip(self, prefixes: tuple[str, ...], probe: str) -> "Weights":
        """The same tensors without the prefix under which `probe` is found, so that families use short names."""
        for prefix in prefixes:
            if prefix + probe in self._tensors:
                kept = {name.removeprefix(prefix): t for name, t in self._tensors.items() if name.startswith(prefix)}
                return Weights(kept, self._folder)
        raise MissingFile(f"{self._folder}: the checkpoint has no tensor {probe!r}, with or without a known prefix")


def _float32(tensor: Tensor) -> NDArray[np.float32]:
    dtype = STORED.get(tensor.dtype)
    if dtype is None:
        raise UnsupportedModel(f"{tensor.path}: weights of type {tensor.dtype}; supported: {', '.join(STORED)}")
    values: NDArray[Any] = tensor.data.view(dtype).reshape(tensor.shape)
    if tensor.dtype == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    # Files of other writers need not start their data at a multiple of 4; the engine wants whole words.
    result: NDArray[np.float32] = np.require(values, np.float32, "A")
    return result


def read_weights(folder: Path) -> Weights:
    """Map the checkpoint of a folder: safetensors, else PyTorch's own file; whole, or the shards that its index names.

    Raises:
        MissingFile: There is neither, or a shard is absent.
        CorruptFile: A file is truncated or damaged.
        UnsupportedModel: A file of PyTorch is of another kind than weights.
    """
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        tensors |= read_safetensors(path) if path.suffix == ".safetensors" else read_torch(path)
    return Weights(tensors, folder)


def read_torch(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of PyTorch; errors are those of `read_pickled`."""
    return {name: Tensor(path, *tensor) for name, tensor in read_pickled(path).items()}


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights, whole or in shards."""
    return any((folder / name).is_file() for pair in NAMES for name in pair)


NAMES = (
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
"""What weights, and the index of their shards, are called; the first that is there counts."""


def _files(folder: Path) -> list[Path]:
    for single, index in NAMES:
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            return _shards(folder / index)
    found = sorted(path.name for path in folder.glob("*") if path.suffix in {".bin", ".onnx", ".gguf", ".h5", ".pt"})
    hint = f"; found {', '.join(found)}: convert to safetensors" if found else ""
    raise MissingFile(f"{folder}: no model.safetensors{hint}")


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(msgspec.json.decode(index.read_bytes())["weight_map"].values()))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"{index}: no index of shards ({error})") from error
    shards = [index.parent / Path(str(name)).name for name in names]
    absent = [path.name for path in shards if not path.is_file()]
    if absent:
        count = f"{len(absent)} of {len(shards)}"
        raise MissingFile(f"{index.parent}: {count} shards are absent: {', '.join(absent)}")
    return shards


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, mapped.

    Raises:
        CorruptFile: It is truncated or its header makes no sense.
    """
    size = path.stat().st_size
    if size < 8:
        raise CorruptFile(f"{path}: {size} bytes is no safetensors file; {_AGAIN}")
    mapped = np.memmap(path, mode="r", dtype=np.uint8)
    length = int(mapped[:8].view("<u8")[0])
    if length > size - 8:
        raise CorruptFile(f"{path}: truncated or no safetensors file (a header of {length} bytes in {size}); {_AGAIN}")
    try:
        header: dict[str, Any] = msgspec.json.decode(mapped[8 : 8 + length].tobytes())
        entries = msgspec.convert({k: v for k, v in header.items() if k != "__metadata__"}, dict[str, Entry])
    except (msgspec.DecodeError, AttributeError) as error:
        raise CorruptFile(f"{path}: the safetensors header does not parse ({error}); {_AGAIN}") from error
    data = mapped[8 + length :]
    wanted = max((entry.data_offsets[1] for entry in entries.values()), default=0)
    if wanted != len(data):
        raise CorruptFile(f"{path}: {len(data)} bytes of data, the header wants {wanted}; {_AGAIN}")
    return {name: _tensor(path, name, entry, data) for name, entry in entries.items()}


def _tensor(path: Path, name: str, entry: Entry, data: NDArray[np.uint8]) -> Tensor:
    start, end = entry.data_offsets
    count = math.prod(entry.shape)
    if not 0 <= start <= end <= len(data) or SIZES.get(entry.dtype, 0) * count not in (0, end - start):
        raise CorruptFile(f"{path}: {name!r} of shape {entry.shape} {entry.dtype} cannot fill bytes {start} to {end}")
    return Tensor(path, entry.dtype, tuple(entry.shape), data[start:end])


_AGAIN = "delete it and fetch the model again (vecmill pull)"
