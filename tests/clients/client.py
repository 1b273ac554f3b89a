"""What a client library can be asked here, whatever it calls it: a row of functions of a server's address."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""The name that the embedding servers serve the demo model under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A class of a library that embeds texts.

    Attributes:
        name: The class.
        embed: The server's address, a model and texts to vectors.
        unknown: What it raises for a model that is not served; None where it names no model.
        empty: What it raises for an empty text.
        refused: What it raises for a 429; None where it tries again and succeeds.
    """

    name: str
    embed: Callable[[str, str, list[str]], Any]
    unknown: type[Exception] | None
    empty: type[Exception]
    refused: type[Exception] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A class of a library that puts texts in order.

    Attributes:
        name: The class.
        rank: The server's address, a query and texts to places and scores, the best first.
        raw: Whether the scores are logits.
    """

    name: str
    rank: Callable[[str, str, list[str]], Sequence[tuple[int, float]]]
    raw: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A class of a library that labels texts.

    Attributes:
        name: The class.
        classify: The server's address and texts to the scores of each text's labels.
    """

    name: str
    classify: Callable[[str, list[str]], Sequence[dict[str, float]]]
