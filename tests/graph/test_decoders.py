"""The graphs that decoders compile to: Llama, Mistral, Qwen2, Qwen3, Gemma 3."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_decoder import states
from safetensors.numpy import load_file, save_file

from checkpoints import write_json, write_modules
from tiny_decoders import FAMILIES, SIZES, write_decoder
from vecmill.engine.base import Batch, load_engine
from vecmill.errors import CorruptFile, LoadError, MissingFile, UnsupportedModel
from vecmill.graph.build import build
from vecmill.model.spec import read_spec

IDS = np.array([2, 5, 17, 9, 9, 40, 3, 261, 100, 33], dtype=np.int32)

ODD_HEADS = {"head_dim": 12, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 36}
"""Heads that ONNX Runtime's operator for grouped queries does not take."""

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    *((family, ODD_HEADS) for family in FAMILIES),
    *((family, {"num_key_value_heads": 4}) for family in FAMILIES),
    *((family, {"is_causal": False}) for family in FAMILIES),
    ("llama", {"rms_norm_eps": 0.1, "rope_theta": 70.0}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("mistral", {"sliding_window": 1}),
    ("mistral", {"sliding_window": 5}),
    ("mistral", {"sliding_window": 5, "is_causal": False}),
    ("mistral", {"sliding_window": 5, **ODD_HEADS}),
    ("mistral", {"sliding_window": None}),
    ("qwen2", {"sliding_window": 5}),
    ("qwen2", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}),
    ("qwen3", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 2, "is_causal": False}),
    (
        "qwen3",
        {
            "sliding_window": 5,
            "use_sliding_window": True,
            "max_window_layers": 0,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    ),
    ("qwen3", {"attention_bias": True}),
    ("gemma3_text", {"num_hidden_layers": 7, "sliding_window": 5}),
    ("gemma3_text", {"num_hidden_layers": 7, "sliding_window": 6, "use_bidirectional_attention": True}),
    ("gemma3_text", {"layer_types": ["full_attention"] * 3, "rope_theta": 50.0}),
    ("gemma3_text", {"query_pre_attn_scalar": 7, "rope_local_base_freq": 50.0, "attention_bias": True}),
]


@pytest.mark.parametrize(("family", "changes"), SETTINGS)
def test_equals_the_paper(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    """The compiled graph gives the numbers of a decoder written from the paper, of the first, last and mean token."""
    folder = write_decoder(tmp_path, family, **changes)
    config = json.loads((folder / "config.json").read_text())
    write_modules(folder, pooling={"pooling_mode": ["cls", "lasttoken", "mean"]}, normalize=False)
    engine = load_engine("onnx", read_spec(folder), threads=1)
    for length in (1, 2, 5, 10, 40):
        ids = np.resize(IDS, length)
        wanted = states(ids, load_file(folder / "model.safetensors"), config)
        (row,) = engine.run(Batch.pack([ids]))
        assert row == pytest.approx(np.concatenate([wanted[0], wanted[-1], wanted.mean(0)]), abs=5e-5)


@pytest.mark.parametrize("pooling", ["lasttoken", "mean"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("changes", [{}, ODD_HEADS, {"is_causal": False}], ids=["causal", "odd heads", "both sides"])
@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_do_not_depend_on_mates(
    tmp_path: Path, family: str, changes: dict[str, Any], precision: str, pooling: str
) -> None:
    """A text's row has the same bytes alone and in a batch, within a window and beyond it."""
    folder = write_decoder(tmp_path, family, max_position_embeddings=130, sliding_window=20, **changes)
    spec = read_spec(write_modules(folder, pooling={"pooling_mode": pooling}))
    engine = load_engine("onnx", spec, threads=2, precision=precision)
    rng = np.random.default_rng(0)
    for length in (1, 2, 7, 16, 33, 129):
        texts = list(rng.integers(0, spec.vocab_size, (9, length)).astype(np.int32))
        alone = np.concatenate([engine.run(Batch.pack([ids])) for ids in texts])
        for size in (2, 3, 9):
            assert np.array_equal(engine.run(Batch.pack(texts[:size])), alone[:size]), (length, size)


@pytest.mark.parametrize(("mode", "part"), [("cls", 0), ("lasttoken", 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_layer_works_for_the_pooled_token_alone(tmp_path: Path, family: str, mode: str, part: int) -> None:
    """Where one token is pooled, the last layer leaves the others out, and the row is the same."""
    write_decoder(tmp_path, family)
    write_modules(tmp_path, pooling={"pooling_mode": ["cls", "lasttoken"]}, normalize=False)
    both = row(tmp_path, IDS)
    write_modules(tmp_path, pooling={"pooling_mode": mode}, normalize=False)
    assert row(tmp_path, IDS) == pytest.approx(np.split(both, 2)[part], abs=1e-5)


@pytest.mark.parametrize(
    ("family", "changes", "wanted"),
    [
        *((family, {}, 0) for family in FAMILIES),
        *((family, {"is_causal": False}, 39) for family in FAMILIES),
        ("gemma3_text", {"use_bidirectional_attention": True}, 39),
        ("gemma3_text", {"use_bidirectional_attention": True, "sliding_window": 6, "num_hidden_layers": 2}, 6),
        ("mistral", {"is_causal": False, "sliding_window": 5, "num_hidden_layers": 2}, 10),
    ],
)
def test_how_far_the_first_token_sees(tmp_path: Path, family: str, changes: dict[str, Any], wanted: int) -> None:
    """What comes later changes the first token only where tokens see both sides, and as far as windows reach."""
    folder = write_decoder(tmp_path, family, **changes)
    write_modules(folder, pooling={"pooling_mode": "cls"}, normalize=False)
    assert max(seen_places(folder)) == wanted


@pytest.mark.parametrize(
    ("family", "changes", "wanted"),
    [
        *((family, {}, 0) for family in FAMILIES),
        ("mistral", {"sliding_window": 5, "num_hidden_layers": 2}, 31),
        ("mistral", {"sliding_window": 5, "num_hidden_layers": 2, **ODD_HEADS}, 31),
        ("gemma3_text", {"sliding_window": 5, "num_hidden_layers": 2}, 31),
    ],
)
def test_how_far_the_last_token_sees(tmp_path: Path, family: str, changes: dict[str, Any], wanted: int) -> None:
    """The last token sees the first, unless each layer's window brings it no further than that many tokens less one."""
    folder = write_decoder(tmp_path, family, **changes)
    write_modules(folder, pooling={"pooling_mode": "lasttoken"}, normalize=False)
    assert min(seen_places(folder)) == wanted


@pytest.mark.parametrize(
    ("architecture", "changes", "wanted"),
    [
        ("LlamaForCausalLM", {}, "lasttoken"),
        ("LlamaForCausalLM", {"is_causal": True}, "lasttoken"),
        ("LlamaForCausalLM", {"is_causal": False}, "mean"),
        ("LlamaModel", {}, "mean"),
        (None, {}, "mean"),
    ],
)
def test_no_modules(tmp_path: Path, architecture: str | None, changes: dict[str, Any], wanted: str) -> None:
    """A language model without modules.json is pooled by its last token, unless its tokens see both sides."""
    folder = write_decoder(tmp_path, "llama", architectures=[architecture] if architecture else None, **changes)
    assert read_spec(folder).pooling == (wanted,)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights(tmp_path: Path, family: str) -> None:
    """The largest table is a view of the mapped file, and no table of positions is longer than the longest input."""
    folder = write_modules(write_decoder(tmp_path, family), transformer={"max_seq_length": 13})
    weights = list(build(read_spec(folder)).weights.values())
    words = max(weights, key=len)
    while not isinstance(words, np.memmap):
        assert isinstance(words.base, np.ndarray)
        words = words.base
    assert sum(array.shape == (13, SIZES["head_dim"] // 2) for array in weights) == 2


@pytest.mark.parametrize("prefix", ["model.", "0.auto_model."])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix(tmp_path: Path, family: str, prefix: str) -> None:
    """Tensors of a model with a head have a prefix; the head's own are left alone."""
    wanted = row(write_decoder(tmp_path, family), IDS)
    tensors = {prefix + name: tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    save_file(tensors | {"lm_head.weight": np.ones((5, 5), np.float32)}, tmp_path / "model.safetensors")
    assert np.array_equal(row(tmp_path, IDS), wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tensor_is_checked(tmp_path: Path, family: str) -> None:
    """A tensor that is missing or of another shape is named."""
    write_decoder(tmp_path, family, num_hidden_layers=1, attention_bias=True, mlp_bias=family == "llama")
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    if family == "mistral":  # which has no biases, whatever config.json says
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("bias")}
    for name, tensor in tensors.items():
        save_file({other: kept for other, kept in tensors.items() if other != name}, path)
        assert_refused(tmp_path, MissingFile, f"no tensor {name!r}")
        save_file({**tensors, name: np.concatenate([tensor, tensor[:1]])}, path)
        assert_refused(tmp_path, CorruptFile, f"the config wants {list(tensor.shape)}")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"hidden_act": "laplace", "hidden_activation": "laplace"},
            UnsupportedModel,
            "activation 'laplace' is not supported",
        ),
        ({"partial_rotary_factor": 0.5}, UnsupportedModel, "partial_rotary_factor = 0.5 is not supported for"),
        ({"attn_logit_softcapping": 50.0}, UnsupportedModel, "attn_logit_softcapping = 50.0 is not supported for"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, UnsupportedModel, "rope_type = 'dynamic'"),
        (
            {"rope_scaling": {"rope_type": "longrope"}},
            UnsupportedModel,
            "supported: default, linear, ntk, llama3, yarn",
        ),
        (
            {"auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}},
            UnsupportedModel,
            "auto_map names the repository's own code for AutoModel, and no is_causal says",
        ),
        ({"is_causal": None}, CorruptFile, "Expected `bool`, got `null` - at `$.is_causal`"),
        ({"num_key_value_heads": 3}, CorruptFile, "4 query heads cannot share 3 key heads"),
        ({"num_attention_heads": 3}, CorruptFile, "3 heads do not divide a hidden_size of 32"),
        ({"head_dim": 5}, CorruptFile, "a head of 5 numbers cannot be rotated in pairs"),
        ({"layer_types": ["full_attention"]}, CorruptFile, "layer_types names 1 layers of 3"),
        ({"layer_types": ["chunked_attention"] * 3}, CorruptFile, "Invalid enum value 'chunked_attention'"),
        ({"num_hidden_layers": 4}, MissingFile, "no tensor 'layers.3.self_attn.q_proj.weight'"),
        ({"vocab_size": 500}, CorruptFile, "the config wants [500, 32]"),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_refused(tmp_path: Path, family: str, changes: dict[str, Any], error: type[LoadError], message: str) -> None:
    """What the graph cannot do, and what the files do not hold, is refused by its name."""
    assert_refused(change_config(write_decoder(tmp_path, family, sliding_window_pattern=2), **changes), error, message)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_rotations_by_layer(tmp_path: Path, family: str) -> None:
    """Rotations for each kind of layer, which only Gemma has, are not taken for one without settings."""
    change_config(write_decoder(tmp_path, family), rope_parameters={"full_attention": {"rope_theta": 5.0}})
    assert_refused(tmp_path, UnsupportedModel, f"rope_parameters of full_attention are not supported for {family}")


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize("changes", [{}, {"use_sliding_window": True, "sliding_window": None}])
def test_a_window_that_is_not_in_use(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    """Layers that would see a window, where none is in use, are refused."""
    change_config(write_decoder(tmp_path, family), layer_types=["sliding_attention"] * 3, **changes)
    assert_refused(tmp_path, CorruptFile, "layer_types names sliding_attention, but no sliding_window is in use")


@pytest.mark.parametrize("family", FAMILIES)
def test_code_of_its_own_that_says_what_tokens_see(tmp_path: Path, family: str) -> None:
    """A repository with its own code is taken where config.json says whether tokens see what comes after them."""
    wanted = row(write_decoder(tmp_path, family, is_causal=False), IDS)
    change_config(tmp_path, auto_map={"AutoModel": "code.Model"})
    assert np.array_equal(row(tmp_path, IDS), wanted)


def test_each_family_has_its_own_numbers(tmp_path: Path) -> None:
    """No two families are one network: with the same tensors, or those that they have, rows differ."""
    rows = [row(write_decoder(tmp_path / family, family, sliding_window=4), IDS) for family in FAMILIES]
    differences = [np.abs(one - other).max() for at, one in enumerate(rows) for other in rows[:at]]
    assert min(differences) > 1e-3


def row(folder: Path, ids: NDArray[np.int32]) -> NDArray[np.float32]:
    """The row of token ids."""
    (only,) = load_engine("onnx", read_spec(folder), threads=1).run(Batch.pack([ids]))
    result: NDArray[np.float32] = only
    return result


def seen_places(folder: Path, length: int = 40) -> list[int]:
    """The places of a text whose tokens count for its row."""
    texts = np.tile(np.resize(IDS, length), (length + 1, 1))
    texts[np.arange(length), np.arange(length)] += 1
    rows = load_engine("onnx", read_spec(folder), threads=1).run(Batch.pack(list(texts)))
    return [place for place in range(length) if not np.array_equal(rows[place], rows[-1])]


def change_config(folder: Path, **changes: Any) -> Path:
    """Set keys of config.json."""
    path = folder / "config.json"
    write_json(path, json.loads(path.read_text()) | changes)
    return folder


def assert_refused(folder: Path, error: type[LoadError], message: str) -> None:
    """Loading the folder raises exactly that error, with this in its message."""
    with pytest.raises(LoadError) as caught:
        load_engine("onnx", read_spec(folder), threads=1)
    assert type(caught.value) is error
    assert message in str(caught.value)
