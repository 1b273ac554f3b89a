"""Safetensors files: what is read, without a copy, and what is said of files that are damaged."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.model.weights import read_weights

HEADER = {"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
DATA = np.arange(6, dtype="<f4").tobytes()


def safetensors(header: object, data: bytes = DATA, length: int | None = None) -> bytes:
    """A file as the format has it; `length` is what it says of its header, if not the truth."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def write(folder: Path, content: bytes, name: str = "model.safetensors") -> Path:
    """The folder, with these bytes in its weights."""
    (folder / name).write_bytes(content)
    return folder


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    """Every tensor of a file of the safetensors library is found with its values; metadata is none."""
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in (("a", (3, 4)), ("b.c", (7,)))}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    weights = read_weights(tmp_path)
    assert (set(weights), len(weights)) == ({"a", "b.c"}, 2)
    for name, tensor in tensors.items():
        assert np.array_equal(weights.array(name, *tensor.shape), tensor)


def test_float32_is_not_copied(tmp_path: Path) -> None:
    """A float32 tensor is a view of the mapped file: two readings share no page of memory of their own."""
    save_file({"x": np.arange(6, dtype=np.float32).reshape(2, 3)}, tmp_path / "model.safetensors")
    array = read_weights(tmp_path).array("x", 2, 3)
    mapped = origin(array)
    assert isinstance(mapped, np.memmap)
    assert np.shares_memory(array, mapped)
    assert (mapped.mode, array.flags.writeable) == ("r", False)


def test_data_at_an_odd_place(tmp_path: Path) -> None:
    """Data that does not begin at a multiple of 4, as files of other writers may, is read right and aligned."""
    for padding in range(4):
        text = json.dumps(HEADER).encode()
        array = read_weights(write(tmp_path, safetensors(text + b" " * padding))).array("x", 2, 3)
        assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert array.flags.aligned


def test_float16(tmp_path: Path) -> None:
    """Every float16, subnormal, infinite or none, has the same value as float32."""
    values = np.arange(2**16, dtype=np.uint16).view(np.float16)
    save_file({"x": values}, tmp_path / "model.safetensors")
    array = read_weights(tmp_path).array("x", 2**16)
    assert array.dtype == np.float32
    assert np.array_equal(array, values.astype(np.float64), equal_nan=True)


def test_float64(tmp_path: Path) -> None:
    """Weights in float64 are rounded to float32."""
    values = np.random.default_rng(0).normal(size=(3, 5))
    save_file({"x": values}, tmp_path / "model.safetensors")
    assert np.array_equal(read_weights(tmp_path).array("x", 3, 5), values.astype(np.float32))


def test_bfloat16(tmp_path: Path) -> None:
    """Every bfloat16 is the float32 whose upper half it is."""
    bits = np.arange(2**16, dtype="<u2")
    header = {"x": {"dtype": "BF16", "shape": [2**16], "data_offsets": [0, 2**17]}}
    array = read_weights(write(tmp_path, safetensors(header, bits.tobytes()))).array("x", 2**16)
    assert array.dtype == np.float32
    assert np.array_equal(array.view(np.uint32), bits.astype(np.uint32) << 16)
    assert array[0x3F80] == 1
    assert array[0xC049] == -3.140625


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_])
def test_another_type(tmp_path: Path, dtype: type[Any]) -> None:
    """A tensor of another type may lie in the file, but is no weight."""
    save_file({"x": np.ones(4, dtype=dtype), "y": np.ones(2, dtype=np.float32)}, tmp_path / "model.safetensors")
    weights = read_weights(tmp_path)
    assert weights.array("y", 2).tolist() == [1, 1]
    assert_refused(lambda: weights.array("x", 4), UnsupportedModel, "supported: F32, F16, BF16, F64")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "int32", "int64"])
def test_as_stored(tmp_path: Path, dtype: str) -> None:
    """A table is given in the type that the file has, from wherever in the file it lies."""
    array = np.arange(6).reshape(2, 3).astype(dtype)
    save_file({"a": np.ones(1, dtype=np.int8), "x": array}, tmp_path / "model.safetensors")
    stored = read_weights(tmp_path).stored("x")
    assert (stored.dtype, stored.flags.aligned) == (array.dtype, True)
    assert np.array_equal(stored, array)


def test_bfloat16_as_stored(tmp_path: Path) -> None:
    """Where numpy has no type, as for bfloat16, a table is given in float32."""
    header = {"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    write(tmp_path, safetensors(header, np.array([0x3F80, 0xC000], dtype="<u2").tobytes()))
    stored = read_weights(tmp_path).stored("x")
    assert (stored.dtype, stored.tolist()) == (np.dtype(np.float32), [1.0, -2.0])


def test_a_tensor_that_is_missing(tmp_path: Path) -> None:
    """A tensor that is not there is named."""
    weights = read_weights(write(tmp_path, safetensors(HEADER)))
    assert_refused(lambda: weights.array("y", 2), MissingFile, "no tensor 'y' (it holds 1 tensors)")


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 3, 1), (2, 4)])
def test_another_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A tensor of another shape is named with both, even where the count of numbers agrees."""
    weights = read_weights(write(tmp_path, safetensors(HEADER)))
    assert_refused(
        lambda: weights.array("x", *shape), CorruptFile, f"'x' has shape [2, 3], the config wants {list(shape)}"
    )


@pytest.mark.parametrize("prefix", ["", "bert.", "model."])
def test_strip(tmp_path: Path, prefix: str) -> None:
    """Tensors are known without the prefix under which one of them is found; those without it are left out."""
    one = np.ones(2, dtype=np.float32)
    save_file({f"{prefix}a": one, f"{prefix}b": one, "other.c": one}, tmp_path / "model.safetensors")
    stripped = read_weights(tmp_path).strip(("", "bert.", "model."), "a")
    assert set(stripped) == ({"a", "b"} if prefix else {"a", "b", "other.c"})


def test_strip_finds_nothing(tmp_path: Path) -> None:
    """A checkpoint without that tensor under any prefix is of another kind."""
    weights = read_weights(write(tmp_path, safetensors(HEADER)))
    assert_refused(lambda: weights.strip(("", "bert."), "a"), MissingFile, "no tensor 'a', with or without a known")


@pytest.mark.parametrize("kept", [0, 7, 8, 20, -1])
def test_truncated(tmp_path: Path, kept: int) -> None:
    """A file cut anywhere, in its length, its header or its data, is refused with what to do."""
    write(tmp_path, safetensors(HEADER)[:kept])
    assert_refused(lambda: read_weights(tmp_path), CorruptFile, "delete it and fetch the model again")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (safetensors(HEADER, length=10**6), "a header of 1000000 bytes"),
        (safetensors(HEADER, length=2**64 - 1), "a header of 18446744073709551615 bytes"),
        (safetensors(HEADER, length=3), "the safetensors header does not parse"),
        (safetensors(b"{'x': 1}"), "the safetensors header does not parse"),
        (safetensors([]), "the safetensors header does not parse"),
        (safetensors({"x": {"dtype": "F32", "shape": [6]}}), "the safetensors header does not parse"),
        (safetensors({"x": HEADER["x"] | {"shape": "6"}}), "the safetensors header does not parse"),
        (safetensors(HEADER, DATA[:-4]), "20 bytes of data, the header wants 24"),
        (safetensors(HEADER, DATA + b"\0"), "25 bytes of data, the header wants 24"),
        (safetensors({"x": HEADER["x"] | {"shape": [2, 2]}}), "'x' of shape [2, 2] F32 cannot fill bytes 0 to 24"),
        (safetensors({"x": HEADER["x"] | {"dtype": "F16"}}), "'x' of shape [2, 3] F16 cannot fill bytes 0 to 24"),
        (safetensors({"x": HEADER["x"] | {"data_offsets": [24, 0]}}, b""), "cannot fill bytes 24 to 0"),
        (safetensors({"x": HEADER["x"] | {"data_offsets": [-24, 0]}}, b""), "cannot fill bytes -24 to 0"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "no safetensors file"),
        (b"<!DOCTYPE html><html></html>", "no safetensors file"),
    ],
)
def test_damaged(tmp_path: Path, content: bytes, message: str) -> None:
    """A file that is not what its name says is refused with what is wrong and where."""
    write(tmp_path, content)
    assert_refused(lambda: read_weights(tmp_path), CorruptFile, message)
    assert_refused(lambda: read_weights(tmp_path), CorruptFile, str(tmp_path / "model.safetensors"))


def test_shards(tmp_path: Path) -> None:
    """A checkpoint in several files is one."""
    write_shards(tmp_path, {"one": {"a": [1, 2]}, "two": {"b": [3], "c": [4]}})
    weights = read_weights(tmp_path)
    assert [weights.array(name, size).tolist() for name, size in (("a", 2), ("b", 1), ("c", 1))] == [[1, 2], [3], [4]]


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    """A shard that the index names and the folder lacks is named, with how many there are."""
    write_shards(tmp_path, {"one": {"a": [1]}, "two": {"b": [2]}, "three": {"c": [3]}})
    (tmp_path / "two.safetensors").unlink()
    assert_refused(lambda: read_weights(tmp_path), MissingFile, "1 of 3 shards are absent: two.safetensors")


def test_a_shard_outside_the_folder(tmp_path: Path) -> None:
    """An index cannot name a file of another folder."""
    write_shards(tmp_path / "elsewhere", {"one": {"a": [1]}})
    inner = tmp_path / "model"
    inner.mkdir()
    index = {"weight_map": {"a": "../elsewhere/one.safetensors"}}
    (inner / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_refused(lambda: read_weights(inner), MissingFile, "1 of 1 shards are absent: one.safetensors")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"weight_map": 7}', '{"weight_map": ["a"]}'])
def test_an_index_that_is_none(tmp_path: Path, content: str) -> None:
    """An index that does not map tensors to files is refused."""
    (tmp_path / "model.safetensors.index.json").write_text(content)
    assert_refused(lambda: read_weights(tmp_path), CorruptFile, "no index of shards")


@pytest.mark.parametrize("name", ["weights.bin", "model.onnx", "tf_model.h5"])
def test_weights_in_another_format(tmp_path: Path, name: str) -> None:
    """Where weights lie in another format, the file is named and what to do."""
    (tmp_path / name).touch()
    assert_refused(lambda: read_weights(tmp_path), MissingFile, f"found {name}: convert to safetensors")


def test_no_weights(tmp_path: Path) -> None:
    """A folder without weights is named."""
    assert_refused(lambda: read_weights(tmp_path), MissingFile, f"{tmp_path}: no model.safetensors")


def origin(array: NDArray[Any]) -> object:
    """What an array is a view of, in the end."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap) and base.base is not None:
        base = base.base
    return base


def write_shards(folder: Path, shards: dict[str, dict[str, list[float]]]) -> None:
    """Files of these tensors, and the index that names them."""
    folder.mkdir(exist_ok=True)
    for shard, tensors in shards.items():
        arrays = {name: np.array(values, dtype=np.float32) for name, values in tensors.items()}
        save_file(arrays, folder / f"{shard}.safetensors")
    names = {name: f"{shard}.safetensors" for shard, tensors in shards.items() for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def assert_refused(call: Callable[[], object], error: type[LoadError], message: str) -> None:
    """The call raises exactly that error with this in its message."""
    with pytest.raises(LoadError) as caught:
        call()
    assert type(caught.value) is error
    assert message in str(caught.value)
