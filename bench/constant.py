"""`vecmill serve` with an engine that answers at once: what is left is the server's own work.

usage: constant.py [arguments of vecmill serve]
"""

from collections.abc import Sequence

import numpy as np

from vecmill import cli
from vecmill.core import Output
from vecmill.engine.base import ENGINES, Batch, Column, Engine
from vecmill.model.spec import ModelSpec


class Constant(Engine):
    """The same vector for every input."""

    weight_bytes = 0
    shared = True

    def __init__(self, spec: ModelSpec, **_: object) -> None:
        self._row = np.full((1, spec.dims), spec.dims**-0.5, dtype=np.float32)

    def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
        """Rows for one batch."""
        return [np.repeat(self._row, len(batch.lengths), axis=0) for _ in outputs]

    def close(self) -> None:
        """Nothing is held."""


if __name__ == "__main__":
    ENGINES["onnx"] = "constant:Constant"
    cli.main()
