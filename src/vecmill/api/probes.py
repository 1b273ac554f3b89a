"""Whether the server and its models live and are ready, where the tools of other servers look for it."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill import __version__
from vecmill.api.openapi import Page
from vecmill.serving.registry import Registry

EXTENSIONS = ["binary_tensor_data", "model_configuration"]
"""What is served of the Open Inference Protocol besides its core."""


class Live(msgspec.Struct):
    """Whether the process can do its work."""

    live: bool


class Ready(msgspec.Struct):
    """Whether every model answers and new work is welcome."""

    ready: bool


class ModelReady(msgspec.Struct):
    """Whether a model answers."""

    name: str
    ready: bool


class ServerMetadata(msgspec.Struct):
    """What the server is, in the Open Inference Protocol."""

    name: str
    version: str
    extensions: list[str]


class NoModel(msgspec.Struct):
    """No model of that name is served."""

    error: str


class Probes:
    """Pages for probes. None needs a key.

    Args:
        registry: The models.
        health_route: One more path that says whether the server is ready; "" is none.
    """

    def __init__(self, registry: Registry, health_route: str = "") -> None:
        self._registry = registry
        self._health_route = health_route

    def routes(self) -> list[Route]:
        """For the router."""
        rows = {
            "/v2": self.server,
            "/v2/health/live": self.live,
            "/v2/health/ready": self.ready,
            "/v2/models/{name:path}/versions/1/ready": self.model,
            "/v2/models/{name:path}/ready": self.model,
            "/.well-known/live": self.live,
            "/.well-known/ready": self.ready,
            "/weaviate/.well-known/live": self.live,
            "/weaviate/.well-known/ready": self.ready,
            "/weaviate/{name:path}/.well-known/live": self.model_live,
            "/weaviate/{name:path}/.well-known/ready": self.model,
        }
        if self._health_route:
            rows[self._health_route] = self.ready
        return [Route(path, endpoint, methods=["GET"]) for path, endpoint in rows.items()]

    async def server(self, _: Request) -> Response:
        """What answers here."""
        return _json(ServerMetadata("vecmill", __version__, EXTENSIONS))

    async def live(self, _: Request) -> Response:
        """503 once an engine has died."""
        live = not self._registry.broken
        return _json(Live(live), 200 if live else 503)

    async def ready(self, _: Request) -> Response:
        """503 until every model answers, and while the server drains."""
        ready = self._registry.ready
        return _json(Ready(ready), 200 if ready else 503)

    async def model(self, request: Request) -> Response:
        """503 while the model does not answer, 404 where there is none of that name."""
        name, states = request.path_params["name"], self._registry.states
        if name not in states:
            return self._none(name)
        ready = states[name] == "ready" and not self._registry.draining
        return _json(ModelReady(name, ready), 200 if ready else 503)

    async def model_live(self, request: Request) -> Response:
        """503 once the model won't answer any more, 404 where there is none of that name."""
        name = request.path_params["name"]
        if name not in self._registry.names:
            return self._none(name)
        live = name not in self._registry.broken
        return _json(Live(live), 200 if live else 503)

    def _none(self, name: str) -> Response:
        return _json(NoModel(f"model {name!r} is not served here; served: {', '.join(self._registry.names)}"), 404)


PROBES = {
    "/v2": Page("What answers here, in the Open Inference Protocol", ServerMetadata),
    "/v2/health/live": Page("Whether the process can do its work; 503 where it cannot", Live),
    "/v2/health/ready": Page("Whether every model answers and new work is welcome; 503 where not", Ready),
    "/v2/models/{name}/versions/1/ready": Page("As /v2/models/{name}/ready", ModelReady),
    "/v2/models/{name}/ready": Page("Whether a model answers; 503 where not", ModelReady),
    "/.well-known/live": Page("As /v2/health/live, where Weaviate looks", Live),
    "/.well-known/ready": Page("As /v2/health/ready, where Weaviate looks", Ready),
    "/weaviate/.well-known/live": Page("As /.well-known/live", Live),
    "/weaviate/.well-known/ready": Page("As /.well-known/ready", Ready),
    "/weaviate/{name}/.well-known/live": Page("Whether a model can still answer; 503 where not", Live),
    "/weaviate/{name}/.well-known/ready": Page("As /v2/models/{name}/ready, where Weaviate looks", ModelReady),
}
"""What the OpenAPI document says of them."""


def _json(value: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
