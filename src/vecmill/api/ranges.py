"""Where chunks stand in their document, as it travels."""

from msgspec import UNSET, UnsetType

from vecmill.core import Result

Range = tuple[int, int] | UnsetType
"""From and to; absent where the inputs are no document."""


def ranges(result: Result) -> list[tuple[Range, Range]]:
    """For each vector its range of tokens and of characters."""
    if not result.ranges:
        return [(UNSET, UNSET)] * len(result.rows)
    return [(one.tokens, one.characters or UNSET) for one in result.ranges]
