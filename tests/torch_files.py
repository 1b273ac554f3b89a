"""Files as torch.save writes them, without torch: a zip of a pickle, made opcode by opcode, and of storages."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = {"float32": "FloatStorage", "float16": "HalfStorage", "float64": "DoubleStorage", "int64": "LongStorage"}


def write_torch(path: Path, tensors: dict[str, NDArray[np.generic]]) -> Path:
    """A dictionary of tensors; arrays that are views of another keep their strides."""
    storages: list[bytes] = []
    items = b""
    for name, array in tensors.items():
        base = array if array.base is None else np.asarray(array.base)
        storages.append(base.tobytes())
        offset = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // array.itemsize
        strides = [stride // array.itemsize for stride in array.strides]
        kind, key = CLASSES[array.dtype.name], str(len(storages) - 1)
        items += text(name) + tensor(kind, key, base.size, offset, list(array.shape), strides) + pickle.SETITEM
    return write_zip(path, pickle.PROTO + b"\2" + pickle.EMPTY_DICT + items + pickle.STOP, storages)


def write_zip(path: Path, description: bytes, storages: list[bytes], *, method: int = zipfile.ZIP_STORED) -> Path:
    """The zip around a pickle and its storages."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", description)
        archive.writestr("archive/byteorder", "little")
        for number, data in enumerate(storages):
            archive.writestr(f"archive/data/{number}", data)
    return path


def tensor(kind: str, key: str, count: int, offset: int, shape: list[int], strides: list[int]) -> bytes:
    """A call of torch._utils._rebuild_tensor_v2."""
    parts = [text("storage"), name_of("torch", kind), text(key), text("cpu"), number(count)]
    storage = pickle.MARK + b"".join(parts) + pickle.TUPLE + pickle.BINPERSID
    hooks = name_of("collections", "OrderedDict") + pickle.EMPTY_TUPLE + pickle.REDUCE
    arguments = storage + number(offset) + numbers(shape) + numbers(strides) + pickle.NEWFALSE + hooks
    call = name_of("torch._utils", "_rebuild_tensor_v2") + pickle.MARK + arguments + pickle.TUPLE
    return call + pickle.REDUCE


def name_of(module: str, name: str) -> bytes:
    """A reference to something by its name."""
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def text(value: str) -> bytes:
    """A string."""
    data = value.encode()
    return pickle.BINUNICODE + len(data).to_bytes(4, "little") + data


def number(value: int) -> bytes:
    """A whole number."""
    return pickle.BININT + value.to_bytes(4, "little", signed=True)


def numbers(values: list[int]) -> bytes:
    """A tuple of whole numbers."""
    return pickle.MARK + b"".join(map(number, values)) + pickle.TUPLE
