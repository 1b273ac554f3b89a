"""Prometheus metrics: a subscriber to events, and what the queues hold at the moment of asking.

What events say is counted in plain numbers and told to prometheus_client when it is asked for: its own counters take a
lock and several calls for each number, of which every request has a dozen.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from vecmill import __version__
from vecmill.serving.events import BatchDone, Event, RequestDone
from vecmill.serving.registry import Registry

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)

TOGETHER = 256
"""Events that are counted one after the other: a few at a time cost several times as much each."""


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


class Counter:
    """A number that grows, for each combination of labels.

    Args:
        name: Without the ending `_total`.
        documentation: One line.
        labels: Their names.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self._named = name, documentation, labels
        self._totals: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, amount: float, *labels: str) -> None:
        """Count so many, none included."""
        self._totals[labels] += amount

    def family(self) -> Metric:
        """The totals."""
        name, documentation, names = self._named
        told = CounterMetricFamily(name, documentation, labels=names)
        for labels, total in self._totals.items():
            told.add_metric(labels, total)
        return told


class Histogram:
    """How many numbers were no larger than each of some bounds, for each combination of labels.

    Args:
        name: Of the metric.
        documentation: One line.
        labels: Their names.
        bounds: Ascending; what is larger than the last is counted too.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._named = name, documentation, labels
        self._bounds = bounds
        self._counts: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def observe(self, number: float, *labels: str) -> None:
        """Count a number."""
        self._counts[labels][bisect_left(self._bounds, number)] += 1
        self._sums[labels] += number

    def family(self) -> Metric:
        """The counts, added up from the first bound on."""
        name, documentation, names = self._named
        told = HistogramMetricFamily(name, documentation, labels=names)
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        for labels, counts in self._counts.items():
            told.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), self._sums[labels])
        return told


class Metrics(Collector):
    """Counts and histograms of requests and batches. Thread-safe.

    Args:
        registry: The models, for their queues.
    """

    def __init__(self, registry: Registry) -> None:
        self._lock = Lock()
        self._told: deque[Event] = deque()
        one, route, whose = ["model"], ["model", "route"], ["model", "tenant"]
        self._requests = Counter("vecmill_requests", "Requests answered", [*route, "status"])
        self._seconds = Histogram("vecmill_request_seconds", "Seconds in vecmill", route, SECONDS)
        self._stages = Histogram("vecmill_stage_seconds", "Seconds of a request by stage", ["model", "stage"], SECONDS)
        self._inputs = Counter("vecmill_inputs", "Inputs embedded", whose)
        self._tokens = Counter("vecmill_tokens", "Tokens embedded", whose)
        self._truncated = Counter("vecmill_truncated_inputs", "Inputs cut to the limit", one)
        self._cached = Counter("vecmill_cached_inputs", "Inputs not computed for their request", one)
        self._batch_seconds = Histogram("vecmill_batch_seconds", "Seconds of a batch", one, SECONDS)
        self._batch_inputs = Histogram("vecmill_batch_inputs", "Inputs of a batch", one, ROWS)
        self._batch_tokens = Histogram("vecmill_batch_tokens", "Tokens of a batch", one, TOKENS)
        self._failed = Counter("vecmill_failed_batches", "Batches in which the engine raised", one)
        self._tallies: tuple[Counter | Histogram, ...] = (
            *(self._requests, self._seconds, self._stages, self._inputs, self._tokens, self._truncated, self._cached),
            *(self._batch_seconds, self._batch_inputs, self._batch_tokens, self._failed),
        )
        self._collectors = to = CollectorRegistry()
        to.register(Queues(registry))
        ProcessCollector(registry=to)
        Gauge("vecmill_build_info", "1, with the version", ["version"], registry=to).labels(__version__).set(1)
        to.register(self)

    def __call__(self, event: Event) -> None:
        """Count an event, at the latest when somebody asks."""
        self._told.append(event)
        if len(self._told) >= TOGETHER:
            with self._lock:
                self._count()

    def collect(self) -> Iterator[Metric]:
        """What was counted so far."""
        with self._lock:
            self._count()
            families = [tally.family() for tally in self._tallies]
        yield from families

    def text(self) -> bytes:
        """All of it in Prometheus's text format."""
        return generate_latest(self._collectors)

    async def page(self) -> bytes:
        """What /metrics shows."""
        return self.text()

    def _count(self) -> None:
        """Count what was told. The lock is held."""
        while self._told:
            match self._told.popleft():
                case RequestDone() as event:
                    self._request(event)
                case BatchDone() as event:
                    self._batch(event)

    def _request(self, event: RequestDone) -> None:
        model, route, timings = event.model, event.route, event.timings
        self._requests.add(1, model, route, str(event.status))
        if not event.inputs:
            return
        self._seconds.observe(timings.total_s, model, route)
        self._stages.observe(timings.tokenize_s, model, "tokenize")
        self._stages.observe(timings.queue_s, model, "queue")
        self._stages.observe(timings.compute_s, model, "compute")
        self._inputs.add(event.inputs, model, event.tenant)
        self._tokens.add(event.tokens, model, event.tenant)
        self._truncated.add(event.truncated, model)
        self._cached.add(event.cached, model)

    def _batch(self, event: BatchDone) -> None:
        self._batch_seconds.observe(event.seconds, event.model)
        self._batch_inputs.observe(event.rows, event.model)
        self._batch_tokens.observe(event.tokens, event.model)
        self._failed.add(event.failed, event.model)
