"""A checkpoint on the ONNX file that torch exports of it gives the rows of sentence-transformers on torch."""

from pathlib import Path
from typing import Any

import pytest
from comparison import assert_close, ours, theirs

from checkpoints import write_bert, write_json, write_modules

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("ignore")]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
AXES = {0: "batch", 1: "sequence"}


def export(folder: Path, inputs: tuple[str, ...]) -> None:
    """Write onnx/model.onnx as exporters do: with masks, of a batch and a length of any size."""
    import torch
    from transformers import AutoModel

    class Bare(torch.nn.Module):  # type: ignore[misc]  # torch is Any here
        """The model with inputs by position."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = AutoModel.from_pretrained(folder)

        def forward(self, *given: Any) -> Any:
            """The states and the pooler's row."""
            answer = self.inner(**dict(zip(inputs, given, strict=True)))
            return answer.last_hidden_state, answer.pooler_output

    ids = torch.ones((2, 7), dtype=torch.int64)
    (folder / "onnx").mkdir()
    torch.onnx.export(
        Bare().eval(),
        (ids,) * len(inputs),
        folder / "onnx/model.onnx",
        input_names=list(inputs),
        output_names=["last_hidden_state", "pooler_output"],
        dynamic_axes={**dict.fromkeys([*inputs, "last_hidden_state"], AXES), "pooler_output": {0: "batch"}},
        opset_version=18,
        dynamo=False,
    )


@pytest.mark.parametrize("inputs", [INPUTS, INPUTS[:2]])
@pytest.mark.parametrize(
    "chain",
    [
        {},
        {"pooling": {"pooling_mode": "cls"}},
        {"pooling": {"pooling_mode": ["max", "lasttoken"]}, "normalize": False},
        {"pooling": {"pooling_mode": "weightedmean"}, "dense": {"out_features": 8}},
    ],
)
def test_rows(tmp_path: Path, chain: dict[str, Any], inputs: tuple[str, ...]) -> None:
    """Pooling, Dense and Normalize follow the exported states, for texts of 3 to 40 tokens in one batch."""
    folder = write_modules(write_bert(tmp_path), **chain)
    wanted = theirs(folder)
    export(folder, inputs)
    (folder / "model.safetensors").unlink()
    assert_close(ours(folder), wanted)


def test_an_architecture_without_a_family(tmp_path: Path) -> None:
    """What vecmill cannot build runs on its file, and gives the same."""
    folder = write_modules(write_bert(tmp_path))
    wanted = theirs(folder)
    export(folder, INPUTS)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"model_type": "bert"', '"model_type": "llamaphant"'))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": 40})
    assert_close(ours(folder), wanted)
