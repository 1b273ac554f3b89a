"""What cannot start says why in one line, and exits with an error."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import finished
from safetensors.numpy import save_file

from checkpoints import CONFIG, bert_tensors, write_bert, write_json


def complaint(*arguments: str | Path, code: int = 1, variable: str = "") -> str:
    """The line that a command ends with: the only one, and no traceback."""
    variables = dict([variable.split("=")]) if variable else {}
    done = finished(*arguments, **variables)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    (line,) = done.stderr.splitlines()
    start, _, rest = line.partition(" ")
    assert start == "vecmill:"
    return rest


def without(name: str) -> Callable[[Path], object]:
    """A break: a file is missing."""
    return lambda folder: (folder / name).unlink()


def cut(name: str, size: int) -> Callable[[Path], object]:
    """A break: a file ends early."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def filled(name: str, content: bytes) -> Callable[[Path], object]:
    """A break: a file holds something else."""
    return lambda folder: (folder / name).write_bytes(content)


def configured(**changes: Any) -> Callable[[Path], object]:
    """A break: the config says what the weights do not."""
    return lambda folder: write_json(folder / "config.json", CONFIG | changes)


def misshapen(folder: Path) -> None:
    """A break: a tensor has another shape than the config gives it."""
    tensors = bert_tensors(CONFIG)
    name = "encoder.layer.1.output.dense.weight"
    save_file(tensors | {name: tensors[name].T.copy()}, folder / "model.safetensors")


def only_pickled(folder: Path) -> None:
    """A break: the weights are in a format that is not read."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


BROKEN: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "no config": (without("config.json"), ["has no config.json"]),
    "no weights": (without("model.safetensors"), ["no model.safetensors"]),
    "pickled weights": (only_pickled, ["pytorch_model.bin"]),
    "truncated weights": (cut("model.safetensors", 9000), ["model.safetensors", "bytes of data, the header wants"]),
    "corrupt weights": (filled("model.safetensors", b"<p>Not found" * 9), ["truncated or no safetensors file"]),
    "wrong shape": (misshapen, ["encoder.layer.1.output.dense.weight", "[32, 16]", "[16, 32]"]),
    "unknown architecture": (
        configured(model_type="llamaphant"),
        ["'llamaphant' has no graph", "bert, ", "onnx/model.onnx", "vecmill[torch]"],
    ),
    "no tokenizer": (without("tokenizer.json"), ["no tokenizer.json and no vocab.txt"]),
}
"""What is done to a checkpoint, and what its line must say."""


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_checkpoint(tmp_path: Path, fault: str) -> None:
    """A checkpoint with a fault ends the start with a line that names the file and the fault."""
    folder = write_bert(tmp_path / "model")
    break_it, words = BROKEN[fault]
    break_it(folder)
    line = complaint("serve", folder, "--port", "0")
    assert str(folder) in line
    assert [word for word in words if word not in line] == []


def test_no_such_folder(tmp_path: Path) -> None:
    """A folder that is not there is said to be not there."""
    assert complaint("serve", tmp_path / "nothing", "--port", "0") == f"no folder {tmp_path / 'nothing'}"


def test_one_bad_model_of_two(tiny_folder: Path, tmp_path: Path) -> None:
    """A server with one model that cannot be loaded does not start with the other alone."""
    broken = shutil.copytree(tiny_folder, tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    line = complaint("serve", tiny_folder, broken, "--port", "0", "--log-level", "error")
    assert line.startswith(f"{broken}: no model.safetensors")


def test_two_models_of_one_name(tiny_folder: Path) -> None:
    """Two models under one name are refused, with the way out."""
    line = complaint("serve", f"a={tiny_folder}", f"a={tiny_folder}")
    assert line == "two models are named a: give one another name with NAME=MODEL"


def test_a_port_in_use(tiny_folder: Path) -> None:
    """A port that another process holds is named, with the way out."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = complaint("serve", tiny_folder, "--port", str(port))
    assert line.startswith(f"cannot listen on 127.0.0.1 port {port}: ")
    assert line.endswith("choose another with --host or --port")


def test_a_grpc_port_in_use(tiny_folder: Path) -> None:
    """The same for gRPC's port, also where it is the one of HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = complaint("serve", tiny_folder, "--port", "0", "--grpc-port", str(port))
    assert line.startswith(f"cannot listen on 127.0.0.1 port {port}: ")
    assert line.endswith("choose another with --host or --grpc-port")
    line = complaint("serve", tiny_folder, "--port", str(port), "--grpc-port", str(port))
    assert line.endswith("choose another with --host or --grpc-port")


def test_a_wrong_flag() -> None:
    """A flag that does not exist is a usage error with the nearest one."""
    assert complaint("serve", "--prot", "1", code=2).startswith("Unknown option: --prot. Did you mean --port")


def test_a_wrong_variable() -> None:
    """A variable that looks like ours and is not is an error with the nearest one."""
    line = complaint("serve", variable="VECMILL_PROT=1")
    assert line == "VECMILL_PROT is no setting; did you mean VECMILL_PORT?"


def test_a_wrong_key(tmp_path: Path) -> None:
    """A key of the settings file that is no setting is an error with the nearest one."""
    file = tmp_path / "settings.toml"
    file.write_text("prot = 1\n")
    assert complaint("serve", "--config", file) == f"--config {file}: prot is no setting; did you mean port?"


def test_a_bad_number() -> None:
    """A value that is no number is an error that names where it came from."""
    line = complaint("serve", code=2, variable="VECMILL_PORT=http")
    assert line == 'Invalid value for VECMILL_PORT from env: unable to convert "http" into int.'
