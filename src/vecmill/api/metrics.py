"""Prometheus metrics: a subscriber to events, and what the queues hold at the moment of asking."""

from collections.abc import Iterator
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vecmill import __version__
from vecmill.serving.events import BatchDone, Event, RequestDone
from vecmill.serving.registry import Registry

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


Metric = TypeVar("Metric", Counter, Histogram)


class Queues(Collector):
    """What waits, which models are ready and what came of their stores, read when asked."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One value a model."""
        items = GaugeMetricFamily("vecmill_queue_inputs", "Inputs that wait", labels=["model"])
        tokens = GaugeMetricFamily("vecmill_queue_tokens", "Tokens that wait", labels=["model"])
        for model in self._registry:
            items.add_metric([model.name], model.runner.waiting_items)
            tokens.add_metric([model.name], model.runner.waiting_tokens)
        ready = GaugeMetricFamily("vecmill_model_ready", "1 where the model answers", labels=["model"])
        for name, state in self._registry.states.items():
            ready.add_metric([name], state == "ready")
        stored = CounterMetricFamily("vecmill_stored_results", "What came of the store", labels=["model", "outcome"])
        for model in self._registry:
            for outcome, count in model.store.counts.outcomes.items() if model.store else ():
                stored.add_metric([model.name, outcome], count)
        yield from (items, tokens, ready, stored)


class Metrics:
    """Counts and histograms of requests and batches.

    Args:
        registry: The models, for their queues.
    """

    def __init__(self, registry: Registry) -> None:
        self._collectors = CollectorRegistry()
        self._children: dict[tuple[Counter | Histogram, tuple[str, ...]], Counter | Histogram] = {}
        self._collectors.register(Queues(registry))
        ProcessCollector(registry=self._collectors)
        to = self._collectors
        one, route = ["model"], ["model", "route"]
        Gauge("vecmill_build_info", "1, with the version", ["version"], registry=to).labels(__version__).set(1)
        self._requests = Counter("vecmill_requests", "Requests answered", [*route, "status"], registry=to)
        self._seconds = Histogram("vecmill_request_seconds", "Seconds in vecmill", route, buckets=SECONDS, registry=to)
        self._stages = Histogram(
            "vecmill_stage_seconds", "Seconds of a request by stage", ["model", "stage"], buckets=SECONDS, registry=to
        )
        whose = ["model", "tenant"]
        self._inputs = Counter("vecmill_inputs", "Inputs embedded", whose, registry=to)
        self._tokens = Counter("vecmill_tokens", "Tokens embedded", whose, registry=to)
        self._truncated = Counter("vecmill_truncated_inputs", "Inputs cut to the limit", one, registry=to)
        self._cached = Counter("vecmill_cached_inputs", "Inputs not computed for their request", one, registry=to)
        self._batch_seconds = Histogram(
            "vecmill_batch_seconds", "Seconds of a batch", one, buckets=SECONDS, registry=to
        )
        self._batch_inputs = Histogram("vecmill_batch_inputs", "Inputs of a batch", one, buckets=ROWS, registry=to)
        self._batch_tokens = Histogram("vecmill_batch_tokens", "Tokens of a batch", one, buckets=TOKENS, registry=to)
        self._failed = Counter("vecmill_failed_batches", "Batches in which the engine raised", one, registry=to)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        match event:
            case RequestDone():
                self._request(event)
            case BatchDone():
                self._batch(event)

    def text(self) -> bytes:
        """All of it in Prometheus's text format."""
        return generate_latest(self._collectors)

    async def page(self) -> bytes:
        """What /metrics shows."""
        return self.text()

    def _request(self, event: RequestDone) -> None:
        self._of(self._requests, event.model, event.route, str(event.status)).inc()
        if not event.inputs:
            return
        self._of(self._seconds, event.model, event.route).observe(event.timings.total_s)
        self._of(self._stages, event.model, "tokenize").observe(event.timings.tokenize_s)
        self._of(self._stages, event.model, "compute").observe(event.timings.compute_s)
        self._of(self._inputs, event.model, event.tenant).inc(event.inputs)
        self._of(self._tokens, event.model, event.tenant).inc(event.tokens)
        self._of(self._truncated, event.model).inc(event.truncated)
        self._of(self._cached, event.model).inc(event.cached)

    def _batch(self, event: BatchDone) -> None:
        self._of(self._batch_seconds, event.model).observe(event.seconds)
        self._of(self._batch_inputs, event.model).observe(event.rows)
        self._of(self._batch_tokens, event.model).observe(event.tokens)
        self._of(self._failed, event.model).inc(event.failed)

    def _of(self, metric: Metric, *labels: str) -> Metric:
        """The metric with these labels; looking it up each time costs the library a lock and a validation."""
        key = (metric, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return cast("Metric", child)
