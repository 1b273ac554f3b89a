"""Which ONNX file of a repository is the model, by the names that exporters give.

`onnx/model.onnx` is what optimum, sentence-transformers and transformers.js write, `model.onnx` what lies beside
config.json; quantised ones have a word more. Large models keep their weights in a second file beside the first.
"""

from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path

NAMES = {
    "float32": ("model.onnx",),
    "int8": ("model_quantized.onnx", "model_int8.onnx", "model_qint8_*.onnx", "model_quint8_*.onnx"),
}
"""Precision to names, the best first; of several that fit a pattern the first in the alphabet is taken, so that a
model has the same numbers on every machine."""

FOLDERS = ("onnx/", "")

DATA = ("_data", ".data")
"""What follows a file's name in the name of the file with its weights."""


def choose_onnx(files: Collection[str], precision: str) -> str | None:
    """The file for a precision among `files`, which are relative paths with slashes; None where there is none."""
    for name in NAMES.get(precision, ()):
        for folder in FOLDERS:
            if found := sorted(file for file in files if fnmatchcase(file, folder + name)):
                return found[0]
    return None


def served_onnx(files: Collection[str]) -> list[str]:
    """The file of each precision with its weights, the weights first and the float32 model last."""
    models = [file for precision in ("int8", "float32") if (file := choose_onnx(files, precision))]
    return [*sorted(file for file in files if file.startswith(_data_of(models))), *models]


def onnx_files(folder: Path) -> list[str]:
    """The ONNX files of a checkpoint, as relative paths with slashes."""
    return sorted(path.relative_to(folder).as_posix() for place in FOLDERS for path in folder.glob(f"{place}*.onnx"))


def size_bytes(folder: Path, file: str) -> int:
    """Bytes of a file and of the weights beside it."""
    path = folder / file
    beside = [other for other in path.parent.iterdir() if other.name.startswith(_data_of([path.name]))]
    return sum(part.stat().st_size for part in [path, *beside])


def _data_of(models: list[str]) -> tuple[str, ...]:
    return tuple(model + ending for model in models for ending in DATA)
