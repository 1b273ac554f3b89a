"""What a wire format is: a table of routes and pure functions. Dialects know neither each other nor an engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from vecmill.core import Request, Result
from vecmill.errors import VecmillError

Headers = Mapping[str, str]
"""Header values by lower-case name."""


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request of a dialect, answered on POST.

    Attributes:
        paths: All paths that answer it, the canonical one first.
        body: The wire type that a request's JSON is decoded into.
        parse: Body and headers to the neutral request; raises InvalidRequest.
        render: Body and result to the bytes of the answer. Pure; may run on any thread.
        answer: The wire type of the answer, for the OpenAPI document.
        summary: A line for the OpenAPI document.
    """

    paths: tuple[str, ...]
    body: type[msgspec.Struct]
    parse: Callable[[Any, Headers], Request]
    render: Callable[[Any, Result], bytes]
    answer: type[msgspec.Struct]
    summary: str


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
    """

    name: str
    routes: tuple[Route, ...]
    render_error: Callable[[VecmillError], ErrorReply]
    error: type[msgspec.Struct]
