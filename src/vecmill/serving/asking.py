"""Where a request's answers come from: memory, the store behind it, another request, or the engine."""

from collections.abc import Sequence

import msgspec

from vecmill.core import Caller, Output, Request
from vecmill.engine.base import Column
from vecmill.model.tokens import Tokens
from vecmill.serving.cache import Cache, Key, Plan, plan
from vecmill.serving.inflight import InFlight
from vecmill.serving.job import Job
from vecmill.serving.runner import Runner
from vecmill.serving.steps import Steps, Wait
from vecmill.serving.store import WAIT_S, ResultStore


class Answers(msgspec.Struct, frozen=True):
    """What a request asked.

    Attributes:
        columns: One for each output, of all inputs.
        cached: How many inputs were not computed for this request.
        started: When the first of those ran that were, by `time.perf_counter`; 0 where none was.
    """

    columns: list[Column]
    cached: int
    started: float


class Asking:
    """One model's answers.

    Args:
        runner: Computes what nobody knows.
        cache: What was computed before; None remembers nothing.
        store: The same outside this process, behind the cache; None where there is none.
        widths: Output to the numbers of a value of it; 0 where they differ.
        marked: Whether the model wants to know a place in each input.
        shared: Whether a tenant finds what was computed for another.
    """

    def __init__(
        self,
        runner: Runner,
        cache: Cache | None,
        store: ResultStore | None,
        widths: dict[Output, int],
        *,
        marked: bool,
        shared: bool = False,
    ) -> None:
        self._cache = cache
        self._store = store
        self._runner = runner
        self._widths = widths
        self._marked = marked
        self._shared = shared
        self._flights = InFlight()

    def answers(
        self, request: Request, tokens: Sequence[Tokens], caller: Caller, numbers: Sequence[int]
    ) -> Steps[Answers]:
        """Answer a request's inputs, each distinct one computed at most once; closing it drops what is still queued.

        Args:
            request: What is wanted of them.
            tokens: The inputs.
            caller: Who asks.
            numbers: What the caller calls each of them in errors.

        Raises:
            RequestError: As `Runner.submit`, and what befell the engine.
        """
        if not tokens:
            return Answers([], 0, 0.0)
        stores = not request.options.no_store
        cache = self._cache if stores else None
        ask = plan(cache, tokens, request.outputs, "" if self._shared else caller.tenant)
        if cache is not None and self._store is not None and ask.asked:
            ask = yield from self._stored(ask, cache, self._store)
        keys, own, started, shares = ask.keys, set[Key](), 0.0, stores
        terms = caller.tenant, caller.share, caller.weight
        while ask.asked:
            led, asked, size = ask.asked, [keys[place] for place in ask.asked], _size(tokens, ask.asked)
            followed = self._flights.follow(asked, size, terms) if shares else {}
            waits = {}
            if followed:
                waits = {flight: flight.waiting() for flight in followed.values()}
                led = [place for place in led if keys[place] not in followed]
                asked, size = [keys[place] for place in led], _size(tokens, led)
            given: list[Column] = []
            job = self._queue(request, tokens, led, caller, numbers) if led else None
            flight = self._flights.lead(asked, job.future, size, terms) if job and shares else None
            done = {}
            try:
                if job is not None:
                    given = yield Wait(job.future)
                    started = started or job.started
                    if cache is not None:
                        self._remember(cache, asked, given)
                for other, wait in waits.items():
                    done[other] = yield Wait(wait)
            finally:
                read = flight is not None and self._flights.land(flight)
                if job is not None:
                    job.future.cancel()
            if len(led) == len(keys) and not read:
                return Answers(given, 0, started)
            own.update(asked)
            learned = {key: tuple(column[row] for column in given) for row, key in enumerate(asked)}
            learned |= {key: other.values(key) for key, other in followed.items() if done[other]}
            shares = shares and all(done[other] or other.future.cancelled() for other in waits)  # no failure twice
            ask = ask.learned(learned)
        columns = ask.columns([self._widths[output] for output in request.outputs])
        return Answers(columns, sum(key not in own for key in keys), started)

    def _stored(self, ask: Plan, cache: Cache, store: ResultStore) -> Steps[Plan]:
        """What is stored is known too, and what others have learned in the meantime."""
        asked = [ask.keys[place] for place in ask.asked]
        if (reading := store.read(asked)) is None:
            return ask
        try:
            found = yield Wait(reading, WAIT_S)
        except TimeoutError:
            reading.cancel()
            store.give_up()
            return ask
        values = {key: cache.put(key, *one) for key, one in found.items()}
        learned = {key: one for key in asked if key not in values and (one := cache.get(key)) is not None}
        return ask.learned(values | learned)

    def _remember(self, cache: Cache, keys: list[Key], given: list[Column]) -> None:
        for row, key in enumerate(keys):
            values = cache.put(key, [column[row] for column in given])
            if self._store is not None:
                self._store.write(key, values)

    def _queue(
        self, request: Request, tokens: Sequence[Tokens], places: list[int], caller: Caller, numbers: Sequence[int]
    ) -> Job:
        """Ask the engine about the inputs at these places."""
        asked = [tokens[place] for place in places]
        return self._runner.submit(
            [one.ids for one in asked],
            request.outputs,
            [one.mark for one in asked] if self._marked else None,
            numbers=[numbers[place] for place in places],
            tenant=caller.tenant,
            share=caller.share,
            weight=caller.weight,
            who=identity(request, caller),
        )


def identity(request: Request, caller: Caller) -> int:
    """The same for a request that comes back after a refusal: of the same tenant, with the same inputs."""
    try:
        return hash((caller.tenant, *request.inputs))
    except TypeError:  # lists of token ids
        return hash((caller.tenant, *(tuple(one) if isinstance(one, list) else one for one in request.inputs)))


def _size(tokens: Sequence[Tokens], places: Sequence[int]) -> int:
    """Tokens of the inputs at these places."""
    return sum([len(tokens[place].ids) for place in places])
