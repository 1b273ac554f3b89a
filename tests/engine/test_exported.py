"""What the engine of exported files promises beyond the contract."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from checkpoints import CONFIG, write_json, write_modules
from exported_checkpoints import INPUTS, WIDTH, states, write_exported, write_onnx
from vecmill.engine.base import Batch
from vecmill.engine.exported import ExportedEngine
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.model.spec import read_spec

LENGTHS = (1, 2, 3, 8, 17, 40)
TEXTS = [np.random.default_rng(2).integers(0, CONFIG["vocab_size"], length).astype(np.int32) for length in LENGTHS]
BATCH = Batch.pack([*TEXTS, *TEXTS[::-1]])


POOLED: dict[str, Callable[[Any], NDArray[np.float32]]] = {
    "cls": lambda rows: rows[0],
    "lasttoken": lambda rows: rows[-1],
    "max": lambda rows: rows.max(axis=0),
}


def load(folder: Path, precision: str = "float32") -> ExportedEngine:
    """The engine of a folder, with one thread."""
    return ExportedEngine(read_spec(folder), threads=1, precision=precision)


def means(first: int = 0) -> NDArray[np.float32]:
    """What mean pooling makes of the texts of `BATCH`."""
    rows = [states(ids, first).mean(axis=0) for ids in TEXTS]
    return np.stack([*rows, *rows[::-1]])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"integers": TensorProto.INT32},
        {"inputs": ["input_ids"]},
        {"inputs": ["attention_mask", "input_ids"]},
        {"inputs": [*INPUTS, "position_ids"]},
        {"external": True},
        {"outputs": ["pooler_output", "last_hidden_state"]},
        {"outputs": ["hidden_states.0", "token_embeddings"]},
        {"outputs": ["pooler_output", "hidden"]},
        {"outputs": ["logits", "hidden"]},
    ],
)
def test_rows(tmp_path: Path, options: dict[str, Any]) -> None:
    """Whatever the file is called with and calls its output, rows are its states, pooled."""
    engine = load(write_exported(tmp_path, **options))
    assert engine.run(BATCH) == pytest.approx(means(), abs=1e-6)


def test_half_floats(tmp_path: Path) -> None:
    """States in float16 are pooled in float32."""
    engine = load(write_exported(tmp_path, floats=TensorProto.FLOAT16))
    assert engine.run(BATCH) == pytest.approx(means(), abs=1e-3)


def test_positions_start_where_the_family_says(tmp_path: Path) -> None:
    """RoBERTa numbers positions from the padding's id + 1."""
    write_exported(tmp_path, inputs=[*INPUTS, "position_ids"])
    write_json(
        tmp_path / "config.json", {**CONFIG, "model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 42}
    )
    assert load(tmp_path).run(BATCH) == pytest.approx(means(2), abs=1e-6)


@pytest.mark.parametrize("mode", POOLED)
def test_the_pooling_is_the_chains(tmp_path: Path, mode: str) -> None:
    """Pooling, Dense and Normalize are those of modules.json, and the file's own row is not taken for them."""
    outputs = ["sentence_embedding", "last_hidden_state"]
    folder = write_modules(write_exported(tmp_path, outputs=outputs), pooling={"pooling_mode": mode})
    rows = np.stack([POOLED[mode](states(ids)) for ids in TEXTS])
    wanted = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert load(folder).run(Batch.pack(TEXTS)) == pytest.approx(wanted, abs=1e-6)


def test_a_dense(tmp_path: Path) -> None:
    """A Dense after the pooling changes the width."""
    folder = write_modules(write_exported(tmp_path), dense={"out_features": 5})
    assert load(folder).run(BATCH).shape == (len(TEXTS) * 2, 5)


def test_the_files_own_row(tmp_path: Path) -> None:
    """Without modules.json the row that the file has pooled is better than a guess."""
    engine = load(write_exported(tmp_path, outputs=["last_hidden_state", "sentence_embedding"]))
    assert engine.run(Batch.pack(TEXTS)) == pytest.approx(
        np.stack([states(ids).max(axis=0) for ids in TEXTS]), abs=1e-6
    )


def test_a_pooled_row_is_normalised(tmp_path: Path) -> None:
    """Where a file gives only rows the chain's Normalize follows them."""
    engine = load(write_modules(write_exported(tmp_path, outputs=["sentence_embedding"])))
    assert np.linalg.norm(engine.run(BATCH), axis=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"inputs": ["input_ids", "task_id"]}, UnsupportedModel, "input 'task_id' is not known; known: input_ids, "),
        ({"inputs": ["input_ids", "pixel_values"]}, UnsupportedModel, "input 'pixel_values'"),
        ({"outputs": ["logits"]}, UnsupportedModel, r"no output with states of tokens.*it has: logits"),
        ({"outputs": ["pooler_output"]}, UnsupportedModel, r"it has: pooler_output"),
        ({"floats": TensorProto.DOUBLE}, UnsupportedModel, "no output with states"),
    ],
)
def test_what_is_not_understood_is_named(
    tmp_path: Path, options: dict[str, Any], error: type[LoadError], told: str
) -> None:
    """An input or an output that could mean anything is refused by its name."""
    with pytest.raises(error, match=told):
        load(write_exported(tmp_path, **options))


def test_a_dense_of_unknown_place(tmp_path: Path) -> None:
    """A row of the file may hold the chain's Dense or not, so it is refused."""
    folder = write_modules(write_exported(tmp_path, outputs=["sentence_embedding"]), dense={"out_features": 5})
    with pytest.raises(UnsupportedModel, match="no output with states of tokens"):
        load(folder)


def test_another_type_of_ids(tmp_path: Path) -> None:
    """Ids of a type that is no integer are refused."""
    write_exported(tmp_path)
    write_onnx(tmp_path / "model.onnx", inputs=["input_ids"], integers=TensorProto.INT64)
    path = tmp_path / "model.onnx"
    import onnx

    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["input_ids"], ["cast"], to=TensorProto.INT64))
    for node in list(model.graph.node)[1:]:
        node.input[:] = ["cast" if name == "input_ids" else name for name in node.input]
    onnx.save(model, path)
    with pytest.raises(UnsupportedModel, match=r"'input_ids' is a tensor\(float\)"):
        load(tmp_path)


def damage(folder: Path) -> None:
    """Not an ONNX file."""
    (folder / "model.onnx").write_bytes(b"<p>Not found")


def narrow(folder: Path) -> None:
    """Another width than the states'."""
    write_json(folder / "config.json", {**CONFIG, "hidden_size": WIDTH + 1})


def enlarge(folder: Path) -> None:
    """Token ids that the table of the file has not."""
    write_json(folder / "config.json", {**CONFIG, "vocab_size": 10_000})


def separate(folder: Path) -> None:
    """Weights that are gone."""
    write_onnx(folder / "model.onnx", external=True)
    (folder / "model.onnx_data").unlink()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (damage, "refuses the model"),
        (narrow, "gives rows of 16 numbers, the checkpoint says 17"),
        (enlarge, "cannot run it"),
        (separate, "refuses the model.*model.onnx_data"),
    ],
)
def test_a_damaged_file(tmp_path: Path, fault: Any, told: str) -> None:
    """A file that cannot be run, or runs to something else, is found at the start."""
    fault(write_exported(tmp_path))
    with pytest.raises(CorruptFile, match=rf"model\.onnx: .*{told}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("file", "precision", "error", "told"),
    [
        ("model.onnx", "int8", MissingFile, "int8 needs model_quantized.onnx or .*; it has model.onnx"),
        ("onnx/model_quantized.onnx", "float32", MissingFile, "float32 needs .*it has onnx/model_quantized.onnx"),
        ("model.onnx", "int4", UnsupportedModel, "not served in int4; it can be: float32, int8"),
    ],
)
def test_precisions(tmp_path: Path, file: str, precision: str, error: type[LoadError], told: str) -> None:
    """A precision is a file, and one that is not there is refused with those that are."""
    with pytest.raises(error, match=told):
        load(write_exported(tmp_path, file), precision)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("quantized", [False, True])
def test_bytes_do_not_depend_on_mates(tmp_path: Path, threads: int, *, quantized: bool) -> None:
    """A row has the same bytes alone and in a batch; a file that scales whole batches is given one row at a time."""
    engine = ExportedEngine(read_spec(write_exported(tmp_path, quantized=quantized)), threads=threads)
    assert engine._alone == quantized
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        texts = list(rng.integers(0, CONFIG["vocab_size"], (9, length)).astype(np.int32))
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in texts])
        for size in (2, 3, 9):
            assert np.array_equal(engine.run(Batch.pack(texts[:size])), alone[:size]), (length, size)


def test_weights_beside_the_file_count(tmp_path: Path) -> None:
    """What a file weighs includes the weights beside it."""
    one = load(write_exported(tmp_path / "one"))
    two = load(write_exported(tmp_path / "two", external=True))
    assert two.weight_bytes == pytest.approx(one.weight_bytes, rel=0.2)


@pytest.mark.parametrize("quantized", [False, True])
def test_states_of_tokens(tmp_path: Path, *, quantized: bool) -> None:
    """A file that gives states gives them row by row beside their means, also where rows run one by one."""
    engine = load(write_exported(tmp_path, quantized=quantized))
    assert engine.gives("multi")
    rows, vectors = engine.compute(BATCH, ("dense", "multi"))
    assert np.asarray(rows).tobytes() == engine.run(BATCH).tobytes()
    assert [len(one) for one in vectors] == BATCH.lengths.tolist()  # type: ignore[arg-type]
    assert np.stack([np.asarray(one).mean(axis=0) for one in vectors]) == pytest.approx(np.asarray(rows), abs=1e-6)


def test_a_pooled_file_gives_no_states(tmp_path: Path) -> None:
    """Where the file pools itself there are none to give."""
    engine = load(write_exported(tmp_path, outputs=["sentence_embedding"]))
    assert engine.gives("dense")
    assert not engine.gives("multi")
    with pytest.raises(UnsupportedModel, match="gives dense vectors, not multi"):
        engine.compute(BATCH, ("multi",))
