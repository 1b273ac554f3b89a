"""The queue as a data structure."""

import gc
import random
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from vecmill.serving.piles import Item, tokens_of
from vecmill.serving.scheduler import Owner, Scheduler


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


def test_like_lengths_go_together() -> None:
    """Items whose lengths the engine calls alike make a batch, bounded by their tokens."""
    scheduler = Scheduler[Owner](32, alike=lambda length: -(-length // 8) * 8)
    scheduler.add(Owner(), rows(5, 9, 8, 3, 16, 7, 6))
    assert [scheduler.waiting_items, scheduler.waiting_tokens] == [7, 54]
    assert [lengths(batch) for batch in drain(scheduler)] == [[5, 8, 3, 7, 6], [9, 16]]
    assert [scheduler.waiting_items, scheduler.waiting_tokens, scheduler.waiting_cost] == [0, 0, 0.0]


def test_a_batch_stops_at_so_many_items() -> None:
    """However short the items are, and whosever, a batch has no more than it may."""
    scheduler = Scheduler[Owner](1000, alike=lambda _: 8, knee=lambda _: 100, batch_inputs=4)
    scheduler.add(Owner(), rows(1, 2, 3, 4, 5, 6))
    for _ in range(3):
        scheduler.add(Owner(), rows(1))
    assert [len(batch) for batch in drain(scheduler)] == [4, 4, 1]


def test_when_what_waits_is_a_batch() -> None:
    """So many tokens or items are one, or what costs so much."""
    scheduler = Scheduler[Owner](10, batch_inputs=3)
    scheduler.add(Owner(), rows(2, 2))
    assert not scheduler.fills(5.0)
    assert scheduler.fills(4.0)
    scheduler.add(Owner(), rows(1))
    assert scheduler.fills(100.0)
    assert Scheduler[Owner](10).fills(0.0)


def test_small_requests_make_a_larger_batch() -> None:
    """Requests that are whole in a batch may fill it up to the knee; a long one has no more of it than its room."""
    scheduler = Scheduler[Owner](1000, room=lambda _: 3, knee=lambda _: 8)
    for _ in range(10):
        scheduler.add(Owner(), rows(5, 5))
    assert [len(batch) for batch in drain(scheduler)] == [8, 8, 4]
    scheduler.add(Owner(), rows(*[5] * 7))
    assert [len(batch) for batch in drain(scheduler)] == [3, 3, 1]
    scheduler.add(Owner(), rows(5))
    scheduler.add(Owner(), rows(*[5] * 4))
    assert [len(batch) for batch in drain(scheduler)] == [3, 2]


def test_a_long_request_is_not_counted_with_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find out whether a request is whole in a batch, no more of its items are looked at than a batch has."""
    looked = 0

    def tokens(pile: list[Item[Owner]]) -> int:
        nonlocal looked
        looked += len(pile)
        return tokens_of(pile)

    scheduler = Scheduler[Owner](1000, room=lambda _: 3, knee=lambda _: 8)
    scheduler.add(Owner(), rows(*[5] * 2000))
    monkeypatch.setattr("vecmill.serving.scheduler.tokens_of", tokens)
    assert sum(len(batch) for batch in drain(scheduler)) == 2000
    assert looked < 2000


def test_other_tenants_add_to_half_of_a_larger_batch() -> None:
    """Small requests fill a batch up to the knee with their own tenant's, up to half of that with others'."""
    scheduler = Scheduler[Owner](1000, room=lambda _: 3, knee=lambda _: 8)
    for tenant in "abb":
        scheduler.add(Owner(), rows(5, 5), tenant=tenant)
    assert [len(batch) for batch in drain(scheduler)] == [4, 2]
    tenants = {Owner(): tenant for tenant in "aaabb"}
    for owner, tenant in tenants.items():
        scheduler.add(owner, rows(5, 5), tenant=tenant)
    assert sorted(sorted(tenants[item.owner] for item in batch) for batch in drain(scheduler)) == [["a"] * 6, ["b"] * 4]


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


def served_cost(scheduler: Scheduler[Owner], owners: dict[int, str], turns: int) -> dict[str, float]:
    """Tokens that each was served in so many batches; owners are known by their identity."""
    served: dict[str, float] = dict.fromkeys(owners.values(), 0.0)
    for _ in range(turns):
        for item in scheduler.take():
            served[owners[id(item.owner)]] += len(item.ids)
    return served


@pytest.mark.parametrize(("shares", "wanted"), [((1.0, 1.0), 1.0), ((3.0, 1.0), 3.0), ((1.0, 3.0), 1 / 3)])
def test_tenants_share_by_their_weights(shares: tuple[float, float], wanted: float) -> None:
    """A tenant with 64 bulk requests gets its share beside one with a single request, not 64 times as much."""
    scheduler = Scheduler[Owner](64)
    owners: dict[int, str] = {}
    kept = []
    for number in range(65):
        name = "many" if number else "one"
        owner = Owner()
        kept.append(owner)
        owners[id(owner)] = name
        length = 16 if number else 15
        scheduler.add(owner, rows(*[length] * (60 if number else 4000)), tenant=name, share=shares[0 if number else 1])
    served = served_cost(scheduler, owners, 400)
    assert served["many"] / served["one"] == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize(("share", "wanted"), [(1.0, 1.0), (3.0, 3.0)])
def test_tenants_that_fill_each_others_batches_share_by_their_weights(share: float, wanted: float) -> None:
    """Tenants whose many small requests fill each other's batches have their shares all the same."""
    scheduler = Scheduler[Owner](100, lambda _: 7)
    rng = random.Random(0)
    names: dict[Owner, str] = {}

    def ask(name: str) -> None:
        owner = Owner()
        names[owner] = name
        scheduler.add(owner, rows(rng.randint(5, 14)), tenant=name, share=share if name == "heavy" else 1.0)

    for _ in range(64):
        ask("heavy")
        ask("light")
    served = Counter[str]()
    for _ in range(3000):
        for item in scheduler.take():
            name = names.pop(item.owner)
            served[name] += len(item.ids)
            ask(name)
    assert served["heavy"] / served["light"] == pytest.approx(wanted, rel=0.1)


def test_requests_of_a_tenant_share_by_their_weights() -> None:
    """A request that matters twice as much is served twice as much."""
    scheduler = Scheduler[Owner](32)
    heavy, light = Owner(), Owner()
    scheduler.add(heavy, rows(*[16] * 2000), weight=2.0)
    scheduler.add(light, rows(*[15] * 2000), weight=1.0)
    served = served_cost(scheduler, {id(heavy): "heavy", id(light): "light"}, 300)
    assert served["heavy"] / served["light"] == pytest.approx(2, rel=0.1)


def test_a_tenant_that_comes_back_has_no_debt_and_no_credit() -> None:
    """Time without work counts neither for nor against a tenant."""
    scheduler = Scheduler[Owner](16)
    busy = Owner()
    scheduler.add(busy, rows(*[16] * 500), tenant="busy")
    for _ in range(100):
        scheduler.take()
    late = Owner()
    scheduler.add(late, rows(*[15] * 100), tenant="late")
    served = served_cost(scheduler, {id(busy): "busy", id(late): "late"}, 60)
    assert served["late"] == pytest.approx(served["busy"], rel=0.15)


def test_room_and_price_come_from_the_cost_model() -> None:
    """Batches are as large as the model says, within the tokens; what waits is counted at its price."""
    scheduler = Scheduler[Owner](64, room=lambda length: 2 if length == 4 else 100, price=lambda length: length / 2)
    scheduler.add(Owner(), rows(*[4] * 5, *[16] * 5))
    assert scheduler.waiting_cost == pytest.approx((5 * 4 + 5 * 16) / 2)
    assert [lengths(batch) for batch in drain(scheduler)] == [[4, 4], [4, 4], [4], [16] * 4, [16]]
    assert scheduler.waiting_cost == 0


def test_what_waits_costs_what_it_did_when_it_came() -> None:
    """Prices that change while inputs wait leave nothing behind, though the queue is never empty."""
    rng, now = random.Random(1), [1.0]
    scheduler = Scheduler[Owner](16, price=lambda length: now[0] * length)
    scheduler.add(Owner(), rows(4, 4))
    for _ in range(2000):
        now[0] = rng.uniform(0.5, 2.0)
        for _ in range(rng.randint(0, 3)):
            scheduler.add(Owner(), rows(4, 8))
        if scheduler.waiting_items > 8 and (batch := scheduler.take()):
            if rng.random() < 0.2:
                scheduler.put_back(batch)
            elif rng.random() < 0.2:
                scheduler.drop(batch[0].owner)
    waiting = scheduler.waiting_cost
    taken = sum(item.cost for batch in drain(scheduler) for item in batch)
    assert waiting == pytest.approx(taken) != 0.0
    assert scheduler.waiting_cost == 0.0


def test_who_wants_little_goes_first() -> None:
    """Of requests that come at once the one whose batch costs less goes first; a heavier weight counts as less."""
    scheduler = Scheduler[Owner](1000)
    long, short, heavy = Owner(), Owner(), Owner()
    scheduler.add(long, rows(*[30] * 10))
    scheduler.add(short, rows(*[20] * 10))
    scheduler.add(heavy, rows(*[40] * 10), weight=4.0)
    assert [batch[0].owner for batch in drain(scheduler)] == [heavy, short, long]


def test_a_batch_that_may_cost_little() -> None:
    """Where a batch has a bound, requests with more than that left give none, and mates do not pass it."""
    scheduler = Scheduler[Owner](1000)
    first, mate = Owner(), Owner()
    scheduler.add(first, rows(10, 10))
    scheduler.add(mate, rows(*[10] * 10))
    assert scheduler.take(most=19.0) == []
    assert lengths(scheduler.take(most=45.0)) == [10] * 4
    assert scheduler.take(most=45.0) == []
    assert lengths(scheduler.take()) == [10] * 8


@pytest.mark.parametrize("tenants", [["", ""], ["long", "small"]])
def test_a_batch_that_may_cost_little_waits_for_nobody(tenants: list[str]) -> None:
    """Of those with little left the first one's turn it is, however many with much are served before it."""
    scheduler = Scheduler[Owner](100)
    longs, small, smaller = [Owner() for _ in range(5)], Owner(), Owner()
    for long in longs:
        scheduler.add(long, rows(*[30] * 10), tenant=tenants[0], share=100.0, weight=100.0)
    scheduler.add(small, rows(7), tenant=tenants[1])
    scheduler.add(smaller, rows(6), tenant=tenants[1])
    assert scheduler.take()[0].owner in longs
    assert [item.owner for item in scheduler.take(most=8.0)] == [smaller]
    assert [item.owner for item in scheduler.take(most=8.0)] == [small]
    assert scheduler.take(most=8.0) == []


def test_what_is_put_back_comes_first() -> None:
    """Items that were taken and not answered stand before the rest of their request, in their order."""
    scheduler = Scheduler[Owner](8)
    owner = Owner()
    scheduler.add(owner, rows(4, 4, 4, 4))
    taken = scheduler.take()
    scheduler.put_back(taken)
    assert (scheduler.waiting_items, scheduler.waiting_tokens) == (4, 16)
    assert [item.row for batch in drain(scheduler) for item in batch] == [0, 1, 2, 3]
    last = Owner()
    scheduler.add(last, rows(4))
    scheduler.put_back(scheduler.take())
    assert [item.owner for item in scheduler.take()] == [last]


def test_the_cost_of_an_item_does_not_grow() -> None:
    """Adding and taking an item takes as long among 100,000 as among 1,000."""

    def seconds(requests: int) -> float:
        rng = random.Random(0)
        works = [(Owner(), rows(*[rng.randint(4, 200) for _ in range(20)])) for _ in range(requests)]
        scheduler = Scheduler[Owner](512)
        started = time.process_time()
        for owner, some in works:
            scheduler.add(owner, some)
        drain(scheduler)
        return (time.process_time() - started) / (20 * requests)

    assert min(seconds(5000) for _ in range(2)) < 4 * min(seconds(50) for _ in range(5))


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


@pytest.mark.parametrize("seed", range(20))
def test_items_that_are_put_back_come_out_once_more(seed: int) -> None:
    """Whatever is put back or dropped in whatever order, each item that is kept comes out and stays out once."""
    rng = random.Random(seed)
    scheduler = Scheduler[Owner](64)
    owners: list[Owner] = []
    out: list[Item[Owner]] = []
    kept = 0
    for _ in range(300):
        dice = rng.random()
        if dice < 0.4:
            owners.append(Owner())
            some = rows(*[rng.randint(1, 9) for _ in range(rng.randint(1, 12))])
            scheduler.add(owners[-1], some, tenant=rng.choice("ab"))
            kept += len(some)
        elif dice < 0.7:
            batch = scheduler.take()
            back = rng.sample(batch, rng.randint(0, len(batch)))
            scheduler.put_back(back)
            out += [item for item in batch if item not in back]
        elif dice < 0.75 and owners:
            before = scheduler.waiting_items
            scheduler.drop(owners.pop(rng.randrange(len(owners))))
            kept -= before - scheduler.waiting_items
        assert scheduler.waiting_items == kept - len(out)
    out += [item for batch in drain(scheduler) for item in batch]
    assert len(set(map(id, out))) == len(out) == kept
    assert all(item.taken for item in out)
    assert (scheduler.waiting_items, scheduler.waiting_tokens, scheduler.waiting_cost) == (0, 0, 0.0)


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
