"""The ASGI application: the only place that turns settings into objects."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Mounted
from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.api.admin import Admin
from vecmill.api.callers import Callers
from vecmill.api.dialect import Dialect, by_path, owner
from vecmill.api.dialects.cohere import COHERE
from vecmill.api.dialects.infinity import INFINITY
from vecmill.api.dialects.jina.dialect import JINA
from vecmill.api.dialects.mistral import MISTRAL
from vecmill.api.dialects.nvidia import NVIDIA
from vecmill.api.dialects.oip.dialect import OIP
from vecmill.api.dialects.ollama import OLLAMA
from vecmill.api.dialects.openai import OPENAI
from vecmill.api.dialects.qdrant import QDRANT
from vecmill.api.dialects.tei.dialect import TEI
from vecmill.api.dialects.vllm.dialect import VLLM
from vecmill.api.dialects.voyage import VOYAGE
from vecmill.api.dialects.weaviate import WEAVIATE
from vecmill.api.endpoint import Endpoint, error_response
from vecmill.api.metrics import Metrics
from vecmill.api.probes import Probes
from vecmill.api.replies import UNEXPECTED
from vecmill.api.rounds import Rounds
from vecmill.api.stream import PATH, Stream
from vecmill.api.trace import Traced
from vecmill.config import Settings
from vecmill.errors import MethodNotAllowed, UnknownRoute, VecmillError
from vecmill.serving.events import Events
from vecmill.serving.priority import go_behind
from vecmill.serving.registry import Registry

DIALECTS: tuple[Dialect, ...] = (
    *(OPENAI, TEI, COHERE, JINA, NVIDIA, VLLM, VOYAGE, MISTRAL, INFINITY, OLLAMA),
    *(WEAVIATE, QDRANT, OIP),
)
"""Every wire format that is answered. On a path that several share, the first that knows a body's keys answers."""

FALLBACK = OPENAI
"""Whose errors are said of paths that no dialect owns."""


def build(
    registry: Registry,
    settings: Settings,
    events: Events,
    metrics: Metrics | None = None,
    callers: Callers | None = None,
) -> ASGIApp:
    """The application that answers for these models.

    Args:
        registry: The models; they may still be loading.
        settings: Limits, and who may ask.
        events: Told of answers; metrics subscribe to it here.
        metrics: What counts; this process's own where none are given.
        callers: Who may ask, where that was read before.

    Raises:
        BadSettings: As `Callers`.
    """
    callers = callers or Callers(settings)
    metrics = metrics or Metrics(registry)
    events.subscribers.append(metrics)
    encoding = ThreadPoolExecutor(2, "encoder", initializer=go_behind)
    rounds = Rounds()
    endpoints = {
        asked: Endpoint(
            choices,
            registry,
            callers,
            max_body_bytes=settings.max_body_bytes,
            rounds=rounds,
            body_timeout_s=settings.body_timeout_s,
            encoding=encoding,
        )
        for asked, choices in by_path(DIALECTS).items()
    }
    if settings.predict_route:  # what is served there already stays what it is
        endpoints.setdefault((bare(settings.predict_route), "POST"), endpoints["/vertex", "POST"])
    longest_first = sorted(endpoints.items(), key=lambda item: -len(item[0][0]))
    routes = [  # served names may hold slashes, and would take what follows them for their own
        Mounted(path.replace("{model}", "{model:path}"), endpoint) for (path, _), endpoint in longest_first
    ]
    routes.append(Mounted(PATH, Stream(registry, callers, events, settings, rounds)))
    app = Starlette(  # pages first: they answer GET alone, an endpoint says what else a path could be asked
        routes=[
            *Probes(registry, bare(settings.health_route)).routes(),
            *Admin(registry, callers, metrics, DIALECTS).routes(),
            *routes,
        ],
        exception_handlers={HTTPException: _no_route, VecmillError: _ours, Exception: _bug},
    )
    app.router.redirect_slashes = False  # it would send clients elsewhere, without their bodies
    posts = {path: endpoint for (path, method), endpoint in endpoints.items() if method == "POST" and "{" not in path}
    traced = Traced(Shortcut(posts, app), events)
    return _shared(traced, settings.cors_origin) if settings.cors_origin else traced


def _shared(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The application for pages from these origins too; their scripts may send keys and read every header."""
    every = ("*",)
    return CORSMiddleware(
        app, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=every, expose_headers=every
    )


def bare(path: str) -> str:
    """A path without the slash at its end."""
    return path[:-1] if len(path) > 1 and path[-1] == "/" != path[-2] else path


class Shortcut:
    """Leads POSTs to their endpoints by one look into a table, where a router would try one route after the other.

    A path with a slash at its end is the path without.

    Args:
        posts: Endpoints by path; none of a path with parameters.
        app: Answers everything else.
    """

    def __init__(self, posts: Mapping[str, ASGIApp], app: ASGIApp) -> None:
        self._posts = posts
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope = {**scope, "path": bare(scope["path"])}
        found = scope["type"] == "http" and scope["method"] == "POST" and self._posts.get(scope["path"])
        await (found or self._app)(scope, receive, send)


async def _no_route(request: Request, error: Exception) -> Response:
    path = request.url.path
    dialect = owner(path, DIALECTS, FALLBACK)
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "").split(", ")
        return error_response(dialect, MethodNotAllowed(request.method, path, sorted(allowed)))
    known = sorted({known for known, _ in by_path(DIALECTS)})
    near = ", ".join(get_close_matches(path, known))
    return error_response(
        dialect, UnknownRoute(f"no route {path}; {f'near it: {near}; ' if near else ''}/docs lists all")
    )


async def _ours(_: Request, error: Exception) -> Response:
    return error_response(FALLBACK, error if isinstance(error, VecmillError) else VecmillError(str(error)))


async def _bug(_: Request, __: Exception) -> Response:
    return error_response(FALLBACK, UNEXPECTED)
