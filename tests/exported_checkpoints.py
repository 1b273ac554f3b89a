"""Tiny checkpoints whose model is an ONNX file, and the same model in numpy."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from checkpoints import CONFIG, write_json, write_tokenizer

WIDTH = CONFIG["hidden_size"]
RNG = np.random.default_rng(8)
WEIGHTS: dict[str, NDArray[np.float32]] = {
    name: RNG.normal(0, 1, shape).astype(np.float32)
    for name, shape in {
        "words": (CONFIG["vocab_size"], WIDTH),
        "positions": (64, WIDTH),
        "types": (2, WIDTH),
        "product": (WIDTH, WIDTH),
    }.items()
}
SMALL = np.rint(WEIGHTS["product"] * 40).astype(np.int8)
INPUTS = ("input_ids", "attention_mask", "token_type_ids")

Nodes = list[onnx.NodeProto]


def write_exported(folder: Path, file: str = "model.onnx", **options: Any) -> Path:
    """config.json, a tokenizer and an ONNX file; `options` as for `write_onnx`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG)
    write_tokenizer(folder)
    write_onnx(folder / file, **options)
    return folder


def write_onnx(
    path: Path,
    *,
    inputs: Sequence[str] = INPUTS,
    outputs: Sequence[str] = ("last_hidden_state",),
    integers: int = TensorProto.INT64,
    floats: int = TensorProto.FLOAT,
    quantized: bool = False,
    external: bool = False,
) -> None:
    """tanh((word + position + type) W), times the mask where there is one.

    Args:
        path: Where to.
        inputs: Names of the inputs; unknown ones are not used.
        outputs: Names of the outputs; those of `TWO` are rows, others states of tokens.
        integers: Type of the inputs.
        floats: Type of the outputs.
        quantized: W in bytes, what it multiplies scaled by the largest number of the batch.
        external: The weights go into a second file.
    """
    nodes = [*summed(inputs), *(BYTES if quantized else FLOATS)]
    nodes.append(helper.make_node("Tanh", ["multiplied"], ["bare"]))
    nodes += MASKED if "attention_mask" in inputs else [helper.make_node("Identity", ["bare"], ["states"])]
    for name in outputs:
        kind, attributes = TWO.get(name, ("Identity", {}))
        nodes.append(helper.make_node(kind, ["states"], [f"whole_{name}"], **attributes))
        nodes.append(helper.make_node("Cast", [f"whole_{name}"], [name], to=floats))
    graph = helper.make_graph(
        nodes,
        "exported",
        [helper.make_tensor_value_info(name, integers, ["rows", "length"]) for name in inputs],
        [helper.make_tensor_value_info(name, floats, axes(name)) for name in outputs],
        initializer=initializers(quantized=quantized),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    if external:
        onnx.save(model, path, save_as_external_data=True, location=f"{path.name}_data", size_threshold=100)
    else:
        onnx.save(model, path)


def axes(name: str) -> list[str | int]:
    """The shape of an output."""
    return ["rows", WIDTH] if name in TWO else ["rows", "length", WIDTH]


def initializers(*, quantized: bool) -> list[onnx.TensorProto]:
    """The weights and a few constants."""
    arrays: dict[str, NDArray[Any]] = {**WEIGHTS, "zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    if quantized:
        del arrays["product"]
        arrays |= {"small": SMALL, "fortieth": np.array(1 / 40, dtype=np.float32)}
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def summed(inputs: Collection[str]) -> Nodes:
    """Embeddings of what the inputs say."""
    nodes = [helper.make_node("Gather", ["words", "input_ids"], ["word"])]
    if "position_ids" in inputs:
        nodes.append(helper.make_node("Gather", ["positions", "position_ids"], ["position"]))
    else:
        nodes.append(helper.make_node("Shape", ["input_ids"], ["length"], start=1, end=2))
        nodes.append(helper.make_node("Slice", ["positions", "zero", "length", "zero"], ["position"]))
    typed = "token_type_ids" if "token_type_ids" in inputs else "zero"
    nodes.append(helper.make_node("Gather", ["types", typed], ["type"]))
    nodes.append(helper.make_node("Add", ["word", "position"], ["placed"]))
    nodes.append(helper.make_node("Add", ["placed", "type"], ["summed"]))
    return nodes


FLOATS = [helper.make_node("MatMul", ["summed", "product"], ["multiplied"])]
BYTES = [
    helper.make_node("DynamicQuantizeLinear", ["summed"], ["bytes", "scale", "point"]),
    helper.make_node("MatMulInteger", ["bytes", "small", "point"], ["integers"]),
    helper.make_node("Cast", ["integers"], ["whole"], to=TensorProto.FLOAT),
    helper.make_node("Mul", ["whole", "scale"], ["scaled"]),
    helper.make_node("Mul", ["scaled", "fortieth"], ["multiplied"]),
]
MASKED = [
    helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
    helper.make_node("Unsqueeze", ["mask", "two"], ["column"]),
    helper.make_node("Mul", ["bare", "column"], ["states"]),
]
TWO: dict[str, tuple[str, dict[str, Any]]] = {
    "sentence_embedding": ("ReduceMax", {"axes": [1], "keepdims": 0}),
    "pooler_output": ("ReduceMin", {"axes": [1], "keepdims": 0}),
}
"""Outputs that are one row a text; the largest and the least number of its states, so that a test can tell them."""


def states(ids: NDArray[Any], first: int = 0) -> NDArray[np.float32]:
    """The states of the tokens of one text in numpy, float32 [length, width]."""
    positions = WEIGHTS["positions"][first : first + len(ids)]
    result: NDArray[np.float32] = np.tanh(
        (WEIGHTS["words"][ids] + positions + WEIGHTS["types"][0]) @ WEIGHTS["product"]
    )
    return result
