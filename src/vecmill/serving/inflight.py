"""What the engine computes right now, so that a request for the same waits for it instead of asking again.

A request follows only a job that is no larger than what it asks itself, of the same tenant and weight: it would have
waited as long for its own. Nobody's end harms another: where the job that is followed ends without an answer, those
who followed ask for themselves.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from vecmill.core import Value
from vecmill.engine.base import Column
from vecmill.serving.cache import Key
from vecmill.serving.ending import Ending

Terms = tuple[str, float, float]
"""A tenant, its share and a request's weight."""


@dataclass(slots=True, eq=False)
class Flight:
    """A job that others may follow.

    Attributes:
        rows: Its keys, each with its row of the columns.
        future: The job's own; only the job's request may cancel it.
        size: Tokens of the whole job.
        terms: Whose it is, and its weight.
        followed: Whether anyone reads its columns besides its request.
    """

    rows: dict[Key, int]
    future: Ending[list[Column]]
    size: int
    terms: Terms
    followed: bool = field(default=False, init=False)

    def waiting(self) -> Ending[bool]:
        """Ends with the job: whether it has columns. Cancelling this cancels nothing else."""
        waiter: Ending[bool] = Ending()
        self.future.at_end(lambda: waiter.set_result(self.future.exception() is None))
        return waiter

    def values(self, key: Key) -> tuple[Value, ...]:
        """The answer to a key, of a job that has columns."""
        return tuple(column[self.rows[key]] for column in self.future.result())


class InFlight:
    """The flights of one model, by what they compute. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._flights: defaultdict[Terms, dict[Key, Flight]] = defaultdict(dict)

    def __len__(self) -> int:
        """How many answers are on their way."""
        with self._lock:
            return sum(map(len, self._flights.values()))

    def lead(self, keys: Sequence[Key], future: Ending[list[Column]], size: int, terms: Terms) -> Flight:
        """Let others follow a job until it lands; of two that compute the same they follow the smaller."""
        flight = Flight({key: row for row, key in enumerate(keys)}, future, size, terms)
        with self._lock:
            flights = self._flights[terms]
            for key in keys:
                other = flights.get(key)
                if other is None or other.size > size:
                    flights[key] = flight
        return flight

    def follow(self, keys: Sequence[Key], size: int, terms: Terms) -> dict[Key, Flight]:
        """The flights that a request may wait for which asks these keys, of so many tokens in all."""
        with self._lock:
            flights = self._flights.get(terms)
            if not flights:
                return {}
            followed = {key: one for key in keys if (one := flights.get(key)) is not None and one.size <= size}
            for flight in followed.values():
                flight.followed = True
        return followed

    def land(self, flight: Flight) -> bool:
        """Nobody follows it from now on; whether anyone did."""
        with self._lock:
            flights = self._flights[flight.terms]
            for key in flight.rows:
                if flights.get(key) is flight:
                    del flights[key]
            if not flights:
                del self._flights[flight.terms]
            return flight.followed
