"""What a tokenizer gives an engine."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tokens:
    """One input ready for the engine.

    Attributes:
        ids: int32 [length], special tokens included.
        truncated: Whether it was cut to the limit.
        mark: The place that the model's graph wants to know, as `ModelSpec.mark` says; 0 where it wants none.
        kept: Which tokens' vectors are answered, bool [length]; None for all.
    """

    ids: NDArray[np.int32]
    truncated: bool
    mark: int = 0
    kept: NDArray[np.bool_] | None = None
