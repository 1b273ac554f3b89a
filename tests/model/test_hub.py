"""A hub id becomes a snapshot in the hub library's cache."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakehub import COMMIT, CONFIG, NEWER, FakeHub, isolate, serving, write_snapshot

from vecmill.config import FetchSettings
from vecmill.errors import AccessDenied, MissingFile, NetworkUnavailable
from vecmill.model import hub
from vecmill.model.hub import HubId, Snapshot, cached, choose, fetch

SETTINGS = FetchSettings(hub_timeout_s=10)
WANTED = HubId("org/x")
REPOSITORY = {
    "README.md": b"# x",
    "config.json": CONFIG,
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"weights",
    "modules.json": b"[]",
    "tokenizer.json": b'{"model": {}}',
    "1_Pooling/config.json": b"{}",
    "onnx/model.onnx": b"weights",
}
SERVED = ["1_Pooling/config.json", "config.json", "modules.json", "tokenizer.json", "model.safetensors"]
EXPORTED = ["config.json", "onnx/model.onnx_data", "onnx/model_quantized.onnx", "onnx/model.onnx"]
STATIC = {
    "modules.json": b'[{"path": "0_StaticEmbedding", "type": "sentence_transformers.models.StaticEmbedding"}]',
    "0_StaticEmbedding/tokenizer.json": b"{}",
    "0_StaticEmbedding/model.safetensors": b"weights",
}
BARE = {"config.json": CONFIG, "model.safetensors": b"weights"}
SAID: list[str] = []


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    SAID.clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one model."""
    with serving(FakeHub({"org/x": dict(REPOSITORY)})) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The hub library's cache folder."""
    return tmp_path / "hf" / "hub"


def test_fetches_what_serving_needs(server: FakeHub, store: Path) -> None:
    """Only the files that serving needs are downloaded, the weights last."""
    snapshot = fetch(WANTED, SETTINGS, SAID.append)
    assert snapshot == Snapshot(store / "models--org--x" / "snapshots" / COMMIT, COMMIT)
    assert server.fetched() == SERVED
    assert (snapshot.folder / "model.safetensors").read_bytes() == b"weights"
    assert SAID[-1] == "fetching model.safetensors of org/x from the hub (0.0 MB)"


def test_a_second_start_asks_nobody(server: FakeHub) -> None:
    """What was fetched is found in the cache without a request."""
    snapshot = fetch(WANTED, SETTINGS, SAID.append)
    server.seen.clear()
    assert cached(WANTED) == snapshot
    assert server.seen == []


def test_refresh_fetches_a_newer_commit(server: FakeHub) -> None:
    """A refresh asks for the branch again and moves it, downloading what has changed."""
    fetch(WANTED, SETTINGS, SAID.append)
    server.commit = NEWER
    assert fetch(WANTED, SETTINGS, SAID.append, refresh=True).commit == NEWER
    assert cached(WANTED) == fetch(HubId("org/x", NEWER), SETTINGS, SAID.append)


def test_a_failed_refresh_keeps_what_is_cached(server: FakeHub) -> None:
    """A branch moves to a newer commit only when that is complete."""
    old = fetch(WANTED, SETTINGS, SAID.append)
    server.commit = NEWER
    server.refusals["tokenizer.json"] = (403, "")
    with pytest.raises(AccessDenied):
        fetch(WANTED, SETTINGS, SAID.append, refresh=True)
    assert cached(WANTED) == old


def test_a_revision_that_is_a_commit(server: FakeHub) -> None:
    """A commit is fetched, and found again, by its own name."""
    snapshot = fetch(HubId("org/x", COMMIT), SETTINGS, SAID.append)
    assert cached(HubId("org/x", COMMIT)) == snapshot
    assert cached(WANTED) is None
    assert f"GET /api/models/org/x/revision/{COMMIT}" in server.seen


def test_a_token_is_sent(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_TOKEN opens what it opens for the hub library."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch(WANTED, SETTINGS, SAID.append)
    assert set(server.tokens) == {"Bearer hf_secret"}


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        (BARE | {"modules.json": b"[]"}, True),
        ({"config.json": CONFIG}, False),
        ({"model.safetensors": b"", "modules.json": b"[]"}, False),
        ({"config.json": CONFIG, "model.safetensors.index.json": b"no json", "modules.json": b"[]"}, False),
        ({"config.json": CONFIG, "model.safetensors.index.json": b'{"weight_map": {"x": 1}}'}, False),
    ],
)
def test_what_counts_as_cached(store: Path, files: dict[str, bytes], whole: bool) -> None:
    """A snapshot is served without asking when it has its configuration, its weights and its list of modules."""
    write_snapshot(store, "org/x", files)
    assert (cached(WANTED) is not None) is whole


@pytest.mark.parametrize(
    "files", [{name: name.encode() for name in EXPORTED}, STATIC, STATIC | {"config.json": CONFIG}]
)
def test_other_layouts(server: FakeHub, files: dict[str, bytes]) -> None:
    """An ONNX file and a table of vectors are fetched where there are no safetensors of a transformer, and once."""
    stray = {"pytorch_model.bin": b""} if STATIC.keys() <= files.keys() else {}
    server.repositories["org/x"] = files | {"onnx/model_fp16.onnx": b""} | stray
    snapshot = fetch(WANTED, SETTINGS, SAID.append)
    assert sorted(server.fetched()) == sorted(files)
    assert cached(WANTED) == snapshot


def test_an_onnx_file_alone_is_completed(server: FakeHub, store: Path) -> None:
    """A cache filled by a program that wants the ONNX file alone gets the safetensors, which are served instead."""
    write_snapshot(store, "org/x", {"config.json": CONFIG, "modules.json": b"[]", "onnx/model.onnx": b"weights"})
    assert cached(WANTED) is None
    fetch(WANTED, SETTINGS, SAID.append)
    assert "model.safetensors" in server.fetched()


def test_an_encoder_of_m3_is_completed(server: FakeHub, store: Path) -> None:
    """A cache filled by a program that wants BGE-M3's vectors alone gets its other layers, and nothing else."""
    files = {"config.json": CONFIG, "modules.json": b"[]", "pytorch_model.bin": b"weights"}
    layers = {"colbert_linear.pt": b"vectors", "sparse_linear.pt": b"numbers"}
    server.repositories["org/x"] = files | layers
    write_snapshot(store, "org/x", files)
    assert cached(WANTED) is None
    snapshot = fetch(WANTED, SETTINGS, SAID.append)
    assert server.fetched() == sorted(layers)
    assert cached(WANTED) == snapshot


def test_pickled_weights_are_asked_for_once(server: FakeHub, store: Path) -> None:
    """That a repository with PyTorch's own weights is no BGE-M3 is remembered."""
    files = {"config.json": CONFIG, "modules.json": b"[]", "pytorch_model.bin": b"weights"}
    server.repositories["org/x"] = files
    write_snapshot(store, "org/x", files)
    assert cached(WANTED) is None
    snapshot = fetch(WANTED, SETTINGS, SAID.append)
    assert server.fetched() == []
    assert cached(WANTED) == snapshot


@pytest.mark.parametrize("shards", [["a.safetensors", "b.safetensors"], ["a.safetensors"], []])
def test_all_shards_count(store: Path, shards: list[str]) -> None:
    """Weights in shards are cached when every shard of the index is."""
    index = json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}).encode()
    files = {"config.json": CONFIG, "modules.json": b"[]", "model.safetensors.index.json": index}
    write_snapshot(store, "org/x", files | dict.fromkeys(shards, b""))
    assert (cached(WANTED) is not None) is (len(shards) == 2)


@pytest.mark.parametrize("ref", ["", "../../../x", "main"])
def test_a_broken_ref_is_not_cached(store: Path, ref: str) -> None:
    """A branch that names no commit leads nowhere."""
    write_snapshot(store, "org/x", REPOSITORY)
    (store / "models--org--x" / "refs" / "main").write_text(ref)
    assert cached(WANTED) is None


def test_a_transformer_alone_is_completed(server: FakeHub, store: Path) -> None:
    """A cache filled by a program that wants no pooling gets the missing files at its own commit."""
    write_snapshot(store, "org/x", BARE)
    assert cached(WANTED) is None
    snapshot = fetch(WANTED, SETTINGS, SAID.append)
    assert server.fetched() == ["1_Pooling/config.json", "modules.json", "tokenizer.json"]
    assert f"GET /api/models/org/x/revision/{COMMIT}" in server.seen
    assert cached(WANTED) == snapshot


def test_a_model_without_modules_is_asked_for_once(server: FakeHub) -> None:
    """That a repository has no modules.json is remembered."""
    server.repositories["org/x"] = dict(BARE)
    snapshot = fetch(WANTED, SETTINGS, SAID.append)
    assert cached(WANTED) == snapshot


def test_a_doubtful_copy_is_better_than_none(store: Path) -> None:
    """Where the hub cannot be reached a cached copy without modules.json is served, with a warning."""
    folder = write_snapshot(store, "org/x", BARE)
    assert fetch(WANTED, SETTINGS, SAID.append) == Snapshot(folder, COMMIT)
    assert "taking the cached copy" in SAID[-1]
    with pytest.raises(NetworkUnavailable):
        fetch(WANTED, SETTINGS, SAID.append, refresh=True)


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (list(REPOSITORY), SERVED),
        (["model.safetensors", "model.fp16.safetensors", "consolidated.safetensors"], ["model.safetensors"]),
        (
            ["model.safetensors", "model.safetensors.index.json", "model-00001-of-00001.safetensors"],
            ["model.safetensors"],
        ),
        (
            ["model.safetensors.index.json", "model-00001-of-00001.safetensors", "consolidated.safetensors"],
            ["model.safetensors.index.json", "model-00001-of-00001.safetensors"],
        ),
        (
            ["2_Dense/config.json", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"],
            ["2_Dense/config.json", "2_Dense/model.safetensors"],
        ),
        (["query_0_X/model.safetensors", "model.safetensors"], None),
        (["query_0_Transformer/config.json", "sentencepiece.bpe.model", "vocab.txt"], None),
        (["config.json", *EXPORTED[1:]], ["config.json", *EXPORTED[1:]]),
        (["2_Dense/model.safetensors", "onnx/model.onnx"], None),
        (["0_StaticEmbedding/model.safetensors", "onnx/model.onnx"], ["0_StaticEmbedding/model.safetensors"]),
        (["openvino/config.json", "x/y/1_Pooling/config.json", "tf_model.h5", "m.gguf", "m.ot", "m.msgpack"], []),
    ],
)
def test_chooses_files(files: list[str], chosen: list[str] | None) -> None:
    """Configuration, tokenizer and one set of weights of the root and of modules, weights last."""
    assert choose(files) == (files if chosen is None else chosen)


@pytest.mark.parametrize(
    ("files", "left"),
    [
        (["config.json", "pytorch_model.bin", "onnx/model.onnx"], {"onnx/model.onnx"}),
        (["config.json", "model.safetensors", "pytorch_model.bin"], {"pytorch_model.bin"}),
        (["2_Dense/pytorch_model.bin", "2_Dense/model.safetensors", "config.json"], {"2_Dense/pytorch_model.bin"}),
        (["2_Dense/pytorch_model.bin", "config.json", "model.safetensors"], set()),
        (["config.json", "pytorch_model.bin", "sparse_linear.pt", "colbert_linear.pt", "other.pt"], {"other.pt"}),
        (["config.json", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"], set()),
        (
            ["config.json", "pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"],
            {"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"},
        ),
    ],
)
def test_pytorchs_own_files(files: list[str], left: set[str]) -> None:
    """They are fetched where the same folder has no safetensors, and then no ONNX file is."""
    assert set(choose(files)) == set(files) - left


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"config.json": b"", "tf_model.h5": b""}, r"its weights are \.h5"),
        ({"onnx/model.onnx": b""}, r"its weights are \.onnx"),
        ({"config.json": b"", "onnx/decoder.onnx": b""}, r"its weights are \.onnx"),
        ({"README.md": b""}, r"it has README\.md"),
    ],
)
def test_other_weights_are_not_downloaded(server: FakeHub, files: dict[str, bytes], told: str) -> None:
    """A repository with weights that are not served is refused before anything is downloaded."""
    server.repositories["org/x"] = files
    with pytest.raises(MissingFile, match=f"no config.json with model.safetensors or an ONNX file.*{told}"):
        fetch(WANTED, SETTINGS, SAID.append)
    assert server.fetched() == []


@pytest.mark.parametrize(
    "variables",
    [
        {"HF_HUB_CACHE": "~/x"},
        {"HUGGINGFACE_HUB_CACHE": "/y", "HF_HOME": "/z"},
        {"HF_HOME": "$HOME/z"},
        {"XDG_CACHE_HOME": "/xdg"},
        {},
    ],
)
def test_the_cache_is_the_librarys(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """The folder that we look into is the one that the hub library uses in the same environment."""
    monkeypatch.delenv("HF_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    program = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert hub.cache_folder() == Path(done.stdout.strip())
