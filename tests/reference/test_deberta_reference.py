"""The compiled DeBERTa gives the numbers of transformers' DebertaV2Model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import assert_same
from headed import save_encoder
from rotary_encoders import assert_bytes_do_not_depend_on_mates, assert_each_tensor_is_checked, change_config
from states import assert_same_states

from checkpoints import write_modules
from encoders import DEBERTA_V3
from vecmill.errors import LoadError, UnsupportedModel
from vecmill.graph.families.deberta_v2 import Config, table_rows
from vecmill.model.spec import read_spec

pytestmark = pytest.mark.reference

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 39)

V2: dict[str, Any] = {"share_att_key": False, "conv_kernel_size": 3, "conv_act": "gelu", "max_relative_positions": 30}
VARIANTS: dict[str, dict[str, Any]] = {
    "v3": {},
    "v2": V2,
    "wide kernel": {**V2, "conv_kernel_size": 5, "conv_groups": 4, "conv_act": "tanh"},
    "no buckets": {"position_buckets": -1},
    "short reach": {"position_buckets": -1, "max_relative_positions": 6},
    "c2p": {"pos_att_type": "c2p"},
    "p2c": {"pos_att_type": ["p2c"], "share_att_key": False},
    "no kinds": {"pos_att_type": None},
    "no distances": {"relative_attention": False, "position_biased_input": True},
    "positions, types and a projection": {"position_biased_input": True, "type_vocab_size": 2, "embedding_size": 12},
    "no norm": {"norm_rel_ebd": "none"},
    "eight heads": {"num_attention_heads": 8, "hidden_act": "relu"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_states(tmp_path: Path, name: str) -> None:
    """Inputs of 1 to 40 tokens, within the buckets and beyond."""
    assert_same_states(save_encoder(tmp_path, "deberta-v2", **VARIANTS[name]), LENGTHS)


@pytest.mark.parametrize("mode", ["cls", "mean", "lasttoken"])
@pytest.mark.parametrize("name", ["v3", "v2", "c2p", "p2c", "no distances"])
def test_pooling(tmp_path: Path, name: str, mode: str) -> None:
    """Texts of different lengths in one batch and alone; with cls the last layer is of the first token alone."""
    assert_same(write_modules(save_encoder(tmp_path, "deberta-v2", **VARIANTS[name]), pooling={"pooling_mode": mode}))


@pytest.mark.parametrize(("buckets", "reach"), [(256, 512), (8, 40), (32, 128), (64, 4096), (256, 2048), (-1, 512)])
def test_buckets(buckets: int, reach: int) -> None:
    """Every distance is in transformers' bucket, also at the borders, where rounding decides."""
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    config = Config(8, 8, 8, reach, 1, 1, position_buckets=buckets, max_relative_positions=reach)
    distances = np.arange(-2 * reach, 2 * reach + 1)
    wanted = torch.from_numpy(distances)
    if buckets > 0:
        wanted = make_log_bucket_position(wanted, buckets, reach).long()
    span = config.span
    assert table_rows(distances, config).tolist() == (wanted + span).clamp(0, 2 * span - 1).tolist()


@pytest.mark.parametrize("name", ["v3", "v2"])
def test_bytes(tmp_path: Path, name: str) -> None:
    """A text's row has the same bytes alone and in a batch."""
    assert_bytes_do_not_depend_on_mates(save_encoder(tmp_path, "deberta-v2", **VARIANTS[name]))


@pytest.mark.parametrize("name", ["v3", "v2", "positions, types and a projection"])
def test_tensors(tmp_path: Path, name: str) -> None:
    """Each tensor that is absent or of another shape is an error that names it."""
    assert_each_tensor_is_checked(save_encoder(tmp_path, "deberta-v2", **VARIANTS[name]))


def test_heads_of_another_size(tmp_path: Path) -> None:
    """Heads that are not the hidden size together are refused."""
    from vecmill.graph.build import build

    folder = change_config(save_encoder(tmp_path, "deberta-v2"), attention_head_size=8)
    with pytest.raises(UnsupportedModel, match="4 heads of 8 numbers") as refused:
        build(read_spec(folder))
    assert issubclass(refused.type, LoadError)


def test_defaults() -> None:
    """Settings that a file leaves out mean what they mean to transformers."""
    from transformers import DebertaV2Config

    theirs = DebertaV2Config()
    ours = Config(8, 8, 8, 40, 1, 1)
    for name in ("type_vocab_size", "layer_norm_eps", "relative_attention", "max_relative_positions", "hidden_act"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert DEBERTA_V3["position_biased_input"] != theirs.position_biased_input == ours.position_biased_input
