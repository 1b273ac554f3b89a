"""Weights in fewer bits, and the products that take them.

int8: weights per output channel, activations per token, both symmetric. A token's scale depends on that token alone, so
a row still does not depend on its batch mates, as it does under ONNX Runtime's own dynamic quantisation (one scale for
the whole batch); and a token with large values does not cost the others their precision.

int4: weights in blocks of 32 along the input with a scale each (round to nearest), activations as they are in the
operator. It saves memory; on CPUs it is no faster than float32.

Tables of embeddings are int8 in both, with a scale a row. Figures: docs/decisions/0005-int8-per-token.md.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PRECISIONS = ("float32", "int8", "int4")
"""What weights can be kept in."""

BLOCK = 32
"""Inputs that share a scale in int4."""

WIDE = 127
NARROW = 63
"""Largest weight where products of pairs are added in 16 bits: 255 * 63 * 2 just fits, 255 * 127 * 2 does not."""

ACTIVATION_ZERO = 128
"""Activations are unsigned for ONNX Runtime's fast kernels: 128 stands for 0."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """Integers and their scales.

    Attributes:
        values: int8, or two int4 a uint8.
        scales: float32; what an integer is multiplied by.
    """

    values: NDArray[np.int8 | np.uint8]
    scales: NDArray[np.float32]


def columns(weight: NDArray[np.float32], largest: int) -> Quantized:
    """A weight [out, in] as int8 [in, out] with a scale for each output."""
    scales = _scales(np.abs(weight).max(axis=1), largest)
    values = np.rint(weight / scales[:, None]).astype(np.int8)
    return Quantized(np.ascontiguousarray(values.T), scales)


def rows(table: NDArray[np.float32]) -> Quantized:
    """A table [rows, width] as int8 with a scale for each row."""
    scales = _scales(np.abs(table).max(axis=1), WIDE)
    return Quantized(np.rint(table / scales[:, None]).astype(np.int8), scales)


def blocks(weight: NDArray[np.float32]) -> Quantized:
    """A weight [out, in] as int4: uint8 [out, blocks, 16], low half first, 8 standing for 0; scales [out, blocks]."""
    out, into = weight.shape
    padded = np.zeros((out, -(-into // BLOCK) * BLOCK), dtype=np.float32)
    padded[:, :into] = weight
    grouped = padded.reshape(out, -1, BLOCK)
    scales = _scales(np.abs(grouped).max(axis=2), 7)
    values = (np.rint(grouped / scales[:, :, None]) + 8).astype(np.uint8)
    return Quantized(values[:, :, 0::2] | (values[:, :, 1::2] << 4), scales)


def largest_weight(cpuinfo: Path = Path("/proc/cpuinfo")) -> int:
    """127 where the CPU multiplies bytes into 32 bits (VNNI, or ARM's dot product), else 63: nothing may overflow."""
    try:
        text = cpuinfo.read_text()
    except OSError:  # not Linux: assume the least
        return NARROW
    flags = set(text.split())
    return WIDE if flags & {"avx512_vnni", "avx_vnni", "asimddp"} else NARROW


def _scales(peaks: NDArray[np.float32], largest: int) -> NDArray[np.float32]:
    """Scales under which the peaks become the largest integer; 1 where all is zero."""
    scales: NDArray[np.float32] = np.where(peaks > 0, peaks / np.float32(largest), np.float32(1)).astype(np.float32)
    return scales
