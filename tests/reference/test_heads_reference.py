"""Pooling, Dense and Normalize give the numbers of sentence-transformers."""

from pathlib import Path
from typing import Any

import pytest
from comparison import assert_same, ours

from checkpoints import write_bert, write_json, write_modules

pytestmark = pytest.mark.reference

FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
ACTIVATIONS = ("activation.Tanh", "linear.Identity", "activation.ReLU", "activation.GELU", "activation.Sigmoid")


@pytest.mark.parametrize("flag", FLAGS.values())
def test_a_mode_as_a_flag(tmp_path: Path, flag: str) -> None:
    """A pooling mode that is one true flag among six, as older files write it."""
    flags = dict.fromkeys(FLAGS.values(), False) | {flag: True}
    assert_same(write_modules(write_bert(tmp_path), pooling=flags, normalize=False))


@pytest.mark.parametrize("mode", FLAGS)
def test_a_mode_by_name(tmp_path: Path, mode: str) -> None:
    """A pooling mode that the file names."""
    assert_same(write_named(tmp_path, {"pooling_mode": mode}))


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode": ["lasttoken", "cls"]},
        {"pooling_mode": ["mean"]},
        {"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": True, "pooling_mode_mean_sqrt_len_tokens": True},
        {"pooling_mode": "max", "pooling_mode_mean_tokens": True},
    ],
)
def test_several_modes(tmp_path: Path, pooling: dict[str, Any]) -> None:
    """Named modes concatenate in the file's order, flags in a fixed one; a name wins over flags."""
    assert_same(write_named(tmp_path, pooling))


@pytest.mark.parametrize("pooling", [{}, dict.fromkeys(FLAGS.values(), False)])
def test_no_mode(tmp_path: Path, pooling: dict[str, Any]) -> None:
    """A pooling without a mode, and one with no flag true, is the mean."""
    assert_same(write_named(tmp_path, pooling))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_dense(tmp_path: Path, activation: str, *, normalize: bool) -> None:
    """A Dense module with each activation, with and without a Normalize after it."""
    dense = {"activation_function": f"torch.nn.modules.{activation}"}
    assert_same(write_modules(write_bert(tmp_path), dense=dense, normalize=normalize))


RESIDUAL = {"use_residual": True}


@pytest.mark.parametrize(
    "settings",
    [{"bias": False}, {"out_features": 40}, {"module_output_name": None}, RESIDUAL, {**RESIDUAL, "out_features": 16}],
)
def test_dense_settings(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A Dense without bias, one that widens, one as newer files spell it, and ones that add what they were given."""
    assert_same(write_modules(write_bert(tmp_path), dense=settings))


def test_dense_takes_all_modes(tmp_path: Path) -> None:
    """A Dense after two modes takes both."""
    pooling = {"pooling_mode": ["mean", "max"]}
    assert_same(write_modules(write_bert(tmp_path), pooling=pooling, dense={"in_features": 32}))


@pytest.mark.parametrize("normalize", [False, True])
def test_normalize(tmp_path: Path, *, normalize: bool) -> None:
    """Rows have length 1 where the chain ends in Normalize, and their own length where it does not."""
    assert_same(write_modules(write_bert(tmp_path), normalize=normalize))


def test_no_modules(tmp_path: Path) -> None:
    """A bare transformer, without modules.json, gets mean pooling and no Normalize."""
    assert_same(write_bert(tmp_path))


def test_saved_by_sentence_transformers(tmp_path: Path) -> None:
    """A chain that sentence-transformers itself has saved."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
    from torch.nn import Sigmoid

    transformer = Transformer(str(write_bert(tmp_path / "bert")), max_seq_length=12)
    pooling = Pooling(16, ("weightedmean", "cls"))
    dense = Dense(32, 24, activation_function=Sigmoid())
    model = SentenceTransformer(
        modules=[transformer, pooling, dense, Normalize()], prompts={"query": "the query : "}, device="cpu"
    )
    model.save(str(tmp_path / "saved"))
    assert_same(tmp_path / "saved")
    assert_same(tmp_path / "saved", prompt_name="query")
    assert ours(tmp_path / "saved").shape[1] == 24


def write_named(folder: Path, pooling: dict[str, Any]) -> Path:
    """A tiny model whose pooling file holds just this and the width by its newer name."""
    write_modules(write_bert(folder), normalize=False)
    write_json(folder / "1_Pooling/config.json", {"embedding_dimension": 16, **pooling})
    return folder


def test_layer_norm(tmp_path: Path) -> None:
    """A LayerNorm after the pooling, as the library saves it."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Normalize

    model = SentenceTransformer(str(write_modules(write_bert(tmp_path / "bert"), normalize=False)), device="cpu")
    norm = LayerNorm(16)
    torch.nn.init.normal_(norm.norm.weight)
    torch.nn.init.normal_(norm.norm.bias)
    model.append(norm)
    model.append(Normalize())
    model.save(str(tmp_path / "saved"))
    assert_same(tmp_path / "saved")


@pytest.mark.parametrize("mode", FLAGS)
@pytest.mark.parametrize("name", ["query", "none"])
def test_prompts_left_out_of_the_pooling(tmp_path: Path, mode: str, name: str) -> None:
    """include_prompt false leaves the prompt's tokens, and the special ones before it, out of each pooling."""
    pooling = {"pooling_mode": mode, "include_prompt": False}
    prompts = {"prompts": {"query": "query : ", "none": ""}}
    assert_same(write_modules(write_bert(tmp_path), pooling=pooling, prompts=prompts), prompt_name=name)
