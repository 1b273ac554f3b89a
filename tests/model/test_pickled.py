"""PyTorch's own files are read as safetensors are, and run nothing."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import CONFIG, bert_tensors, write_bert, write_modules
from torch_files import name_of, number, numbers, tensor, text, write_torch, write_zip
from vecmill.embedder import Embedder
from vecmill.errors import CorruptFile, LoadError, UnsupportedModel
from vecmill.model.pickled import read_pickled
from vecmill.model.weights import read_weights

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


DICT = name_of("collections", "OrderedDict")
PARAMETER = name_of("torch._utils", "_rebuild_parameter")


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
    """Opcodes that make instances on their own are not known."""
    made = pickle.MARK + text("true") + pickle.INST + b"os\nsystem\n"
    assert_refused(write_zip(tmp_path / "x.bin", wrapped(made), []), CorruptFile, "it does INST")


@pytest.mark.parametrize("protocol", range(6))
def test_what_pickle_itself_writes(tmp_path: Path, protocol: int) -> None:
    """Objects that call a function when they are unpickled, in every protocol, are refused, and the function waits."""
    mark = tmp_path / "run"
    for call in ((os.system, (f"touch {mark}",)), (eval, (f"open({str(mark)!r}, 'w')",)), (getattr, (mark, "touch"))):
        for value in (Calls(call), {"x": [1, {"y": Calls((map, (Calls(call), [1])))}]}):
            path = write_zip(tmp_path / "x.bin", pickle.dumps(value, protocol=protocol), [])
            assert_refused(path, CorruptFile, "nothing was run")
    assert not mark.exists()


class Calls:
    """What has a call made when it is unpickled."""

    def __init__(self, call: tuple[Any, ...]) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (PARAMETER + pickle.NONE + pickle.EMPTY_DICT + pickle.TUPLE2 + pickle.BUILD, "sets the state of an object"),
        (DICT + pickle.EMPTY_DICT + pickle.BUILD, "sets the state of an object"),
        (DICT + pickle.EMPTY_TUPLE + pickle.NEWOBJ, "does NEWOBJ"),
        (pickle.EXT1 + b"\1", "does EXT1"),
        (name_of("torch", "FloatStorage") + pickle.EMPTY_TUPLE + pickle.REDUCE, "calls what is no function"),
        (number(1) + pickle.EMPTY_TUPLE + pickle.REDUCE, "calls what is no function"),
        (text("os") + text("system") + pickle.STACK_GLOBAL, "asks for os.system"),
    ],
)
def test_other_ways_to_run_something(tmp_path: Path, value: bytes, said: str) -> None:
    """No opcode reaches a function or an object of this process, not even to change what an allowed one keeps."""
    assert_refused(write_zip(tmp_path / "x.bin", wrapped(value), []), CorruptFile, said)


def test_the_state_of_a_dictionary(tmp_path: Path) -> None:
    """What a dictionary keeps beside its entries is dropped; as an attribute it could hide a method."""
    state = pickle.EMPTY_DICT + text("values") + number(1) + pickle.SETITEM + pickle.BUILD
    held = DICT + pickle.EMPTY_TUPLE + pickle.REDUCE + state + pickle.STOP
    assert read_pickled(write_zip(tmp_path / "x.bin", held, [])) == {}


@pytest.mark.parametrize("use", [b"}%bNs.", b"%b%b\x93.", b"%bQ.", b"(%bctorch\nFloatStorage\n%bNK\1tQ."])
def test_values_that_grow(tmp_path: Path, use: bytes) -> None:
    """A pair of itself, sixty times over, is never hashed or shown, which would take for ever."""
    grown = pickle.NONE + (pickle.BINPUT + b"\0" + pickle.BINGET + b"\0" + pickle.TUPLE2) * 60
    path = write_zip(tmp_path / "x.bin", use.replace(b"%b", grown), [])
    assert_refused(path, CorruptFile, "not readable as weights")


OUTSIDE = [
    (0, [4, 4], [4, 1]),
    (10, [3], [1]),
    (-1, [1], [1]),
    (0, [3, 4], [-4, 1]),
    (0, [2], [2**30]),
    (0, [2**30], [0]),
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


def test_the_old_format(tmp_path: Path) -> None:
    """What begins as a pickle was written before PyTorch 1.6."""
    path = tmp_path / "x.bin"
    path.write_bytes(b"\x80\2l\n")
    assert_refused(path, UnsupportedModel, "older than PyTorch 1.6")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 0.95])
def test_truncated(tmp_path: Path, share: float) -> None:
    """A file that was cut anywhere is damaged, and not taken for one of another version."""
    path = write_torch(tmp_path / "x.bin", {"a": ROWS})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert_refused(path, CorruptFile, "fetch the model again")


def test_encrypted(tmp_path: Path) -> None:
    """An archive that wants a password is refused."""
    path = write_torch(tmp_path / "x.bin", {"a": ROWS})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    assert_refused(path, CorruptFile, "encrypted")


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
