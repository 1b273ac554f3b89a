"""One encoder, two programs: rows of vecmill's engine beside the mean states of transformers on torch."""

from pathlib import Path
from typing import Any

import numpy as np
from comparison import assert_close
from numpy.typing import NDArray

from vecmill.engine.base import Batch, load_engine
from vecmill.model.spec import read_spec

Ids = NDArray[np.int32]


def assert_same_states(folder: Path, lengths: tuple[int, ...] = (1, 2, 7, 23)) -> None:
    """Both programs give the same mean states, for inputs of each length and of the limit, together and alone.

    The checkpoint is a bare transformer; its padding is left out of the inputs.
    """
    spec = read_spec(folder)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(5, spec.vocab_size, length).astype(np.int32) for length in (*lengths, 7, spec.max_tokens)]
    wanted = mean_states(folder, inputs)
    engine = load_engine("onnx", spec, threads=1)
    assert_close(engine.run(Batch.pack(inputs)), wanted)
    assert_close(np.concatenate([engine.run(Batch.pack([ids])) for ids in inputs]), wanted)


def mean_states(folder: Path, inputs: list[Ids]) -> NDArray[np.float32]:
    """The mean of transformers' last hidden states of each input alone, float32 [inputs, width]."""
    import torch

    torch.set_num_threads(1)  # on models this small more threads only wait for each other
    model = load_transformer(folder)
    with torch.no_grad():
        rows = [model(torch.tensor(ids[None]).long()).last_hidden_state.mean(1).numpy() for ids in inputs]
    return np.concatenate(rows)


def load_transformer(folder: Path) -> Any:
    """The checkpoint in transformers, in float32; its tensors are all used, and none but the pooler's is missing."""
    from transformers import AutoModel

    model, told = AutoModel.from_pretrained(str(folder), dtype="float32", output_loading_info=True)
    assert {name for name in told["missing_keys"] if not name.startswith("pooler.")} == set()
    assert set(told["unexpected_keys"]) | set(told["mismatched_keys"]) == set()
    return model.eval()
