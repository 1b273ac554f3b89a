"""The graph that torch exports of a model, for a rival that wants one; runs in the rival's environment.

usage: export.py FOLDER        (writes FOLDER/model.onnx)
"""

import sys
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
OUTPUT = "last_hidden_state"


class States(torch.nn.Module):  # type: ignore[misc]  # torch is not in the environment that is checked
    """The network with its inputs in order."""

    def __init__(self, network: Any) -> None:  # noqa: ANN401 (transformers' own classes)
        super().__init__()
        self.network = network

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 (tensors)
        """States of tokens."""
        return self.network(**dict(zip(INPUTS, inputs, strict=True)))[OUTPUT]


def main(folder: str) -> None:
    """Export one model."""
    network = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    texts = AutoTokenizer.from_pretrained(folder)(["hello", "a longer text"], padding=True, return_tensors="pt")
    torch.onnx.export(
        States(network),
        tuple(texts[name] for name in INPUTS),
        f"{folder}/model.onnx",
        input_names=INPUTS,
        output_names=[OUTPUT],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in [*INPUTS, OUTPUT]},
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main(sys.argv[1])
