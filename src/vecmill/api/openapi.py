"""The OpenAPI document, from the same wire types that decode the requests."""

from dataclasses import dataclass
from typing import Any

import msgspec

from vecmill import __version__
from vecmill.api.dialect import Dialect, Route, by_path

REF = "#/components/schemas/{name}"

Operation = dict[str, Any]

Schemas = dict[str, dict[str, Any]]
"""Schema by wire type, as it is written."""


@dataclass(frozen=True, slots=True)
class Page:
    """What the document says of a path that is no dialect's.

    Attributes:
        summary: A line.
        answer: The wire type of its answer; None where there is none.
        media_type: What the answer is, and the body on POST.
        method: How it is asked, "get" or "post".
    """

    summary: str
    answer: type[msgspec.Struct] | None = None
    media_type: str = "application/json"
    method: str = "get"


def document(dialects: tuple[Dialect, ...], pages: dict[str, Page]) -> dict[str, Any]:
    """OpenAPI 3.1 of every route.

    Args:
        dialects: What is answered on POST.
        pages: What is answered besides, by path.
    """
    routes = [route for dialect in dialects for route in dialect.routes]
    answers = [page.answer for page in pages.values() if page.answer]
    kinds = [kind for route in routes for kind in (route.body, *_answers(route))] + answers
    kinds += [dialect.error for dialect in dialects]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    schema_of = dict(zip(map(str, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Operation]] = {
        path: {page.method: _page(path, page, schema_of)} for path, page in pages.items()
    }
    for (path, method), choices in by_path(dialects).items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, choices, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "vecmill", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(path: str, choices: list[tuple[Dialect, Route]], schema_of: Schemas) -> Operation:
    """What a path answers; where several dialects share it, each in turn."""
    routes = [route for _, route in choices]
    others: Operation = {kind: {} for route in routes for kind in route.takes}
    body = {"required": True, "content": _json([route.body for route in routes], schema_of) | others}
    answers = _json([kind for route in routes for kind in _answers(route)], schema_of)
    errors = _json([dialect.error for dialect, _ in choices], schema_of)
    return {
        "summary": "; or: ".join(dict.fromkeys(route.summary for route in routes)),
        "tags": list(dict.fromkeys(dialect.name for dialect, _ in choices)),
        "parameters": _parameters(path),
        **({"requestBody": body} if routes[0].method == "POST" else {}),
        "responses": {
            "200": {"description": "The answer", "content": answers},
            "default": {"description": "What went wrong", "content": errors},
        },
    }


def _answers(route: Route) -> tuple[Any, ...]:
    return route.answer if isinstance(route.answer, tuple) else (route.answer,)


def _page(path: str, page: Page, schema_of: Schemas) -> Operation:
    content = _json([page.answer], schema_of) if page.answer else {page.media_type: {}}
    body = {"requestBody": {"required": True, "content": {page.media_type: {}}}} if page.method == "post" else {}
    return {
        **body,
        "summary": page.summary,
        "tags": ["Server"],
        "parameters": _parameters(path),
        "responses": {"200": {"description": "The answer", "content": content}},
    }


def _parameters(path: str) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _json(kinds: list[Any], schema_of: Schemas) -> dict[str, Any]:
    distinct = list({str(schema): schema for schema in (schema_of[str(kind)] for kind in kinds)}.values())
    return {"application/json": {"schema": distinct[0] if len(distinct) == 1 else {"oneOf": distinct}}}
