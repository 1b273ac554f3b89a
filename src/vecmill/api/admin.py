"""What is asked on GET: the models, whether the server lives and is ready, metrics, documentation."""

import asyncio
import time
from importlib.resources import files
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.api.callers import Callers
from vecmill.api.dialect import Dialect
from vecmill.api.metrics import Metrics
from vecmill.api.openapi import Page, document
from vecmill.api.probes import PROBES
from vecmill.api.stream import STREAMS
from vecmill.asks import ModelInfo
from vecmill.serving.answer import describe
from vecmill.serving.registry import Registry


class Queue(msgspec.Struct):
    """What waits for a model; Infinity's clients read it."""

    queue_fraction: float
    queue_absolute: int
    results_pending: int
    batch_size: int


class ModelCard(msgspec.Struct):
    """One served model: OpenAI's fields, then what a client needs to know of it, then Infinity's."""

    id: str
    created: int
    dimensions: int
    max_tokens: int
    max_inputs: int
    vocab_size: int
    architecture: str
    task: str
    outputs: list[str]
    pooling: list[str]
    normalized: bool
    prompts: list[str]
    default_prompt: str | None
    labels: list[str]
    revision: str
    precision: str
    engine: str
    backend: str
    capabilities: list[str]
    stats: Queue
    owned_by: str = "vecmill"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct):
    """The served models."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Health(msgspec.Struct):
    """Whether the process can do its work; `unix` is its clock, which Infinity's clients read."""

    status: Literal["ok", "broken"]
    models: dict[str, str]
    unix: float


class Readiness(msgspec.Struct):
    """Whether every model has made a real embedding and new work is welcome."""

    ready: bool
    models: dict[str, str]


class Admin:
    """The routes on GET.

    Args:
        registry: The models.
        callers: Who may see the models.
        metrics: What /metrics shows.
        dialects: What the OpenAPI document describes.
    """

    def __init__(self, registry: Registry, callers: Callers, metrics: Metrics, dialects: tuple[Dialect, ...]) -> None:
        self._registry = registry
        self._callers = callers
        self._metrics = metrics
        self._dialects = dialects
        self._document: asyncio.Task[bytes] | None = None

    def routes(self) -> list[Route]:
        """For the router."""
        rows = {
            "/": self.alive,
            "/ping": self.alive,
            "/health": self.health,
            "/ready": self.ready,
            "/metrics": self.metrics,
            "/docs": self.docs,
            "/openapi.json": self.openapi,
            "/v1/models": self.models,
            "/models": self.models_as_infinity,
            "/infinity/models": self.models_as_infinity,
            "/v1/models/{name:path}": self.model,
            "/models/{name:path}": self.model,
        }
        rows |= dict.fromkeys(MODELS, self.models) | {f"{path}/{{name:path}}": self.model for path in MODELS}
        rows |= dict.fromkeys(HEALTH, self.health)
        return [Route(path, endpoint, methods=["GET"]) for path, endpoint in rows.items()]

    async def models(self, request: Request) -> Response:
        """List the loaded models; tools find out here whether their key is good."""
        return _json(ModelList(self._cards(request)))

    async def models_as_infinity(self, request: Request) -> Response:
        """The same under Infinity's name, because its client takes no other."""
        cards = self._cards(request)
        for card in cards:
            card.owned_by = "infinity"
        return _json(ModelList(cards))

    async def model(self, request: Request) -> Response:
        """Describe one model; ids hold slashes."""
        self._callers(request.headers)
        return _json(_card(describe(self._registry.get(request.path_params["name"]))))

    def _cards(self, request: Request) -> list[ModelCard]:
        self._callers(request.headers)
        return [_card(describe(model)) for model in self._registry]

    async def alive(self, _: Request) -> Response:
        """A line, for clients that look whether anyone is there."""
        return Response("vecmill is running; /docs says what it answers\n", media_type="text/plain")

    async def health(self, _: Request) -> Response:
        """503 once an engine has died, for a liveness probe."""
        states = self._registry.states
        broken = "broken" in states.values()
        return _json(Health("broken" if broken else "ok", states, time.time()), 503 if broken else 200)

    async def ready(self, _: Request) -> Response:
        """503 until every model has made a real embedding, and while the server drains."""
        ready = self._registry.ready
        return _json(Readiness(ready, self._registry.states), 200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        """Prometheus's text format."""
        return Response(await self._metrics.page(), media_type="text/plain; version=0.0.4")

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document, made once: it takes a tenth of a second."""
        if self._document is None:
            self._document = asyncio.create_task(
                asyncio.to_thread(lambda: msgspec.json.encode(document(self._dialects, PAGES | PROBES | STREAMS)))
            )
        return Response(await asyncio.shield(self._document), media_type="application/json")

    async def docs(self, _: Request) -> Response:
        """A page that shows the OpenAPI document; it needs nothing from elsewhere."""
        page = files("vecmill.api").joinpath("docs.html").read_bytes()
        return Response(page, media_type="text/html")


CAPABILITIES = {"dense": "embed", "scores": "classify", "sparse": "sparse", "multi": "multi"}
"""Outputs in Infinity's words, and ours for what it has no word for."""


def _card(info: ModelInfo) -> ModelCard:
    ranks = len(info.labels) == 1 or info.task == "multi"
    capabilities = [CAPABILITIES[output] for output in info.outputs] + ["rerank"] * ranks
    stats = Queue(info.waiting_tokens / info.max_queue_tokens, info.waiting_inputs, 0, info.max_batch_tokens)
    return ModelCard(
        id=info.model,
        created=info.created,
        dimensions=info.dims,
        max_tokens=info.max_tokens,
        max_inputs=info.max_inputs,
        vocab_size=info.vocab_size,
        architecture=info.family,
        task=info.task,
        outputs=list(info.outputs),
        pooling=list(info.pooling),
        normalized=info.normalized,
        prompts=list(info.prompts),
        default_prompt=info.default_prompt,
        labels=list(info.labels),
        revision=info.revision,
        precision=info.precision,
        engine=info.engine,
        backend=info.engine,
        capabilities=capabilities,
        stats=stats,
    )


MODELS = ("/openai/v1/models", "/openai/models", "/nvidia/v1/models", "/vllm/v1/models", "/mistral/v1/models")
"""/v1/models at the base URLs of dialects whose clients ask it."""

HEALTH = ("/tei/health", "/vllm/health", "/infinity/health")
"""/health likewise."""

PAGES = {
    "/": Page("Whether anyone is there", media_type="text/plain"),
    "/ping": Page("As /", media_type="text/plain"),
    "/v1/models": Page("The served models", ModelList),
    "/v1/models/{name}": Page("One served model", ModelCard),
    "/models": Page("As /v1/models, owned by infinity, as Infinity's clients want it", ModelList),
    "/infinity/models": Page("As /models", ModelList),
    "/models/{name}": Page("As /v1/models/{name}", ModelCard),
    **{path: Page("As /v1/models", ModelList) for path in MODELS},
    **{f"{path}/{{name}}": Page("As /v1/models/{name}", ModelCard) for path in MODELS},
    **{path: Page("As /health", Health) for path in HEALTH},
    "/health": Page("Whether the process can do its work; 503 where it cannot", Health),
    "/ready": Page("Whether every model answers and new work is welcome; 503 where not", Readiness),
    "/metrics": Page("Prometheus metrics", media_type="text/plain"),
    "/openapi.json": Page("This document"),
    "/docs": Page("This document for people", media_type="text/html"),
}
"""What the OpenAPI document says of GET."""


def _json(value: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
