"""A request with its inputs as tokens, and what is asked of them before and after the engine."""

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
from msgspec.structs import replace

from vecmill.errors import RequestError
from vecmill.model.document import Reading
from vecmill.model.tokens import Tokens


class Prepared(msgspec.Struct, frozen=True):
    """A request ready for the queue.

    Attributes:
        tokens: What the engine reads: each input whole, or its chunks.
        owners: Which of the request's inputs each is of, ascending.
        weights: How much each counts beside the other chunks of its input.
        faults: Inputs that have no answer, and why.
        vocabulary: How token ids were read; None where there were none.
        seconds: What it took.
        document: Where each input's states are, where the inputs are one document and `tokens` its windows.
    """

    tokens: list[Tokens]
    owners: Sequence[int]
    weights: Sequence[int]
    faults: dict[int, RequestError]
    vocabulary: str | None
    seconds: float
    document: Reading | None = None

    @property
    def in_chunks(self) -> bool:
        """Whether there is more than one of some input."""
        return self.document is None and len(set(self.owners)) < len(self.owners)

    @property
    def counts(self) -> list[int]:
        """Tokens of each input."""
        if self.document is not None:
            return self.document.counts
        if not self.in_chunks:
            return [len(one.ids) for one in self.tokens]
        sizes: dict[int, int] = {}
        for owner, one in zip(self.owners, self.tokens, strict=True):
            sizes[owner] = sizes.get(owner, 0) + len(one.ids)
        return list(sizes.values())

    def without(self, rows: Mapping[int, RequestError]) -> tuple[Self, list[int]]:
        """What is left where some of `tokens` failed, and their inputs with them; and which of `tokens` are left."""
        faults = self.faults | {self.owners[row]: fault for row, fault in rows.items()}
        left = [row for row, owner in enumerate(self.owners) if owner not in faults]
        tokens = [self.tokens[row] for row in left]
        owners, weights = [self.owners[row] for row in left], [self.weights[row] for row in left]
        return replace(self, tokens=tokens, owners=owners, weights=weights, faults=faults), left

    def only(self, row: int) -> Self:
        """One of `tokens` alone."""
        return replace(self, tokens=[self.tokens[row]], owners=[self.owners[row]], weights=[self.weights[row]])
