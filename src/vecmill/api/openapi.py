"""The OpenAPI document, from the same wire types that decode the requests."""

from dataclasses import dataclass
from typing import Any

import msgspec

from vecmill import __version__
from vecmill.api.dialect import Dialect, Route

REF = "#/components/schemas/{name}"

Operation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """What the document says of a path that is asked on GET.

    Attributes:
        summary: A line.
        answer: The wire type of its answer; None where there is none.
        media_type: What the answer is.
    """

    summary: str
    answer: type[msgspec.Struct] | None = None
    media_type: str = "application/json"


def document(dialects: tuple[Dialect, ...], pages: dict[str, Page]) -> dict[str, Any]:
    """OpenAPI 3.1 of every route.

    Args:
        dialects: What is answered on POST.
        pages: What is answered on GET, by path.
    """
    answers = [page.answer for page in pages.values() if page.answer]
    kinds = [kind for d in dialects for r in d.routes for kind in (r.body, r.answer, d.error)] + answers
    _, components = msgspec.json.schema_components(kinds, ref_template=REF)
    paths = {path: {"get": _page(path, page)} for path, page in pages.items()}
    for dialect in dialects:
        for route in dialect.routes:
            paths |= {path: {"post": _operation(dialect, route)} for path in route.paths}
    return {
        "openapi": "3.1.0",
        "info": {"title": "vecmill", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(dialect: Dialect, route: Route) -> Operation:
    return {
        "summary": route.summary,
        "tags": [dialect.name],
        "requestBody": {"required": True, "content": _json(route.body)},
        "responses": {
            "200": {"description": "The answer", "content": _json(route.answer)},
            "default": {"description": "What went wrong", "content": _json(dialect.error)},
        },
    }


def _page(path: str, page: Page) -> Operation:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    content = _json(page.answer) if page.answer else {page.media_type: {}}
    return {
        "summary": page.summary,
        "tags": ["Server"],
        "parameters": parameters,
        "responses": {"200": {"description": "The answer", "content": content}},
    }


def _json(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(name=kind.__name__)}}}
