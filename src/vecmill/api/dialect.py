"""What a wire format is: a table of routes and pure functions. Dialects know neither each other nor an engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from vecmill import errors
from vecmill.asks import Ask

Headers = Mapping[str, str]
"""Header values by lower-case name."""

Keys = Mapping[str, msgspec.Raw]
"""The keys of a body that are not null, with their values as they came."""


class Nothing(msgspec.Struct):
    """What is asked without a body."""


def no_headers(_body: object, _answer: object) -> dict[str, str]:
    """No headers of the dialect's own."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One kind of request of a dialect.

    Attributes:
        paths: All paths that answer it, the canonical one first. What stands at {model} is the served name that is
            asked, whatever the body says.
        body: The wire type that a request's JSON is decoded into; on GET, the query.
        parse: Body and headers to the neutral question; raises InvalidRequest.
        render: Body and answer to the reply's wire object, whose vectors are JSON already; to its bytes where they are
            not JSON. Pure; may run on any thread.
        answer: The wire type of the reply, or a tuple of them, for the OpenAPI document.
        summary: A line for the OpenAPI document.
        method: How it is asked.
        when: Whether a body is of this dialect, by its keys and headers, where others share the path. None takes what
            no other wants.
        headers: Body and answer to headers of the reply; a content-type where that is not JSON.
        key: Where a body holds the API key: its keys to the key. A header that holds one counts for more.
        names: For errors what the wire calls a field of ours (`input` or one of `Options`) that it has under another
            name; of several names the first that the body has, else the first.
        read: Decoder of `body`, bytes and headers to the body, where not all of it is JSON; raises InvalidRequest.
        any_model: Where one model is served it answers to any name, on paths that no other dialect answers.
        takes: What content-type may say besides JSON; */* is anything.
    """

    paths: tuple[str, ...]
    body: type[msgspec.Struct]
    parse: Callable[[Any, Headers], Ask]
    render: Callable[[Any, Any], object]
    answer: Any
    summary: str
    method: Literal["GET", "POST"] = "POST"
    when: Callable[[Keys, Headers], bool] | None = None
    headers: Callable[[Any, Any], dict[str, str]] = no_headers
    key: Callable[[Keys], str | None] | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    read: Callable[["msgspec.json.Decoder[Any]", bytes, Headers], Any] | None = None
    any_model: bool = False
    takes: tuple[str, ...] = ()

    def words(self, keys: Keys) -> dict[str, str]:
        """What the caller calls each field of `names`, in a body of these keys."""
        return {ours: next((name for name in theirs if name in keys), theirs[0]) for ours, theirs in self.names.items()}


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error as a dialect says it."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Dialect:
    """A wire format.

    Attributes:
        name: For people.
        routes: What it answers.
        render_error: Any error of ours to status and body.
        error: The wire type of an error, for the OpenAPI document.
        owns: Beginnings of paths; where one has no route, this dialect says so.
    """

    name: str
    routes: tuple[Route, ...]
    render_error: Callable[[errors.VecmillError], ErrorReply]
    error: type[msgspec.Struct]
    owns: tuple[str, ...] = ()


STATUSES: dict[type[errors.VecmillError], int] = {
    errors.InvalidRequest: 400,
    errors.Unauthorized: 401,
    errors.UnknownModel: 404,
    errors.UnknownRoute: 404,
    errors.MethodNotAllowed: 405,
    errors.BodyStalled: 408,
    errors.BodyTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.Overloaded: 429,
    errors.ModelLoading: 503,
    errors.ShuttingDown: 503,
    errors.TimedOut: 504,
    errors.EngineFailed: 500,
    errors.VecmillError: 500,
}
"""Error to HTTP's own status for it; a dialect lays its table over this one."""

Value = TypeVar("Value")


def entry(table: Mapping[type[errors.VecmillError], Value], error: errors.VecmillError) -> Value:
    """What a table says of an error; a type that is not listed counts as its parent."""
    return next(table[parent] for parent in type(error).__mro__ if parent in table)


def owner(path: str, dialects: tuple[Dialect, ...], other: Dialect) -> Dialect:
    """The dialect that owns the longest beginning of a path, or the other one."""
    owned = [(len(start), dialect) for dialect in dialects for start in dialect.owns if path.startswith(start)]
    return max(owned, key=lambda one: one[0], default=(0, other))[1]


def by_path(dialects: tuple[Dialect, ...]) -> dict[tuple[str, str], list[tuple[Dialect, Route]]]:
    """Path and method to all that they may mean, the one that takes what no other wants last."""
    table: dict[tuple[str, str], list[tuple[Dialect, Route]]] = {}
    for dialect in dialects:
        for route in dialect.routes:
            for path in route.paths:
                table.setdefault((path, route.method), []).append((dialect, route))
    for choices in table.values():
        choices.sort(key=lambda choice: choice[1].when is None)
    return table
