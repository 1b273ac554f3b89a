"""Files of torch.save are read without torch as torch reads them."""

from pathlib import Path

import numpy as np
import pytest
from headed import save_encoder

from vecmill.model.pickled import read_pickled
from vecmill.model.weights import read_weights

pytestmark = pytest.mark.reference


def test_what_torch_saves(tmp_path: Path) -> None:
    """Every type, views, turned and tied tensors, parameters, numbers without a shape."""
    import torch

    table = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    saved = {
        **{str(dtype): table.to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64)},
        "whole": table,
        "part": table[1:3, ::2],
        "turned": table.T,
        "tied": table,
        "one": torch.tensor(3.5),
        "parameter": torch.nn.Parameter(table + 1),
        "none": torch.empty(0, 4),
        "wide": table[:1].expand(5, 6),
    }
    torch.save(saved, tmp_path / "pytorch_model.bin")
    weights = read_weights(tmp_path)
    assert set(weights) == set(saved)
    for name, tensor in saved.items():
        wanted = tensor.detach().float().numpy() if tensor.dtype == torch.bfloat16 else tensor.detach().numpy()
        found = weights.stored(name) if tensor.dtype != torch.bfloat16 else weights.array(name, *tensor.shape)
        assert np.array_equal(found, wanted), name


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(tmp_path: Path, protocol: int) -> None:
    """Every protocol of pickle that torch can be told to use."""
    import torch

    torch.save({"x": torch.ones(2, 3)}, tmp_path / "x.bin", pickle_protocol=protocol)
    assert read_pickled(tmp_path / "x.bin")["x"].shape == (2, 3)


def test_a_state_of_a_model(tmp_path: Path) -> None:
    """A model's state, as training scripts save it, holds the tensors that its safetensors hold."""
    import torch
    from safetensors.torch import load_file

    folder = save_encoder(tmp_path, "bert")
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    found = read_pickled(folder / "pytorch_model.bin")
    assert {name: one.data.tobytes() for name, one in found.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in tensors.items()
    }
