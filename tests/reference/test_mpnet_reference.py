"""MPNet: the relative position bias."""

from pathlib import Path

import numpy as np
import pytest
from states import assert_same_states

from encoders import write_encoder
from vecmill.graph.families.mpnet import buckets

pytestmark = pytest.mark.reference


def test_buckets() -> None:
    """Each distance of up to 4,000 tokens falls into transformers' bucket, also those on a border."""
    import torch
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = np.arange(-4000, 4001)
    wanted = MPNetEncoder.relative_position_bucket(torch.tensor(distances)).numpy()
    assert np.array_equal(buckets(distances), wanted)


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_heads(tmp_path: Path, heads: int) -> None:
    """Each head has its own bias."""
    assert_same_states(write_encoder(tmp_path, "mpnet", num_attention_heads=heads), (1, 2, 9, 17, 33))


def test_distances_of_every_bucket(tmp_path: Path) -> None:
    """Inputs so long that all buckets are used, with weights that make the bias count."""
    assert_same_states(write_encoder(tmp_path, "mpnet", max_position_embeddings=302), (128, 200, 299))
