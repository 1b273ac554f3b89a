"""ALBERT: layers that share their weights."""

import json
from pathlib import Path

import pytest
from states import assert_same_states

from checkpoints import write_json
from encoders import write_encoder

pytestmark = pytest.mark.reference


@pytest.mark.parametrize(
    ("layers", "groups", "inner"),
    [(1, 1, 1), (12, 1, 1), (4, 4, 1), (5, 2, 1), (7, 3, 2), (2, 1, 3), (1, 2, 1), (12, 5, 1)],
)
def test_groups(tmp_path: Path, layers: int, groups: int, inner: int) -> None:
    """Layers are dealt to groups as transformers deals them, also where the numbers do not divide."""
    changes = {"num_hidden_layers": layers, "num_hidden_groups": groups, "inner_group_num": inner}
    assert_same_states(write_encoder(tmp_path, "albert", **changes))


@pytest.mark.parametrize("width", [8, 16, 40])
def test_embedding_size(tmp_path: Path, width: int) -> None:
    """Embeddings are projected to the width of the layers, also where it is theirs."""
    assert_same_states(write_encoder(tmp_path, "albert", embedding_size=width))


@pytest.mark.parametrize("key", ["hidden_act", "num_hidden_groups", "inner_group_num", "embedding_size"])
def test_a_setting_that_is_missing(tmp_path: Path, key: str) -> None:
    """A setting that config.json leaves out has transformers' default: gelu_new, one group of one layer, 128."""
    defaults = {"hidden_act": "gelu_new", "num_hidden_groups": 1, "inner_group_num": 1, "embedding_size": 128}
    write_encoder(tmp_path, "albert", **defaults)
    config = json.loads((tmp_path / "config.json").read_text())
    del config[key]
    write_json(tmp_path / "config.json", config)
    assert_same_states(tmp_path)
