"""PyTorch's own files of weights, read without PyTorch and without trust.

Since version 1.6 torch.save writes a zip: `data.pkl` describes the tensors and names their storages, which lie beside
it uncompressed, so that they can be mapped. The description is a pickle, which may call anything; this reader lets it
call the few things that tensors need and nothing else (torch/serialization.py and torch/_utils.py are the reference).
"""

import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import CorruptFile, UnsupportedModel

LOCAL_HEADER = 30
"""Bytes of a zip member's own header before its name; the lengths of name and extra field are its last four."""

STORAGES = {
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "DoubleStorage": ("F64", 8),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}
"""Class of a storage to the type of its numbers, as safetensors calls it, and their bytes."""

_DAMAGE = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, struct.error, EOFError, LookupError, TypeError, ValueError),
    *(AttributeError, OverflowError, MemoryError, RecursionError),
)


class Pickled(NamedTuple):
    """A tensor of a file: its type, its shape, and its bytes in C order."""

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of storages, by which the pickle names the type of numbers."""

    dtype: str
    size: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers of one type, mapped."""

    kind: Kind
    data: NDArray[np.uint8]


def read_pickled(path: Path) -> dict[str, Pickled]:
    """The tensors of a file that torch.save wrote of a dictionary of tensors.

    Raises:
        CorruptFile: It is damaged, or asks to run something that tensors do not need.
        UnsupportedModel: It was written by a version before 1.6, or holds something else than tensors by name.
    """
    if not zipfile.is_zipfile(path):
        raise UnsupportedModel(f"{path}: no zip of torch.save (older than PyTorch 1.6?): convert it to safetensors")
    try:
        with zipfile.ZipFile(path) as archive:
            described = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            reader = _Reader(path, archive, described.removesuffix("data.pkl"))
            with archive.open(described) as file:
                found = _Unpickler(file, reader).load()
    except StopIteration:
        raise CorruptFile(f"{path}: a zip without data.pkl is no file of torch.save") from None
    except _DAMAGE as error:
        raise CorruptFile(f"{path}: not readable as weights ({error})") from error
    if not isinstance(found, dict) or not all(isinstance(one, Pickled) for one in found.values()):
        raise UnsupportedModel(f"{path}: holds no dictionary of tensors")
    return {str(name): tensor for name, tensor in found.items()}


class _Reader:
    """The storages of an open file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, prefix: str) -> None:
        self._mapped = np.memmap(path, mode="r", dtype=np.uint8)
        self._archive = archive
        self._prefix = prefix
        order = f"{prefix}byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise UnsupportedModel(f"{path}: written on a big-endian machine: convert it to safetensors")

    def storage(self, kind: Kind, key: str, count: int) -> Storage:
        """The numbers of one storage."""
        info = self._archive.getinfo(f"{self._prefix}data/{key}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError("its numbers are compressed")
        at = info.header_offset
        name, extra = struct.unpack("<HH", self._mapped[at + LOCAL_HEADER - 4 : at + LOCAL_HEADER].tobytes())
        start = at + LOCAL_HEADER + name + extra
        data = self._mapped[start : start + info.file_size]
        if len(data) != info.file_size or count * kind.size > len(data):
            raise ValueError(f"storage {key} has {len(data)} bytes, {count} numbers of {kind.size} bytes are wanted")
        return Storage(kind, data)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, reader: _Reader) -> None:  # noqa: ANN401 (zipfile's own type of file)
        super().__init__(file)
        self._reader = reader

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 (pickle's own signature)
        """What the pickle may name."""
        if module == "torch" and name in STORAGES:
            return Kind(*STORAGES[name])
        allowed = ALLOWED.get((module, name))
        if allowed is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which weights do not need: nothing was run")
        return allowed

    def persistent_load(self, pid: Any) -> Storage:  # noqa: ANN401 (pickle's own signature)
        """A storage by its key."""
        tag, kind, key, _, count = pid
        if tag != "storage" or not isinstance(kind, Kind):
            raise pickle.UnpicklingError(f"it refers to {tag!r}, not to a storage")
        return self._reader.storage(kind, str(key), int(count))


def _tensor(storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> Pickled:
    """A view of a storage, whose bytes are copied only where they are not in C order already."""
    size = storage.kind.size
    numbers = storage.data[: len(storage.data) // size * size].view(f"V{size}")
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    count = math.prod(int(length) for length in shape)
    if min((offset, *shape, *strides)) < 0 or (count and last >= len(numbers)):
        raise ValueError(f"a tensor of shape {list(shape)} lies outside of its storage")
    if not count:
        return Pickled(storage.kind.dtype, tuple(shape), np.empty(0, dtype=np.uint8))
    if strides == _in_order(shape):
        flat = numbers[offset : offset + count]
    else:
        view = np.lib.stride_tricks.as_strided(numbers[offset:], shape, [stride * size for stride in strides])
        flat = np.ascontiguousarray(view).reshape(-1)
    return Pickled(storage.kind.dtype, tuple(shape), flat.view(np.uint8))


def _in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of C order, in numbers."""
    return tuple(math.prod(int(length) for length in shape[place + 1 :]) for place in range(len(shape)))


def _parameter(data: Pickled, *_: object) -> Pickled:
    return data


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
}
"""All that a pickle may call."""
