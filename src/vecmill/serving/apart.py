"""A request whose inputs the engine was asked one by one: those that failed are taken out, the others keep theirs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vecmill.engine.base import Column
from vecmill.errors import EngineFailed, EngineLost, RequestError
from vecmill.serving.asking import Answers
from vecmill.serving.prepared import Prepared


def settle(prepared: Prepared, outcomes: Sequence[Answers | BaseException]) -> tuple[Prepared, Answers]:
    """The request without the inputs that failed, and the answers of the others.

    Args:
        prepared: The whole request.
        outcomes: Of each input that was asked alone: its answer, or what befell it.

    Raises:
        BaseException: An outcome that is not the fault of an input.
    """
    failed: dict[int, RequestError] = {}
    answered: dict[int, Answers] = {}
    for row, outcome in enumerate(outcomes):
        if isinstance(outcome, Answers):
            answered[row] = outcome
        elif isinstance(outcome, EngineFailed) and not isinstance(outcome, EngineLost):
            failed[row] = outcome
        else:
            raise outcome
    prepared, left = prepared.without(failed)
    parts = [answered[row] for row in left]
    columns: list[Column] = [_joined(column) for column in zip(*(part.columns for part in parts), strict=True)]
    began = min((part.started for part in parts if part.started), default=0.0)
    return prepared, Answers(columns, sum(part.cached for part in parts), began)


def _joined(parts: Sequence[Any]) -> Column:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [part[0] for part in parts]
