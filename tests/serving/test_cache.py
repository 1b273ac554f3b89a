"""Answers that are remembered: the same bytes, bounded, forgotten in time, and none that nobody gave."""

from typing import Any

import httpx
import numpy as np
import pytest

from conftest import Serve, client_of
from vecmill.core import Caller, Options, Request, Sparse
from vecmill.engine.fake import FakeEngine
from vecmill.errors import EngineFailed
from vecmill.model.tokens import Tokens
from vecmill.serving.cache import ENTRY_BYTES, Cache, Key, plan
from vecmill.serving.events import Events
from vecmill.serving.served import ServedModel

BAD = 9


def row(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A vector."""
    return np.array(values, dtype=np.float32)


def key(name: str) -> Key:
    """A key of one byte."""
    return name.encode(), 0, ("dense",), ""


class Clock:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def test_the_least_recently_used_goes_first() -> None:
    """The cache holds no more bytes than it may, and keeps what was asked for last."""
    cache = Cache(3 * (ENTRY_BYTES + 1 + 8), 60)
    for name in "abc":
        cache.put(key(name), [row(1, 2)])
    assert cache.get(key("a")) is not None
    cache.put(key("d"), [row(1, 2)])
    assert [name for name in "abcd" if cache.get(key(name)) is not None] == ["a", "c", "d"]
    assert cache.size_bytes == cache.max_bytes
    cache.put(key("huge"), [np.zeros(10_000, dtype=np.float32)])
    assert len(cache) == 3
    cache.put(key("a"), [row(3, 4)])
    assert cache.size_bytes == cache.max_bytes


def test_answers_are_forgotten_in_time() -> None:
    """An answer that is too old is no answer, and takes no room."""
    clock = Clock()
    cache = Cache(10_000, 5, clock)
    cache.put(key("a"), [row(1)])
    clock.now = 4.9
    assert cache.get(key("a")) is not None
    clock.now = 5.0
    assert cache.get(key("a")) is None
    assert (cache.size_bytes, len(cache)) == (0, 0)


def test_values_are_copies() -> None:
    """A remembered row does not keep the array alive that it is a row of, and nobody changes it from outside."""
    cache = Cache(10_000, 5)
    rows = np.ones((100, 4), dtype=np.float32)
    cache.put(key("a"), [rows[3]])
    rows[3] = 7
    (value,) = cache.get(key("a")) or ()
    assert isinstance(value, np.ndarray)
    assert value.tolist() == [1, 1, 1, 1]
    assert value.base is None


def test_a_plan_asks_once() -> None:
    """What is known is not asked, what occurs twice is asked once, and every input gets its own answer."""
    cache = Cache(100_000, 60)
    ids = [[1, 2], [3], [1, 2], [4], [3], [1, 2]]
    tokens = [Tokens(np.array(one, dtype=np.int32), truncated=False) for one in ids]
    cache.put((tokens[1].ids.tobytes(), 0, ("dense", "sparse"), ""), [row(3), Sparse(np.zeros(0, np.int32), row())])
    done = plan(cache, tokens, ("dense", "sparse"))
    assert done.asked == [0, 3]
    given: list[Any] = [np.stack([row(1), row(4)]), [Sparse(np.array([n], np.int32), row(n)) for n in (1, 4)]]
    keys = [done.keys[place] for place in done.asked]
    answers: dict[Any, Any] = {key: tuple(column[row] for column in given) for row, key in enumerate(keys)}
    dense, sparse = done.learned(answers).columns([1, 0])
    assert np.asarray(dense).tolist() == [[1], [3], [1], [4], [3], [1]]
    assert [len(one.indices) for one in sparse if isinstance(one, Sparse)] == [1, 0, 1, 1, 0, 1]
    for key, values in answers.items():
        cache.put(key, values)
    assert plan(cache, tokens, ("dense", "sparse")).asked == []
    assert plan(cache, tokens, ("dense",)).asked == [0, 1, 3]


def ask(model: ServedModel, inputs: list[Any], **options: Any) -> Any:
    """The answer of a model."""
    return model.compute(Request(model=None, inputs=inputs, options=Options(**options)))


def test_the_engine_is_asked_once(serve: Serve, fake: FakeEngine) -> None:
    """Equal texts of one request and of later ones are computed once and have the same bytes."""
    model = serve(fake)
    first = ask(model, ["the cat", "dog", "the cat"])
    second = ask(model, ["dog", "the cat", "hello"])
    assert sorted(len(batch) for batch in fake.batches) in ([1, 1, 1], [1, 2])
    assert sum(map(len, fake.batches)) == 3
    assert (first.cached, second.cached) == (0, 2)
    assert np.array_equal(first.rows[[0, 1, 0]], np.stack([first.rows[2], second.rows[0], second.rows[1]]))


def test_wishes_share_an_answer(serve: Serve, fake: FakeEngine) -> None:
    """What a request wishes of its rows is applied to what is remembered, which stays as it was."""
    model = serve(fake)
    whole, short = ask(model, ["the cat"]).rows[0], ask(model, ["the cat"], dimensions=4).rows[0]
    assert short == pytest.approx(whole[:4] / np.linalg.norm(whole[:4]), abs=1e-6)
    assert np.array_equal(ask(model, ["the cat"]).rows[0], whole)
    assert len(fake.batches) == 1


@pytest.mark.parametrize(("share", "cached"), [(False, [0, 0, 1, 1]), (True, [0, 1, 1, 1])])
async def test_tenants_do_not_see_what_others_asked(
    serve: Serve, fake: FakeEngine, share: bool, cached: list[int]
) -> None:
    """What was computed for a tenant is known to that tenant, and to all only where the server is told so."""
    model = serve(fake, share_results=share)
    request = Request(model=None, inputs=["the cat"])
    results = [await model.submit(request, Caller(tenant=tenant)) for tenant in ("a", "b", "a", "b")]
    assert [one.cached for one in results] == cached
    assert len(fake.batches) == cached.count(0)


def test_no_store(serve: Serve, fake: FakeEngine) -> None:
    """A request that wants nothing stored neither reads nor writes."""
    model = serve(fake)
    ask(model, ["the cat"], no_store=True)
    assert ask(model, ["the cat"]).cached == 0
    assert ask(model, ["the cat"], no_store=True).cached == 0
    assert ask(model, ["the cat"]).cached == 1
    assert len(fake.batches) == 3


def test_errors_are_not_remembered(serve: Serve, fake: FakeEngine) -> None:
    """A failed input is asked again, and its error names its place in the request, whatever was known or twice."""
    model = serve(fake)
    (bad,) = model.tokenizer.encode(["dog"])
    fake.faults[int(bad.ids[1])] = "raise"
    ask(model, ["the cat"])
    for _ in range(2):
        with pytest.raises(EngineFailed, match="input 3"):
            ask(model, ["the cat", "hello", "hello", "dog"])
    fake.faults.clear()
    assert ask(model, ["dog"]).cached == 0


def test_without_a_cache(serve: Serve, fake: FakeEngine) -> None:
    """No room, no memory; what is twice in one request is still asked once."""
    model = serve(fake, result_cache_mb=0)
    assert np.array_equal(*ask(model, ["the cat", "the cat"]).rows)
    assert ask(model, ["the cat"]).cached == 0
    assert sum(map(len, fake.batches)) == 2


async def test_the_header(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """HTTP's own word for it is heard, and the answer says how many inputs were known."""
    async with client_of([serve(fake)], events) as client:

        async def cached(**headers: str) -> str:
            reply: httpx.Response = await client.post("/v1/embeddings", json={"input": ["cat", "dog"]}, headers=headers)
            return reply.headers["x-vecmill-cached"]

        said = [await cached(), await cached(), await cached(**{"cache-control": "no-cache, no-store"})]
    assert said == ["0", "2", "0"]
