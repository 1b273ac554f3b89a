"""/metrics: what Prometheus reads."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from edge import EMBEDDINGS, client_to, fakes
from prometheus_client.parser import text_string_to_metric_families

from conftest import Serve, client_of
from vecmill.api.metrics import Metrics
from vecmill.engine.fake import FakeEngine
from vecmill.model.spec import ModelSpec
from vecmill.serving.events import BatchDone, Events
from vecmill.serving.registry import Registry
from vecmill.serving.store import ResultStore

LONG = "the cat sat on the mat " * 20

NOBODY = ("tenant", "")


@pytest.fixture
async def two(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that serves "org/one" and "two" on fake engines; "cat" makes the first one fail."""
    fake.faults[6] = "raise"
    async with client_of([serve(fake, "org/one"), serve(FakeEngine(fake.spec), "two")], events) as one:
        yield one


def test_many_events_are_counted() -> None:
    """What was told and not yet counted is counted when somebody asks; nothing is kept for that without end."""
    metrics = Metrics(Registry([]))
    for _ in range(10_001):
        metrics(BatchDone("one", 3, 30, 0.01, failed=False))
        assert len(metrics._told) < 1_000
    for _ in range(2):
        assert b'vecmill_batch_inputs_count{model="one"} 10001.0' in metrics.text()
    assert b'vecmill_batch_inputs_sum{model="one"} 30003.0' in metrics.text()


Labels = tuple[tuple[str, str], ...]


async def numbers(client: httpx.AsyncClient) -> dict[tuple[str, Labels], float]:
    """Every sample of the page by name and labels."""
    reply = await client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(reply.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def test_a_request_moves_the_counts(two: httpx.AsyncClient) -> None:
    """A request adds to the counts of its model: requests, inputs, tokens, cuts, seconds and batches."""
    await two.post("/embeddings", json={"input": ["hello world", LONG, f"dog {LONG}"], "model": "two"})
    page = await numbers(two)
    model, route = (("model", "two"),), (("model", "two"), ("route", "/v1/embeddings"))
    assert page["vecmill_requests_total", (*route, ("status", "200"))] == 1
    assert page["vecmill_inputs_total", (*model, NOBODY)] == 3
    assert page["vecmill_tokens_total", (*model, NOBODY)] == 84
    assert page["vecmill_truncated_inputs_total", model] == 2
    assert page["vecmill_request_seconds_count", route] == 1
    assert page["vecmill_request_seconds_sum", route] > 0
    assert page["vecmill_batch_inputs_sum", model] == 3
    assert page["vecmill_batch_tokens_sum", model] == 84
    assert page["vecmill_batch_seconds_count", model] == 2
    assert page["vecmill_failed_batches_total", model] == 0
    assert page["vecmill_stage_seconds_count", (*model, ("stage", "tokenize"))] == 1
    assert page["vecmill_stage_seconds_count", (*model, ("stage", "queue"))] == 1
    assert page["vecmill_stage_seconds_count", (*model, ("stage", "compute"))] == 1


async def test_answers_that_were_there_are_counted(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """Inputs that were not computed count as such; what came of a store is said where there is one."""

    class Empty:
        """A store that holds nothing."""

        def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
            """Nothing."""
            return [None] * len(keys)

        def put(self, entries: Mapping[bytes, bytes], ttl_s: float) -> None:
            """Forget it."""

        def close(self) -> None:
            """Nothing to do."""

    store = ResultStore("tiny", lambda: (Empty(), b""), {"dense": 16}, 60)
    async with asyncio.timeout(20):
        while not store.ready:
            await asyncio.sleep(0.001)
    async with client_of([serve(fake, store=store), serve(FakeEngine(fake.spec), "two")], events) as client:
        for texts in (["cat", "dog"], ["dog", "hello"]):
            await client.post(EMBEDDINGS, json={"input": texts, "model": "tiny"})
        page = await numbers(client)
    assert page["vecmill_cached_inputs_total", (("model", "tiny"),)] == 1
    stored = {labels: value for (name, labels), value in page.items() if name == "vecmill_stored_results_total"}
    assert stored == {
        (("model", "tiny"), ("outcome", outcome)): count
        for outcome, count in {"hit": 0, "miss": 3, "error": 0, "dropped": 0}.items()
    }


async def test_every_kind_of_answer_is_counted(serve: Serve, tiny_spec: ModelSpec, events: Events) -> None:
    """Scores count as vectors do, and of several requests in one each counts, under the route that was meant."""
    async with client_of([serve(*one) for one in fakes(tiny_spec, "judge", "tiny")], events) as client:
        await client.post("/rerank", json={"query": "a", "texts": ["b", "c"], "model": "judge"})
        instances = [{"inputs": "a", "model": "tiny"}, {"inputs": ["a", "b"], "model": "tiny"}]
        await client.post("/vertex", json={"instances": instances})
        page = await numbers(client)
    assert page["vecmill_inputs_total", (("model", "judge"), NOBODY)] == 2
    assert page["vecmill_tokens_total", (("model", "judge"), NOBODY)] == 10
    assert page["vecmill_requests_total", (("model", "judge"), ("route", "/tei/rerank"), ("status", "200"))] == 1
    assert page["vecmill_inputs_total", (("model", "tiny"), NOBODY)] == 3
    assert page["vecmill_requests_total", (("model", "tiny"), ("route", "/vertex"), ("status", "200"))] == 1


@pytest.mark.parametrize(
    ("body", "model", "status"),
    [
        ({"input": "", "model": "two"}, "", "400"),
        ({"input": [""], "model": "two"}, "two", "400"),
        ({"input": "hello", "model": "two", "dimensions": 0}, "two", "400"),
        ({"input": "hello"}, "", "404"),
        ({"input": "hello", "model": "someone's"}, "", "404"),
        ({"input": "cat", "model": "org/one"}, "org/one", "500"),
    ],
)
async def test_errors_are_counted_by_status(
    two: httpx.AsyncClient, body: dict[str, object], model: str, status: str
) -> None:
    """An error counts as a request of its status and as no input."""
    await two.post(EMBEDDINGS, json=body)
    page = await numbers(two)
    assert {labels: value for (name, labels), value in page.items() if name == "vecmill_requests_total"} == {
        (("model", model), ("route", "/v1/embeddings"), ("status", status)): 1
    }
    assert [value for (name, _), value in page.items() if name == "vecmill_inputs_total"] == []


async def test_a_failing_engine_is_counted(two: httpx.AsyncClient) -> None:
    """Each batch in which the engine raised counts as failed: the whole one, and the guilty input alone."""
    await two.post(EMBEDDINGS, json={"input": ["cat", "dog"], "model": "org/one"})
    page = await numbers(two)
    assert page["vecmill_failed_batches_total", (("model", "org/one"),)] == 2


async def test_callers_make_no_labels(two: httpx.AsyncClient) -> None:
    """Whatever names, paths and methods callers invent, the labels stay those of the server."""
    for number in range(20):
        await two.post(EMBEDDINGS, json={"input": "hello", "model": f"invented-{number}"})
        await two.post(f"/invented-{number}", json={})
        await two.get(f"/v1/models/invented-{number}")
        await two.request(f"INVENTED{number}", EMBEDDINGS)
    labels = {pair for _, labels in await numbers(two) for pair in labels}
    assert {value for name, value in labels if name == "model"} == {"", "org/one", "two"}
    assert {value for name, value in labels if name == "route"} == {"/v1/embeddings"}
    assert {value for name, value in labels if name == "status"} == {"404", "405"}


async def test_queues_are_read_when_asked(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """What waits and which models are ready is said of every model, loaded or not."""
    registry = Registry(["tiny", "later"])
    registry.add(serve(fake))
    async with client_to(registry, events) as client:
        page = await numbers(client)
    assert page["vecmill_queue_inputs", (("model", "tiny"),)] == 0
    assert page["vecmill_queue_tokens", (("model", "tiny"),)] == 0
    assert page["vecmill_model_ready", (("model", "tiny"),)] == 1
    assert page["vecmill_model_ready", (("model", "later"),)] == 0


async def test_pages_are_no_requests(two: httpx.AsyncClient) -> None:
    """Probes and scrapes do not count as requests, and the process's own numbers are there."""
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/nowhere"):
        await two.get(path)
    page = await numbers(two)
    assert [labels for name, labels in page if name == "vecmill_requests_total"] == []
    assert page["process_resident_memory_bytes", ()] > 1e6
    assert page["vecmill_build_info", (("version", "0.1.0"),)] == 1


def test_nothing_is_miscounted_between_threads() -> None:
    """What several lanes tell at once is counted whole, each number in the bucket that it belongs to."""
    metrics = Metrics(Registry(["one"]))

    def tell(rows: int) -> None:
        for _ in range(5000):
            metrics(BatchDone("one", rows, 8 * rows, 0.003, failed=rows == 2))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tell, [1, 2, 3, 500]))
    families = text_string_to_metric_families(metrics.text().decode())
    told = {(s.name, s.labels.get("le")): s.value for family in families for s in family.samples}
    buckets = {"1.0": 5000, "2.0": 10_000, "4.0": 15_000, "128.0": 15_000, "+Inf": 20_000}
    assert {le: told["vecmill_batch_inputs_bucket", le] for le in buckets} == buckets
    assert told["vecmill_batch_inputs_sum", None] == 5000 * 506
    assert told["vecmill_failed_batches_total", None] == 5000
    assert told["vecmill_batch_seconds_bucket", "0.0025"] == 0
    assert told["vecmill_batch_seconds_bucket", "0.005"] == 20_000
