"""PyTorch's own files are read as safetensors are, and run nothing."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from checkpoints import CONFIG, bert_tensors, write_bert, write_modules
from torch_files import name_of, number, numbers, tensor, text, write_torch, write_zip
from vecmill.embedder import Embedder
from vecmill.errors import CorruptFile, LoadError, UnsupportedModel
from vecmill.model.pickled import read_pickled
from vecmill.model.weights import read_weights

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def wrapped(value: bytes) -> bytes:
    """A pickle of a dictionary with one entry."""
    return pickle.PROTO + b"\2" + pickle.EMPTY_DICT + text("x") + value + pickle.SETITEM + pickle.STOP


def test_tensors(tmp_path: Path) -> None:
    """Types, shapes and numbers, also of half precision, and nothing is copied that lies in order."""
    half = np.array([1.5, -2], dtype=np.float16)
    write_torch(tmp_path / "pytorch_model.bin", {"a": ROWS, "b": half, "count": np.array(7, dtype=np.int64)})
    weights = read_weights(tmp_path)
    assert weights.array("a", 3, 4).tolist() == ROWS.tolist()
    assert weights.array("b", 2).tolist() == [1.5, -2]
    assert weights["count"].shape == ()
    base = weights["a"].data
    while not isinstance(base, np.memmap):
        assert isinstance(base.base, np.ndarray)
        base = base.base


def test_views(tmp_path: Path) -> None:
    """A tensor may be a part of a storage, or its storage turned."""
    write_torch(tmp_path / "pytorch_model.bin", {"part": ROWS[1:, 1:3], "turned": ROWS.T, "none": ROWS[:0]})
    weights = read_weights(tmp_path)
    assert weights.array("part", 2, 2).tolist() == ROWS[1:, 1:3].tolist()
    assert weights.array("turned", 4, 3).tolist() == ROWS.T.tolist()
    assert weights.array("none", 0, 4).size == 0


def test_a_model(tmp_path: Path) -> None:
    """A checkpoint that has no other weights gives the vectors that it gives from safetensors."""
    folder = write_modules(write_bert(tmp_path / "model"))
    with Embedder(str(folder)) as embedder:
        wanted = embedder.embed(["the cat"])
    (folder / "model.safetensors").unlink()
    write_torch(folder / "pytorch_model.bin", dict(bert_tensors(CONFIG).items()))
    with Embedder(str(folder)) as embedder:
        assert np.array_equal(embedder.embed(["the cat"]), wanted)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch._utils", "_rebuild_tensor"),
        ("vecmill.model.pickled", "read_pickled"),
        ("collections", "OrderedDict.fromkeys"),
    ],
)
def test_nothing_is_run(tmp_path: Path, module: str, name: str) -> None:
    """A file that names anything that tensors do not need is refused before it is called."""
    mark = tmp_path / "run"
    call = name_of(module, name) + pickle.MARK + text(f"touch {mark}") + pickle.TUPLE + pickle.REDUCE
    path = write_zip(tmp_path / "pytorch_model.bin", wrapped(call), [])
    assert_refused(path, CorruptFile, f"it asks for {module}.{name}, which weights do not need: nothing was run")
    assert not mark.exists()


def test_an_instance_is_not_made(tmp_path: Path) -> None:
    """The opcodes that make instances ask by the same way."""
    made = pickle.MARK + text("true") + pickle.INST + b"os\nsystem\n"
    assert_refused(write_zip(tmp_path / "x.bin", wrapped(made), []), CorruptFile, "it asks for os.system")


OUTSIDE = [
    (0, [4, 4], [4, 1]),
    (10, [3], [1]),
    (-1, [1], [1]),
    (0, [3, 4], [-4, 1]),
    (0, [2], [2**30]),
]


@pytest.mark.parametrize(("offset", "shape", "strides"), OUTSIDE)
def test_a_tensor_outside_of_its_storage(tmp_path: Path, offset: int, shape: list[int], strides: list[int]) -> None:
    """No tensor reaches beyond the bytes of its storage."""
    described = wrapped(tensor("FloatStorage", "0", 12, offset, shape, strides))
    path = write_zip(tmp_path / "x.bin", described, [ROWS.tobytes()])
    assert_refused(path, CorruptFile, "lies outside of its storage")


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (b"", "not readable as weights"),
        (b"\x80\2garbage", "not readable as weights"),
        (wrapped(tensor("FloatStorage", "7", 12, 0, [3, 4], [4, 1])), "not readable as weights"),
        (wrapped(tensor("FloatStorage", "0", 99, 0, [3, 4], [4, 1])), "99 numbers of 4 bytes are wanted"),
        (wrapped(tensor("QInt8Storage", "0", 12, 0, [3, 4], [4, 1])), "torch.QInt8Storage"),
    ],
)
def test_a_damaged_description(tmp_path: Path, description: bytes, message: str) -> None:
    """What does not hold together is said to be damaged."""
    path = write_zip(tmp_path / "x.bin", description, [ROWS.tobytes()])
    assert_refused(path, CorruptFile, message)


def test_compressed_numbers(tmp_path: Path) -> None:
    """Numbers that cannot be mapped are refused."""
    described = wrapped(tensor("FloatStorage", "0", 12, 0, [3, 4], [4, 1]))
    path = write_zip(tmp_path / "x.bin", described, [ROWS.tobytes()], method=zipfile.ZIP_DEFLATED)
    assert_refused(path, CorruptFile, "its numbers are compressed")


@pytest.mark.parametrize("content", [b"", b"\x80\2l\n", b"PK\3\4"])
def test_the_old_format(tmp_path: Path, content: bytes) -> None:
    """What is no zip was written before PyTorch 1.6, or is none of its files."""
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    assert_refused(path, UnsupportedModel, "no zip of torch.save")


def test_something_else(tmp_path: Path) -> None:
    """A pickle of something else than tensors by name is no checkpoint."""
    path = write_zip(tmp_path / "x.bin", wrapped(numbers([1]) + number(1)[:0]), [])
    assert_refused(path, UnsupportedModel, "no dictionary of tensors")


def assert_refused(path: Path, error: type[LoadError], message: str) -> None:
    """Reading raises exactly that error with this in its message."""
    with pytest.raises(LoadError) as caught:
        read_pickled(path)
    assert type(caught.value) is error
    assert message in str(caught.value)
