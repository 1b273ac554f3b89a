"""DeBERTa's attention by content and distance against its definition, and what it shares with BERT."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from checkpoints import Tensors, write_modules
from encoders import write_encoder
from vecmill.engine.base import Batch, load_engine
from vecmill.errors import UnsupportedModel
from vecmill.graph.disentangled import Distances, c2p, p2c
from vecmill.graph.families.deberta_v2 import Config, table_rows
from vecmill.graph.ops import Graph
from vecmill.model.spec import read_spec

HEADS, DIMS, TOKENS = 3, 4, 20
FACTOR = 0.5
LENGTHS = (1, 2, 5, 9, 20)
CONFIG = Config(TOKENS, HEADS * DIMS, 8, 30, HEADS, 1, position_buckets=8, relative_attention=True)


def random(*shape: int, seed: int) -> NDArray[np.float32]:
    """Normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def scores(kind: str, ids: NDArray[np.int32], *, first_only: bool = False) -> NDArray[np.float32]:
    """What the graph gives for contents that are looked up by id."""
    graph = Graph()
    at = Distances.of(graph, table_rows(np.arange(-19, 20), CONFIG), HEADS)
    at = at.of_first(graph) if first_only else at
    states = graph.op("Gather", graph.weight(contents()), "ids")
    if first_only and kind == "c2p":
        states = graph.op("Gather", states, graph.integers(0), axis=1)
    content = graph.op("Transpose", states, perm=[0, 2, 1, 3])
    result = {"c2p": c2p, "p2c": p2c}[kind](graph, content, table(), at, FACTOR)
    compiled = graph.compile({"rows": (result, ("rows", "heads", "queries", "length"))})
    options = ort.SessionOptions()
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in compiled.weights.values()]
    options.add_external_initializers(list(compiled.weights), values)
    session = ort.InferenceSession(compiled.model, options, providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(None, {"ids": ids})[0]
    return found


def contents() -> NDArray[np.float32]:
    """Queries or keys of each id, [ids, heads, head dims]."""
    return random(TOKENS, HEADS, DIMS, seed=1)


def table() -> NDArray[np.float32]:
    """Distances, [rows, heads, head dims]."""
    return random(2 * CONFIG.span, HEADS, DIMS, seed=2)


def defined(kind: str, ids: NDArray[np.int32]) -> NDArray[np.float32]:
    """The scores one by one: the content of the query (c2p) or of the key (p2c) times the row of their distance."""
    count, length = ids.shape
    wanted = np.zeros((count, HEADS, length, length), dtype=np.float32)
    for row, head, query, key in np.ndindex(wanted.shape):
        token = ids[row, query if kind == "c2p" else key]
        (place,) = table_rows(np.array([query - key]), CONFIG)
        wanted[row, head, query, key] = FACTOR * contents()[token, head] @ table()[place, head]
    return wanted


@pytest.mark.parametrize("kind", ["c2p", "p2c"])
@pytest.mark.parametrize("length", LENGTHS)
def test_scores(kind: str, length: int) -> None:
    """Each pair of tokens gets its own distance's score, up to the longest input."""
    ids = np.random.default_rng(0).integers(0, TOKENS, (2, length)).astype(np.int32)
    assert scores(kind, ids) == pytest.approx(defined(kind, ids), abs=1e-5)


@pytest.mark.parametrize("kind", ["c2p", "p2c"])
@pytest.mark.parametrize("length", LENGTHS)
def test_scores_of_the_first_token(kind: str, length: int) -> None:
    """With the first token as the only query they are its scores among all."""
    ids = np.random.default_rng(0).integers(0, TOKENS, (2, length)).astype(np.int32)
    assert scores(kind, ids, first_only=True) == pytest.approx(scores(kind, ids)[:, :, :1], abs=1e-6)


def test_buckets() -> None:
    """The nearest distances have a row each; 4 (63 / 4)^(1/3) = 10.02 and 4 (63 / 4)^(2/3) = 25.1 end the next two."""
    config = Config(8, 8, 8, 64, 1, 1, position_buckets=8)
    rows = [8, 9, 10, 11, 12, *[13] * 6, *[14] * 15, *[15] * 74]
    assert table_rows(np.arange(100), config).tolist() == rows
    mirrored = [max(0, 16 - row) for row in rows]
    assert table_rows(-np.arange(64), config).tolist() == mirrored[:64]


@pytest.mark.parametrize("position_buckets", [-1, 8])
def test_rows_never_fall(position_buckets: int) -> None:
    """A greater distance has no earlier row, so that those which an input needs are neighbours."""
    config = Config(8, 8, 8, 40, 1, 1, position_buckets=position_buckets, max_relative_positions=30)
    assert (np.diff(table_rows(np.arange(-300, 301), config)) >= 0).all()


def test_without_distances_it_is_bert(tmp_path: Path) -> None:
    """With positions in the input and none in the attention, a DeBERTa is a BERT whose types are zero."""
    plain = {"relative_attention": False, "position_biased_input": True, "pos_att_type": None, "norm_rel_ebd": "none"}
    folder = write_encoder(tmp_path / "deberta", "deberta-v2", **plain, layer_norm_eps=1e-12)
    tensors = {name.replace("_proj.", "."): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    tensors["embeddings.token_type_embeddings.weight"] = np.zeros((2, 16), dtype=np.float32)
    size = read_spec(folder).vocab_size
    bert = write_encoder(tmp_path / "bert", "electra", tensors, embedding_size=16, vocab_size=size)
    assert rows(folder) == pytest.approx(rows(bert), abs=1e-6)


def test_distances_count(tmp_path: Path) -> None:
    """A table of zeros gives other rows: the order of tokens is in the distances alone."""
    folder = write_encoder(tmp_path, "deberta-v2", norm_rel_ebd="none", share_att_key=True)
    before = rows(folder)
    ids = np.arange(9, 20, dtype=np.int32)
    forth, back = rows(folder, ids), rows(folder, ids[::-1].copy())
    assert np.abs(forth - back).max() > 1e-3
    change_tensors(folder, "encoder.rel_embeddings.weight", 0)
    assert np.abs(rows(folder) - before).max() > 1e-3
    assert rows(folder, ids) == pytest.approx(rows(folder, ids[::-1].copy()), abs=1e-5)


@pytest.mark.parametrize("mode", ["cls", "lasttoken"])
def test_one_token(tmp_path: Path, mode: str) -> None:
    """The vector of one token is its state among all, also where the last layer leaves the others out."""
    folder = write_modules(write_encoder(tmp_path, "deberta-v2"), pooling={"pooling_mode": mode}, normalize=False)
    ids = np.arange(9, 30, dtype=np.int32)
    engine = load_engine("onnx", read_spec(folder), threads=1)
    (column,) = engine.compute(Batch.pack([ids]), ["multi"])
    states = np.asarray(column[0])
    assert rows(folder, ids)[0] == pytest.approx(states[0 if mode == "cls" else -1], abs=1e-5)


@pytest.mark.parametrize(("precision", "least"), [("int8", 0.99), ("int4", 0.8)])
def test_precisions(tmp_path: Path, precision: str, least: float) -> None:
    """Fewer bits give nearly the same rows; the tables of distances stay float32."""
    folder = write_encoder(tmp_path, "deberta-v2", hidden_size=64)
    small, whole = rows(folder, precision=precision), rows(folder)
    lengths = np.linalg.norm(small, axis=1) * np.linalg.norm(whole, axis=1)
    assert ((small * whole).sum(axis=1) / lengths).min() > least
    assert not np.array_equal(small, whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_head_size": 8}, "4 heads of 8 numbers are not the hidden_size"),
        ({"num_attention_heads": 3}, "3 heads of 5 numbers are not the hidden_size"),
        ({"conv_kernel_size": 4}, "conv_kernel_size = 4 would change the length; it has to be odd"),
        ({"position_buckets": 1}, "position_buckets = 1 is not supported: a reach of 40 tokens takes 2 to 77"),
        ({"max_relative_positions": 5}, "position_buckets = 8 is not supported: a reach of 5 tokens takes 2 to 7"),
        ({"conv_kernel_size": 3, "conv_act": "laplace"}, "activation 'laplace'"),
    ],
)
def test_unsupported(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Sizes that make no network are refused by their setting, before a first input fails or gives nonsense."""
    folder = write_encoder(tmp_path, "deberta-v2", **changes)
    with pytest.raises(UnsupportedModel, match=message):
        load_engine("onnx", read_spec(folder), threads=1)


def test_the_convolution_reads_neighbours(tmp_path: Path) -> None:
    """A kernel that is zero but for its middle reads the token itself, so that a single token's row stays the same."""
    folder = write_encoder(tmp_path, "deberta-v2", conv_kernel_size=3, conv_act="tanh")
    one, two = np.array([9], dtype=np.int32), np.array([9, 12], dtype=np.int32)
    before = rows(folder, one), rows(folder, two)
    tensors = load_file(folder / "model.safetensors")
    kernel = tensors["encoder.conv.conv.weight"].copy()
    kernel[:, :, [0, 2]] = 0
    save_file({**tensors, "encoder.conv.conv.weight": kernel}, folder / "model.safetensors")
    assert rows(folder, one) == pytest.approx(before[0], abs=1e-6)
    assert np.abs(rows(folder, two) - before[1]).max() > 1e-3


def test_bytes_of_a_convolution(tmp_path: Path) -> None:
    """A text's row has the same bytes alone and in a batch, also where neighbouring tokens are mixed."""
    spec = read_spec(write_encoder(tmp_path, "deberta-v2", conv_kernel_size=3))
    engine = load_engine("onnx", spec, threads=2)
    for length in (1, 2, 7, 33, 40):
        texts = list(np.random.default_rng(0).integers(0, spec.vocab_size, (9, length)).astype(np.int32))
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in texts])
        for size in (2, 3, 9):
            assert np.array_equal(engine.run(Batch.pack(texts[:size])), alone[:size]), (length, size)


def rows(folder: Path, *texts: NDArray[np.int32], precision: str = "float32") -> NDArray[np.float32]:
    """The rows of texts; of one at each length where none is given."""
    spec = read_spec(folder)
    rng = np.random.default_rng(1)
    given = texts or [rng.integers(0, spec.vocab_size, length).astype(np.int32) for length in (1, 2, 7, 33, 40)]
    return load_engine("onnx", spec, threads=1, precision=precision).run(Batch.pack(list(given)))


def change_tensors(folder: Path, name: str, factor: float) -> None:
    """Scale one tensor of a checkpoint."""
    tensors: Tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, name: tensors[name] * np.float32(factor)}, folder / "model.safetensors")
