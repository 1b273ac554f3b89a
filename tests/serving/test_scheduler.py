"""The queue as a data structure."""

import gc
import random
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.serving.scheduler import Item, Owner, Scheduler


def rows(*lengths: int) -> list[NDArray[np.int32]]:
    """Inputs of these lengths."""
    return [np.zeros(length, dtype=np.int32) for length in lengths]


def lengths(batch: list[Item[Owner]]) -> list[int]:
    """Tokens of each item."""
    return [len(item.ids) for item in batch]


def drain(scheduler: Scheduler[Owner]) -> list[list[Item[Owner]]]:
    """Every batch until the queue is empty."""
    batches = []
    while batch := scheduler.take():
        batches.append(batch)
    return batches


def test_an_empty_queue_gives_no_batch() -> None:
    """Nothing waits, nothing comes."""
    assert Scheduler[Owner](64).take() == []


def test_a_batch_holds_one_length() -> None:
    """Items of one length go together, whatever lies between them."""
    scheduler = Scheduler[Owner](64)
    scheduler.add(Owner(), rows(5, 9, 5, 9, 5))
    assert [lengths(batch) for batch in drain(scheduler)] == [[5, 5, 5], [9, 9]]


def test_a_batch_stops_at_its_budget() -> None:
    """No batch has more tokens than the budget."""
    scheduler = Scheduler[Owner](16)
    scheduler.add(Owner(), rows(5, 5, 5, 5))
    assert [lengths(batch) for batch in drain(scheduler)] == [[5, 5, 5], [5]]


def test_an_input_longer_than_the_budget_runs_alone() -> None:
    """A long input is not stuck."""
    scheduler = Scheduler[Owner](16)
    scheduler.add(Owner(), rows(40, 40))
    assert [lengths(batch) for batch in drain(scheduler)] == [[40], [40]]


def test_a_query_overtakes_a_long_job() -> None:
    """A lone query runs in the next batch, however much of a job waits before it."""
    scheduler = Scheduler[Owner](32)
    scheduler.add(Owner(), rows(*[16] * 100))
    scheduler.take()
    query = Owner()
    scheduler.add(query, rows(4))
    assert [item.owner for item in scheduler.take()] == [query]


@pytest.mark.parametrize(("every", "at_least"), [(2, 29), (1, 8)])
def test_a_job_is_not_starved_by_queries(every: int, at_least: int) -> None:
    """A job gets what a stream of queries leaves, and its share even of an engine that the queries alone would fill."""
    scheduler = Scheduler[Owner](16)
    job = Owner()
    scheduler.add(job, rows(*[16] * 60))
    turns = 0
    for number in range(60):
        if number % every == 0:
            scheduler.add(Owner(), rows(15))
        turns += scheduler.take()[0].owner is job
    assert turns >= at_least


def test_equal_jobs_share_equally() -> None:
    """Two jobs that arrive one after the other finish side by side."""
    scheduler = Scheduler[Owner](16)
    first, second = Owner(), Owner()
    scheduler.add(first, rows(*[16] * 40))
    scheduler.add(second, rows(*[15] * 40))
    order = [item.owner for batch in drain(scheduler) for item in batch]
    half = order[:40]
    assert abs(half.count(first) - half.count(second)) <= 4


def test_dropped_items_do_not_come_out() -> None:
    """Items of an owner that was dropped no longer count and never run; those of others do."""
    scheduler = Scheduler[Owner](64)
    gone, here = Owner(), Owner()
    scheduler.add(gone, rows(5, 6, 7))
    scheduler.add(here, rows(5))
    scheduler.drop(gone)
    assert (scheduler.waiting_items, scheduler.waiting_tokens) == (1, 5)
    assert [item.owner for batch in drain(scheduler) for item in batch] == [here]
    assert (scheduler.waiting_items, scheduler.waiting_tokens) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_every_item_comes_out_once(seed: int) -> None:
    """Whatever is added and taken in whatever order, each item comes out once, in batches that obey the rules."""
    rng = random.Random(seed)
    scheduler = Scheduler[Owner](64)
    added, out = 0, []
    for _ in range(300):
        if rng.random() < 0.5:
            count = rng.randint(1, 6)
            scheduler.add(Owner(), rows(*[rng.randint(1, 80) for _ in range(count)]))
            added += count
        elif batch := scheduler.take():
            out.append(batch)
        waiting = added - sum(map(len, out))
        assert scheduler.waiting_items == waiting
    out += drain(scheduler)
    items = [item for batch in out for item in batch]
    assert len({id(item) for item in items}) == len(items) == added
    assert all(len(set(lengths(batch))) == 1 for batch in out)
    assert all(sum(lengths(batch)) <= 64 or len(batch) == 1 for batch in out)
    assert scheduler.waiting_tokens == 0


def test_an_empty_queue_keeps_nothing() -> None:
    """Work that has come and gone leaves no memory behind."""
    scheduler = Scheduler[Owner](64)

    def once() -> None:
        for length in range(1, 60):
            scheduler.add(Owner(), rows(*[length] * 20))
        drain(scheduler)

    once()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5):
        once()
    gc.collect()  # only the interpreter's free lists are left to clear
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 10_000
