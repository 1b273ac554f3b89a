"""A request whose inputs the engine was asked one by one: those that failed are taken out, the others keep theirs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vecmill.engine.base import Column
from vecmill.errors import EngineFailed, EngineLost
from vecmill.serving.cache import Key, Plan
from vecmill.serving.prepared import Prepared

Outcome = list[Column] | BaseException


def settle(prepared: Prepared, ask: Plan, outcomes: Sequence[Outcome]) -> tuple[Prepared, Plan, list[Column]]:
    """The request without the inputs that failed, its plan, and columns of what that plan asks.

    Args:
        prepared: The whole request.
        ask: Its plan.
        outcomes: Of each input that was asked alone: its columns, or what befell it.

    Raises:
        BaseException: An outcome that is not the fault of an input.
    """
    by_key = dict(zip((ask.keys[place] for place in ask.asked), outcomes, strict=True))
    failed = {}
    for row, key in enumerate(ask.keys):
        outcome = by_key.get(key)
        if isinstance(outcome, EngineFailed) and not isinstance(outcome, EngineLost):
            failed[row] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
    prepared, left = prepared.without(failed)
    keys = [ask.keys[row] for row in left]
    known = {place: ask.known[row] for place, row in enumerate(left) if row in ask.known}
    firsts: dict[Key, int] = {}
    for place, key in enumerate(keys):
        if place not in known:
            firsts.setdefault(key, place)
    asked = list(firsts.values())
    answers = [by_key[keys[place]] for place in asked]
    columns: list[Column] = [_joined(column) for column in zip(*answers, strict=True)]
    return prepared, Plan(keys, known, asked), columns


def _joined(parts: Sequence[Any]) -> Column:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [part[0] for part in parts]
