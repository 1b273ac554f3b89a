"""PyTorch's own files of weights, read without PyTorch and without trust.

Since version 1.6 torch.save writes a zip: `data.pkl` describes the tensors and names their storages, which lie beside
it uncompressed, so that they can be mapped. The description is a pickle, a program that may call anything; `opcodes`
reads it without running it (torch/serialization.py and torch/_utils.py are the reference).
"""

import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.model.opcodes import Meaning, Name, Reader

LOCAL_HEADER = 30
"""Bytes of a zip member's own header before its name; the lengths of name and extra field are its last four."""

MOST_BYTES = {"data.pkl": 64 * 1024 * 1024, "byteorder": 16}
"""Of members that are read whole: the description of ten thousand tensors takes two megabytes."""

MOST_REPEATED = 1 << 20
"""Numbers of a tensor that repeats those of its storage: a few bytes of a file shall not fill the memory."""

OLD = b"\x80\x02"
"""How files of PyTorch before 1.6 begin: as a pickle."""


class Pickled(NamedTuple):
    """A tensor of a file: its type, its shape, and its bytes in C order."""

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


class Kind(NamedTuple):
    """A type of numbers, as safetensors calls it, and the bytes of one."""

    dtype: str
    size: int


STORAGES = {
    "torch.FloatStorage": Kind("F32", 4),
    "torch.HalfStorage": Kind("F16", 2),
    "torch.BFloat16Storage": Kind("BF16", 2),
    "torch.DoubleStorage": Kind("F64", 8),
    "torch.LongStorage": Kind("I64", 8),
    "torch.IntStorage": Kind("I32", 4),
    "torch.ShortStorage": Kind("I16", 2),
    "torch.CharStorage": Kind("I8", 1),
    "torch.ByteStorage": Kind("U8", 1),
    "torch.BoolStorage": Kind("BOOL", 1),
}
"""Class of a storage to the type of its numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Numbers of one type, mapped."""

    kind: Kind
    data: NDArray[np.uint8]


def read_pickled(path: Path) -> dict[str, Pickled]:
    """The tensors of a file that torch.save wrote of a dictionary of tensors.

    Raises:
        CorruptFile: It is damaged, or asks for something that tensors do not need.
        UnsupportedModel: It was written by a version before 1.6, or holds something else than tensors by name.
    """
    with path.open("rb") as file:
        old = file.read(len(OLD)) == OLD
    if old:
        raise UnsupportedModel(f"{path}: no zip of torch.save, but older than PyTorch 1.6: convert it to safetensors")
    try:
        with zipfile.ZipFile(path) as archive:
            found = _Archive(path, archive).read()
    except (zipfile.BadZipFile, struct.error, EOFError, LookupError, NotImplementedError, RuntimeError) as error:
        raise CorruptFile(f"{path}: no zip of torch.save ({error}); fetch the model again (vecmill pull)") from error
    if not isinstance(found, dict) or not all(isinstance(one, Pickled) for one in found.values()):
        raise UnsupportedModel(f"{path}: holds no dictionary of tensors")
    return {str(name): tensor for name, tensor in found.items()}


class _Archive:
    """An open file, and the storages in it."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._mapped = np.memmap(path, mode="r", dtype=np.uint8)
        described = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
        if described is None:
            raise CorruptFile(f"{path}: a zip without data.pkl is no file of torch.save")
        self._prefix = described.removesuffix("data.pkl")

    def read(self) -> Any:  # noqa: ANN401 (the caller checks)
        """What data.pkl describes."""
        if f"{self._prefix}byteorder" in self._archive.namelist() and self._whole("byteorder") != b"little":
            raise UnsupportedModel(f"{self._path}: written on a big-endian machine: convert it to safetensors")
        return Reader(self._path, NAMES, self._storage).read(self._whole("data.pkl"))

    def _whole(self, name: str) -> bytes:
        info = self._archive.getinfo(self._prefix + name)
        if info.file_size > MOST_BYTES[name]:
            raise CorruptFile(f"{self._path}: {name} has {info.file_size} bytes, at most {MOST_BYTES[name]} are read")
        return self._archive.read(info)

    def _storage(self, reference: tuple[Any, ...]) -> Storage:
        """The numbers that ("storage", class, key, device, count) refers to."""
        _, name, key, _, count = reference
        if not isinstance(name, Name) or name.text not in STORAGES or not isinstance(key, str):
            raise TypeError("it refers to something that is no storage")
        kind = STORAGES[name.text]
        info = self._archive.getinfo(f"{self._prefix}data/{key}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError("its numbers are compressed")
        at = info.header_offset
        words, extra = struct.unpack("<HH", self._mapped[at + LOCAL_HEADER - 4 : at + LOCAL_HEADER].tobytes())
        data = self._mapped[at + LOCAL_HEADER + words + extra :][: info.file_size]
        if len(data) != info.file_size or count * kind.size > len(data):
            raise ValueError(f"storage {key} has {len(data)} bytes, {count} numbers of {kind.size} bytes are wanted")
        return Storage(kind, data)


def _tensor(storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> Pickled:
    """A view of a storage, whose bytes are copied only where they are not in C order already."""
    size = storage.kind.size
    numbers = storage.data[: len(storage.data) // size * size].view(f"V{size}")
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    count = math.prod(shape)
    if (
        min((offset, *shape, *strides)) < 0
        or count > max(len(numbers), MOST_REPEATED)
        or (count and last >= len(numbers))
    ):
        raise ValueError(f"a tensor of shape {list(shape)} lies outside of its storage")
    if not count:
        return Pickled(storage.kind.dtype, shape, np.empty(0, dtype=np.uint8))
    if strides == _in_order(shape):
        flat = numbers[offset : offset + count]
    else:
        view = np.lib.stride_tricks.as_strided(numbers[offset:], shape, [stride * size for stride in strides])
        flat = np.ascontiguousarray(view).reshape(-1)
    return Pickled(storage.kind.dtype, shape, flat.view(np.uint8))


def _in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of C order, in numbers."""
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


NAMES: dict[str, Meaning | None] = {
    **dict.fromkeys(STORAGES),
    "collections.OrderedDict": lambda _: {},
    "torch._utils._rebuild_tensor_v2": lambda arguments: _tensor(*arguments),
    "torch._utils._rebuild_parameter": lambda arguments: arguments[0],
}
"""All that a pickle may ask for, and what its call means."""
