"""What a tokenizer is asked for, and what it gives an engine."""

import msgspec
import numpy as np
from numpy.typing import NDArray


class Tokens(msgspec.Struct, frozen=True):
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


class Cut(msgspec.Struct, frozen=True):
    """How a caller wishes long inputs to be cut, where the model's own way is not wanted.

    Attributes:
        side: The end that is cut off, "left" or "right"; None is the model's own.
        max_tokens: Most tokens, special tokens included; None is the model's own.
        second_tokens: Of a pair most tokens of the second text; None is all that fit.
    """

    side: str | None = None
    max_tokens: int | None = None
    second_tokens: int | None = None


OWN = Cut()
