"""What is asked on GET: the models, whether the server lives and is ready, metrics, documentation."""

from importlib.resources import files
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.api.dialect import Dialect
from vecmill.api.metrics import Metrics
from vecmill.api.openapi import Page, document
from vecmill.config import Settings
from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel


class ModelCard(msgspec.Struct):
    """One served model: OpenAI's fields, then what a client needs to know of it."""

    id: str
    created: int
    dimensions: int
    max_tokens: int
    max_inputs: int
    vocab_size: int
    architecture: str
    task: str
    outputs: list[str]
    labels: list[str]
    pooling: list[str]
    normalized: bool
    prompts: list[str]
    default_prompt: str | None
    revision: str
    precision: str
    engine: str
    owned_by: str = "vecmill"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct):
    """The served models."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Health(msgspec.Struct):
    """Whether the process can do its work."""

    status: Literal["ok", "broken"]
    models: dict[str, str]


class Readiness(msgspec.Struct):
    """Whether every model has made a real embedding and new work is welcome."""

    ready: bool
    models: dict[str, str]


class Admin:
    """The routes on GET.

    Args:
        registry: The models.
        settings: Limits, to tell them.
        metrics: What /metrics shows.
        dialects: What the OpenAPI document describes.
    """

    def __init__(self, registry: Registry, settings: Settings, metrics: Metrics, dialects: tuple[Dialect, ...]) -> None:
        self._registry = registry
        self._settings = settings
        self._metrics = metrics
        self._dialects = dialects

    def routes(self) -> list[Route]:
        """For the router."""
        rows = {
            "/health": self.health,
            "/ready": self.ready,
            "/metrics": self.metrics,
            "/docs": self.docs,
            "/openapi.json": self.openapi,
            "/v1/models": self.models,
            "/models": self.models,
            "/v1/models/{name:path}": self.model,
            "/models/{name:path}": self.model,
        }
        return [Route(path, endpoint, methods=["GET"]) for path, endpoint in rows.items()]

    async def models(self, _: Request) -> Response:
        """List the loaded models."""
        return _json(ModelList([self._card(model) for model in self._registry]))

    async def model(self, request: Request) -> Response:
        """Describe one model; ids hold slashes."""
        return _json(self._card(self._registry.get(request.path_params["name"])))

    async def health(self, _: Request) -> Response:
        """503 once an engine has died, for a liveness probe."""
        states = self._registry.states
        broken = "broken" in states.values()
        return _json(Health("broken" if broken else "ok", states), 503 if broken else 200)

    async def ready(self, _: Request) -> Response:
        """503 until every model has made a real embedding, and while the server drains."""
        ready = self._registry.ready
        return _json(Readiness(ready, self._registry.states), 200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        """Prometheus's text format."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document."""
        return _json(document(self._dialects, PAGES))

    async def docs(self, _: Request) -> Response:
        """A page that shows the OpenAPI document; it needs nothing from elsewhere."""
        page = files("vecmill.api").joinpath("docs.html").read_bytes()
        return Response(page, media_type="text/html")

    def _card(self, model: ServedModel) -> ModelCard:
        spec = model.spec
        return ModelCard(
            id=model.name,
            created=model.created,
            dimensions=spec.dims,
            max_tokens=spec.max_tokens,
            max_inputs=self._settings.max_inputs,
            vocab_size=spec.vocab_size,
            architecture=spec.family,
            task=spec.task,
            outputs=list(spec.outputs),
            labels=list(spec.scores.labels) if spec.scores else [],
            pooling=list(spec.pooling),
            normalized=spec.normalized,
            prompts=sorted(spec.prompts),
            default_prompt=spec.default_prompt,
            revision=model.revision,
            precision=model.precision,
            engine=model.kind,
        )


PAGES = {
    "/v1/models": Page("The served models", ModelList),
    "/v1/models/{name}": Page("One served model", ModelCard),
    "/models": Page("As /v1/models", ModelList),
    "/models/{name}": Page("As /v1/models/{name}", ModelCard),
    "/health": Page("Whether the process can do its work; 503 where it cannot", Health),
    "/ready": Page("Whether every model answers and new work is welcome; 503 where not", Readiness),
    "/metrics": Page("Prometheus metrics", media_type="text/plain"),
    "/openapi.json": Page("This document"),
    "/docs": Page("This document for people", media_type="text/html"),
}
"""What the OpenAPI document says of GET."""


def _json(value: msgspec.Struct | dict[str, object], status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
