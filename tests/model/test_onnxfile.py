"""Which ONNX file of a repository is the model."""

from pathlib import Path

import pytest

from vecmill.model.onnxfile import choose_onnx, onnx_files, served_onnx, size_bytes

SENTENCE_TRANSFORMERS = [
    *("onnx/model.onnx", "onnx/model_O1.onnx", "onnx/model_O4.onnx", "onnx/model_qint8_arm64.onnx"),
    *("onnx/model_qint8_avx512.onnx", "onnx/model_quint8_avx2.onnx"),
]
TRANSFORMERS_JS = ["onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx"]


@pytest.mark.parametrize(
    ("files", "precision", "wanted"),
    [
        (SENTENCE_TRANSFORMERS, "float32", "onnx/model.onnx"),
        (SENTENCE_TRANSFORMERS, "int8", "onnx/model_qint8_arm64.onnx"),
        (TRANSFORMERS_JS, "int8", "onnx/model_quantized.onnx"),
        (["model.onnx", "onnx/model.onnx"], "float32", "onnx/model.onnx"),
        (["model.onnx", "model_int8.onnx"], "float32", "model.onnx"),
        (["model.onnx", "model_int8.onnx"], "int8", "model_int8.onnx"),
        (["onnx/model_int8.onnx", "model_quantized.onnx"], "int8", "model_quantized.onnx"),
        (["model.onnx"], "int8", None),
        (["model.onnx"], "int4", None),
        (["other.onnx", "openvino/model.onnx", "onnx/x/model.onnx", "model.onnx_data"], "float32", None),
        ([], "float32", None),
    ],
)
def test_chooses(files: list[str], precision: str, wanted: str | None) -> None:
    """One file for a precision by its name, whatever the order and the machine."""
    assert choose_onnx(files, precision) == choose_onnx(files[::-1], precision) == wanted


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        (SENTENCE_TRANSFORMERS, ["onnx/model_qint8_arm64.onnx", "onnx/model.onnx"]),
        (TRANSFORMERS_JS, ["onnx/model.onnx_data", "onnx/model_quantized.onnx", "onnx/model.onnx"]),
        (
            ["model.onnx", "model.onnx.data", "model.onnx_data_1", "x.onnx_data"],
            ["model.onnx.data", "model.onnx_data_1", "model.onnx"],
        ),
        (["x.onnx", "model.onnx_data"], []),
    ],
)
def test_what_is_fetched(files: list[str], wanted: list[str]) -> None:
    """The file of each precision with its weights, and the plain model last."""
    assert served_onnx(files) == wanted


def test_on_disk(tmp_path: Path) -> None:
    """The folder and its `onnx` folder are looked through, and a file counts with its weights."""
    for name, size in {"model.onnx": 1, "onnx/model.onnx": 2, "onnx/model.onnx_data": 30, "x/model.onnx": 4}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    assert onnx_files(tmp_path) == ["model.onnx", "onnx/model.onnx"]
    assert (size_bytes(tmp_path, "onnx/model.onnx"), size_bytes(tmp_path, "model.onnx")) == (32, 1)
