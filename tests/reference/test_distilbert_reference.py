"""DistilBERT: the settings that are its own."""

from pathlib import Path

import pytest
from comparison import assert_same
from states import assert_same_states

from checkpoints import write_modules
from encoders import write_encoder
from vecmill.model.spec import read_spec

pytestmark = pytest.mark.reference


def test_sinusoidal_positions(tmp_path: Path) -> None:
    """A checkpoint with positions that were not learned holds them all the same."""
    import torch
    from transformers import AutoConfig, AutoModel

    write_encoder(tmp_path, "distilbert", sinusoidal_pos_embds=True)
    (tmp_path / "model.safetensors").unlink()
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.from_pretrained(str(tmp_path))).save_pretrained(tmp_path)
    assert_same_states(tmp_path)


def test_the_width_is_dim(tmp_path: Path) -> None:
    """The width of rows is what the config calls dim, through a Dense and without."""
    assert read_spec(write_encoder(tmp_path, "distilbert", dim=24)).dims == 24
    assert_same(write_modules(tmp_path, dense={"in_features": 24}))
