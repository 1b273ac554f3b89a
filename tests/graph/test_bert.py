"""The graph that a BERT checkpoint compiles to."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from checkpoints import CONFIG, bert_tensors, write_bert, write_json, write_modules
from numpy_bert import states
from vecmill.engine.base import Batch, load_engine
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.graph.build import build
from vecmill.model.spec import read_spec

IDS = np.array([2, 5, 17, 9, 9, 40, 3], dtype=np.int32)


@pytest.mark.parametrize("length", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", ["gelu", "gelu_new", "relu", "silu"])
def test_equals_the_paper(tmp_path: Path, kind: str, length: int) -> None:
    """The compiled graph gives the numbers of a BERT written from the paper, at every length."""
    config = CONFIG | {"hidden_act": kind, "layer_norm_eps": 1e-5}
    ids = np.resize(IDS, length)
    engine = load_engine("onnx", read_spec(write_bert(tmp_path, **config)), threads=1)
    wanted = states(ids, bert_tensors(config), config).mean(0)
    assert engine.run(Batch.pack([ids]))[0] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("shape", [(12, 3, 20), (20, 1, 7), (16, 16, 16)])
def test_equals_the_paper_at_every_width(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    """Neither the width nor the number of heads nor the inner width need be round."""
    config = CONFIG | dict(zip(("hidden_size", "num_attention_heads", "intermediate_size"), shape, strict=True))
    engine = load_engine("onnx", read_spec(write_bert(tmp_path, **config)), threads=1)
    wanted = states(IDS, bert_tensors(config), config).mean(0)
    assert engine.run(Batch.pack([IDS]))[0] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("key", ["type_vocab_size", "hidden_act", "layer_norm_eps"])
def test_settings_with_a_default(tmp_path: Path, key: str) -> None:
    """Keys that old configs leave out have the values that transformers gives them."""
    engine = load_engine("onnx", read_spec(config_without(tmp_path, key)), threads=1)
    assert engine.run(Batch.pack([IDS]))[0] == pytest.approx(
        states(IDS, bert_tensors(CONFIG), CONFIG).mean(0), abs=1e-5
    )


def test_weights_stay_beside_the_model(tiny_folder: Path) -> None:
    """The serialised model holds nodes and no weights, so that its size does not grow with the checkpoint's."""
    compiled = build(read_spec(tiny_folder))
    assert len(compiled.model) < 20_000
    assert sum(array.nbytes for array in compiled.weights.values()) > 20_000


def test_embeddings_are_not_copied(tiny_folder: Path) -> None:
    """The largest table, that of the words, goes to the session as a view of the mapped file."""
    words = max(build(read_spec(tiny_folder)).weights.values(), key=lambda array: array.nbytes)
    while not isinstance(words, np.memmap):
        assert isinstance(words.base, np.ndarray)
        words = words.base
    assert Path(str(words.filename)).name == "model.safetensors"


def kinds_of(graph: onnx.GraphProto) -> list[str]:
    """Operators that run where all rows have one length, and that a long one."""
    kinds = []
    for node in graph.node:
        kinds.append(node.op_type)
        for attribute in node.attribute:
            kinds += kinds_of(attribute.g) if attribute.name == "else_branch" else []
    return kinds


def test_is_valid_onnx(tiny_folder: Path) -> None:
    """The model passes the ONNX checker but for the operators that are ONNX Runtime's own."""
    model = onnx.load_model_from_string(build(read_spec(tiny_folder)).model)
    layout = ["places", "kept", "lengths"]
    assert [item.name for item in (*model.graph.input, *model.graph.output)] == ["ids", *layout, "dense"]
    assert {item.domain for item in model.opset_import} == {"", "com.microsoft"}
    assert len({node.name for node in model.graph.node if node.name}) == len(model.graph.node) - 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ({"is_decoder": True}, "is_decoder = True"),
        ({"add_cross_attention": True}, "add_cross_attention = True"),
        ({"hidden_act": "maxout"}, "activation 'maxout' is not supported; supported: ELU, elu"),
        ({"model_type": "bart"}, "architecture 'bart' is not supported yet; supported: albert, bert"),
    ],
)
def test_unsupported(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """A setting that asks for another network is refused by its name and value, never ignored."""
    assert_refused(write_bert(tmp_path, **changes), UnsupportedModel, message)


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_attention_heads", "intermediate_size"])
def test_a_key_that_is_missing(tmp_path: Path, key: str) -> None:
    """A key without which there is no network is named."""
    assert_refused(config_without(tmp_path, key), CorruptFile, f"config.json: Object missing required field `{key}`")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": "4"}, "Expected `int`, got `str` - at `$.num_attention_heads`"),
        ({"num_attention_heads": 0}, "Expected `int` >= 1 - at `$.num_attention_heads`"),
        ({"num_attention_heads": 3}, "should be divisible by num_heads"),
        ({"layer_norm_eps": None}, "Expected `float`, got `null` - at `$.layer_norm_eps`"),
        ({"num_hidden_layers": -1}, "Expected `int` >= 0 - at `$.num_hidden_layers`"),
    ],
)
def test_a_key_that_lies(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """A key of the wrong type or range is named with what is wanted."""
    write_json(write_bert(tmp_path) / "config.json", CONFIG | changes)
    assert_refused(tmp_path, CorruptFile, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intermediate_size": 24}, "'encoder.layer.0.intermediate.dense.weight' has shape [32, 16]"),
        ({"vocab_size": 57}, "has shape [56, 16], the config wants [57, 16]"),
        ({"max_position_embeddings": 64}, "has shape [40, 16], the config wants [64, 16]"),
    ],
)
def test_a_tensor_of_another_shape(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """A tensor whose shape is not the config's is named with both shapes."""
    assert_refused(write_bert(tmp_path, tensors=bert_tensors(CONFIG), **changes), CorruptFile, message)


def test_a_tensor_that_is_missing(tmp_path: Path) -> None:
    """A tensor that the config promises and the file lacks is named."""
    write_bert(tmp_path, tensors=bert_tensors(CONFIG), num_hidden_layers=3)
    assert_refused(tmp_path, MissingFile, "no tensor 'encoder.layer.2.attention.self.query.weight'")


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    """A file without a word table under any known prefix is refused by the table's name."""
    write_bert(tmp_path, tensors={"model.embed_tokens.weight": np.zeros((56, 16), np.float32)})
    assert_refused(tmp_path, MissingFile, "no tensor 'embeddings.word_embeddings.weight', with or without")


def test_weights_of_another_type(tmp_path: Path) -> None:
    """Weights in a type that is not read are refused with the types that are."""
    tensors: dict[str, Any] = {name: tensor.astype(np.int32) for name, tensor in bert_tensors(CONFIG).items()}
    save_file(tensors, write_bert(tmp_path) / "model.safetensors")
    assert_refused(tmp_path, UnsupportedModel, "weights of type I32; supported: F32, F16, BF16, F64")


def test_prompts_left_out_of_the_pooling(tmp_path: Path) -> None:
    """include_prompt false pools the tokens from the mark on: those before it count only as company."""
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    write_modules(write_bert(tmp_path), pooling=pooling, prompts={"prompts": {"query": "query : "}})
    engine = load_engine("onnx", read_spec(tmp_path), threads=1)
    states = engine.compute(Batch.pack([IDS, IDS], [0, 0]), ["multi"])[0]
    rows = engine.compute(Batch.pack([IDS, IDS], [0, 3]), ["dense"])[0]
    for row, every, mark in zip(rows, states, [0, 3], strict=True):
        mean = np.asarray(every)[mark:].mean(axis=0)
        assert row == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


def config_without(folder: Path, key: str) -> Path:
    """A tiny BERT whose config.json lacks a key."""
    write_json(write_bert(folder) / "config.json", {name: value for name, value in CONFIG.items() if name != key})
    return folder


def assert_refused(folder: Path, error: type[LoadError], message: str) -> None:
    """Loading the folder raises exactly that error, with this in its message."""
    with pytest.raises(LoadError) as caught:
        load_engine("onnx", read_spec(folder), threads=1)
    assert type(caught.value) is error
    assert message in str(caught.value)


@pytest.mark.parametrize(("mode", "token"), [("cls", 0), ("lasttoken", -1)])
@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_the_last_layer_works_for_the_pooled_token_alone(tmp_path: Path, mode: str, token: int, length: int) -> None:
    """Where one token is pooled, the last layer has queries for it alone, and the row is the paper's."""
    folder = write_modules(write_bert(tmp_path), pooling={"pooling_mode": mode}, normalize=False)
    spec, ids = read_spec(folder), np.resize(IDS, length)
    wanted = states(ids, bert_tensors(CONFIG), CONFIG)[token]
    assert load_engine("onnx", spec, threads=1).run(Batch.pack([ids]))[0] == pytest.approx(wanted, abs=1e-5)
    kinds = kinds_of(onnx.load_from_string(build(spec).model).graph)
    assert (kinds.count("Attention"), kinds.count("MultiHeadAttention")) == (CONFIG["num_hidden_layers"] - 1, 1)
