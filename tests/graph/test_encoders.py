"""The graphs of families that are BERT with other names or a twist: what they share with it, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from checkpoints import Tensors, write_json
from encoders import BERT_LAYER, CONFIGS, FAMILIES, LAYERS, SIZES, layer_prefixes, write_encoder
from vecmill.engine.base import Batch, load_engine
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.graph.build import build
from vecmill.graph.families.mpnet import buckets
from vecmill.model.spec import read_spec

LENGTHS = (1, 2, 7, 16, 33, 40)
IDENTITY = np.eye(16, dtype=np.float32)
ZEROS = np.zeros(16, dtype=np.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_do_not_depend_on_mates(tmp_path: Path, family: str) -> None:
    """A text's row has the same bytes alone and in a batch, also at a width that is not round."""
    width = {"dim": 36, "n_heads": 2} if family == "distilbert" else {"hidden_size": 36, "num_attention_heads": 2}
    spec = read_spec(write_encoder(tmp_path, family, **width))
    engine = load_engine("onnx", spec, threads=2)
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        texts = list(rng.integers(0, spec.vocab_size, (9, length)).astype(np.int32))
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in texts])
        for size in (2, 3, 9):
            assert np.array_equal(engine.run(Batch.pack(texts[:size])), alone[:size]), (length, size)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "camembert"])
def test_roberta_is_bert_at_later_positions(tmp_path: Path, family: str) -> None:
    """With the first rows of its position table cut off, a RoBERTa is a BERT."""
    folder, tensors = opened(tmp_path, family)
    rows_of(folder)
    tensors["embeddings.position_embeddings.weight"] = tensors["embeddings.position_embeddings.weight"][2:]
    assert np.array_equal(rows_of(folder), rows_of(as_bert(folder, tensors)))


def test_distilbert_is_bert_without_types(tmp_path: Path) -> None:
    """With types of zero and its names, a DistilBERT is a BERT."""
    folder, tensors = opened(tmp_path, "distilbert")
    assert np.array_equal(rows_of(folder), rows_of(as_bert(folder, tensors)))


def test_mpnet_without_bias_is_roberta(tmp_path: Path) -> None:
    """With a bias of zero, an MPNet is a RoBERTa whose types are zero; with its bias it is not."""
    folder, tensors = opened(tmp_path, "mpnet")
    biased = rows_of(folder)
    tensors["encoder.relative_attention_bias.weight"][:] = 0
    save_file(tensors, folder / "model.safetensors")
    plain = rows_of(folder)
    tensors["embeddings.position_embeddings.weight"] = tensors["embeddings.position_embeddings.weight"][2:]
    assert plain == pytest.approx(rows_of(as_bert(folder, tensors)), abs=1e-6)
    assert np.abs(plain - biased).max() > 1e-3


def test_a_bias_of_one_number_changes_nothing(tmp_path: Path) -> None:
    """What is added to all scores alike goes out of the softmax: every distance has a bias, none more than one."""
    folder, tensors = opened(tmp_path, "mpnet")
    rows = []
    for value in (0, 5):
        tensors["encoder.relative_attention_bias.weight"][:] = value
        save_file(tensors, folder / "model.safetensors")
        rows.append(rows_of(folder))
    assert rows[0] == pytest.approx(rows[1], abs=1e-5)


@pytest.mark.parametrize("family", ["electra", "albert"])
def test_a_projection_that_projects_nothing(tmp_path: Path, family: str) -> None:
    """With embeddings of the full width and the identity as projection, an ELECTRA or ALBERT is a BERT."""
    changes = {"hidden_act": "gelu", "num_hidden_groups": 4} if family == "albert" else {}
    folder, tensors = opened(tmp_path, family, embedding_size=16, **changes)
    if family == "albert":
        name = "encoder.embedding_hidden_mapping_in"
        tensors |= {f"{name}.weight": IDENTITY, f"{name}.bias": ZEROS}
        save_file(tensors, folder / "model.safetensors")
    assert rows_of(folder) == pytest.approx(rows_of(as_bert(folder, tensors)), abs=1e-6)


def test_shared_layers_are_stored_once(tmp_path: Path) -> None:
    """An ALBERT of twelve layers has the weights of one, and the nodes of twelve."""
    seen = {}
    for layers in (1, 12):
        folder = write_encoder(tmp_path / str(layers), "albert", num_hidden_layers=layers, num_hidden_groups=1)
        compiled = build(read_spec(folder))
        nodes = [node.op_type for node in onnx.load_model_from_string(compiled.model).graph.node]
        seen[layers] = (sum(array.nbytes for array in compiled.weights.values()), nodes.count("Attention"))
    assert seen == {1: (seen[1][0], 1), 12: (seen[1][0], 12)}


def test_buckets() -> None:
    """The nearest eight distances of each side have a bucket each, 16, 32 and 64 begin one, and far ones share one."""
    assert buckets(np.arange(-8, 9)).tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0, *range(17, 25)]
    assert buckets(np.array([15, 16, 31, 32, 63, 64, 127, 128, 10_000])).tolist() == [
        25,
        26,
        27,
        28,
        29,
        30,
        31,
        31,
        31,
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_old_norm_names(tmp_path: Path, family: str) -> None:
    """Checkpoints converted from TensorFlow call a norm's scale and shift gamma and beta."""
    folder, tensors = opened(tmp_path, family)
    rows = rows_of(folder)
    old = {}
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        old[f"{stem}.{'gamma' if kind == 'weight' else 'beta'}" if "norm" in stem.lower() else name] = tensor
    save_file(old, folder / "model.safetensors")
    assert np.array_equal(rows_of(folder), rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix(tmp_path: Path, family: str) -> None:
    """Tensors of a model with a head have the family's name before theirs; the head's own are left alone."""
    folder, tensors = opened(tmp_path, family)
    rows = rows_of(folder)
    base = {"xlm-roberta": "roberta", "camembert": "roberta", "deberta-v2": "deberta"}.get(family, family)
    for prefix in (f"{base}.", "model.", "0.auto_model."):
        renamed = {prefix + name: tensor for name, tensor in tensors.items()}
        save_file({**renamed, "classifier.bias": ZEROS}, folder / "model.safetensors")
        assert np.array_equal(rows_of(folder), rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_that_is_missing(tmp_path: Path, family: str) -> None:
    """Each tensor is needed, and named where it is absent."""
    folder, tensors = opened(tmp_path, family)
    for name in tensors:
        save_file({other: tensor for other, tensor in tensors.items() if other != name}, folder / "model.safetensors")
        assert_refused(folder, MissingFile, f"no tensor {name!r}")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_of_another_shape(tmp_path: Path, family: str) -> None:
    """Each tensor's shape is checked, and both shapes are said."""
    folder, tensors = opened(tmp_path, family)
    for name, tensor in tensors.items():
        wrong = np.concatenate([tensor, tensor[:1]])
        save_file({**tensors, name: wrong}, folder / "model.safetensors")
        shapes = f"{list(wrong.shape)}, the config wants {list(tensor.shape)}"
        assert_refused(folder, CorruptFile, f"{name!r} has shape {shapes}")


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        *(
            (family, {key: value}, f"{key} = {value!r} is not supported for {family}")
            for family in ("roberta", "xlm-roberta", "camembert", "electra")
            for key, value in (
                ("position_embedding_type", "relative_key"),
                ("is_decoder", True),
                ("add_cross_attention", True),
            )
        ),
        ("albert", {"position_embedding_type": "relative_key_query"}, "position_embedding_type"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets = 64 is not supported"),
        ("mpnet", {"pad_token_id": 0, "max_position_embeddings": 41}, "pad_token_id = 0 is not supported for mpnet"),
        *((family, {"hidden_act": "laplace"}, "activation 'laplace'") for family in FAMILIES if family != "distilbert"),
        ("distilbert", {"activation": "laplace"}, "activation 'laplace'"),
    ],
)
def test_unsupported(tmp_path: Path, family: str, changes: dict[str, Any], message: str) -> None:
    """A setting that asks for another network is refused by its name and value, never ignored."""
    assert_refused(write_encoder(tmp_path, family, **changes), UnsupportedModel, message)


@pytest.mark.parametrize(
    ("family", "key"),
    [(family, key) for family in FAMILIES for key in CONFIGS[family] if key in {*SIZES, *CONFIGS["distilbert"]}],
)
def test_a_size_that_is_missing(tmp_path: Path, family: str, key: str) -> None:
    """A size without which there is no network is named."""
    write_encoder(tmp_path, family)
    config = json.loads((tmp_path / "config.json").read_text())
    del config[key]
    write_json(tmp_path / "config.json", config)
    wanted = MissingFile if key in {"hidden_size", "dim"} else CorruptFile
    assert_refused(tmp_path, wanted, "hidden_size" if key == "dim" else key)


def opened(folder: Path, family: str, **changes: Any) -> tuple[Path, Tensors]:
    """A tiny checkpoint and its tensors, to be changed and saved again."""
    write_encoder(folder, family, **changes)
    tensors = load_file(folder / "model.safetensors")
    return folder, {name: tensor.copy() for name, tensor in tensors.items()}


def as_bert(folder: Path, tensors: Tensors) -> Path:
    """A BERT with the same tensors under its own names, beside the checkpoint."""
    config = json.loads((folder / "config.json").read_text())
    family = config["model_type"]
    renamed = dict(tensors)
    for number, prefix in enumerate(layer_prefixes(config)):
        for theirs, ours in zip(LAYERS.get(family, BERT_LAYER), BERT_LAYER, strict=True):
            for kind in ("weight", "bias"):
                tensor = renamed.pop(f"{prefix}{theirs}.{kind}")
                renamed[f"encoder.layer.{number}.{ours}.{kind}"] = tensor
    words, positions = (renamed[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position"))
    renamed.setdefault("embeddings.token_type_embeddings.weight", np.zeros((2, 16), dtype=np.float32))
    sizes = {**SIZES, "num_hidden_layers": len(layer_prefixes(config))}
    sizes |= {"vocab_size": len(words), "max_position_embeddings": len(positions)}
    bert = folder / "bert"
    bert.mkdir()
    write_json(bert / "config.json", {"model_type": "bert", **sizes})
    write_json(bert / "tokenizer_config.json", {})
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in renamed.items()}, bert / "model.safetensors")
    return bert


def rows_of(folder: Path) -> NDArray[np.float32]:
    """Rows of some inputs, up to the limit of 40."""
    spec = read_spec(folder)
    assert spec.max_tokens == 40
    rng = np.random.default_rng(1)
    return load_engine("onnx", spec, threads=1).run(
        Batch.pack([rng.integers(0, spec.vocab_size, length).astype(np.int32) for length in LENGTHS])
    )


def assert_refused(folder: Path, error: type[LoadError], message: str) -> None:
    """Loading the folder raises exactly that error, with this in its message."""
    with pytest.raises(LoadError) as caught:
        load_engine("onnx", read_spec(folder), threads=1)
    assert type(caught.value) is error
    assert message in str(caught.value)
