"""What is asked, and when: at random, in bursts, as recorded, or by clients that wait for their answers.

Open patterns are iterators of arrivals in order of time; `heapq.merge` makes one of several. The number of a fleet's
clients is bounded, what they ask is not: they ask again when they are answered.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

Lengths = tuple[int, ...]
Draw = Callable[[Random], int]


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests that are counted together.

    Attributes:
        name: In the report.
        length: Draws the tokens of an input.
        inputs: How many a request has.
        tenant: Whose requests they are.
        share: The tenant's weight beside other tenants.
        weight: A request's weight beside the tenant's others.
    """

    name: str
    length: Draw
    inputs: int = 1
    tenant: str = ""
    share: float = 1.0
    weight: float = 1.0

    def lengths(self, rng: Random) -> Lengths:
        """Tokens of each input of one request."""
        return tuple(self.length(rng) for _ in range(self.inputs))


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request, in order of its time.

    Attributes:
        time: When it comes, in seconds.
        kind: What counts it, and whose it is.
        lengths: Tokens of each of its inputs.
    """

    time: float
    kind: Kind
    lengths: Lengths

    def __lt__(self, other: "Arrival") -> bool:
        return self.time < other.time


@dataclass(frozen=True, slots=True)
class Clients:
    """So many who ask one request after the other.

    Attributes:
        kind: What they ask.
        count: How many they are.
        think_s: Mean seconds from an answer to the next request, exponential; 0 asks at once.
    """

    kind: Kind
    count: int
    think_s: float = 0.0


def always(length: int) -> Draw:
    """Inputs of one length."""
    return lambda _: length


def between(least: int, most: int) -> Draw:
    """Lengths that are equally likely."""
    return lambda rng: rng.randint(least, most)


def lognormal(median: float, sigma: float, least: int, most: int) -> Draw:
    """Lengths as texts have them: most are near the median, few are many times longer."""
    mean = math.log(median)
    return lambda rng: max(least, min(most, round(rng.lognormvariate(mean, sigma))))


def poisson(kind: Kind, per_s: float, seconds: float, seed: int) -> Iterator[Arrival]:
    """Requests that know nothing of each other, so many a second."""
    rng = Random(seed)
    time = rng.expovariate(per_s)
    while time < seconds:
        yield Arrival(time, kind, kind.lengths(rng))
        time += rng.expovariate(per_s)


def bursts(kind: Kind, size: int, every_s: float, seconds: float, seed: int) -> Iterator[Arrival]:
    """So many requests at once, at moments that are so many seconds apart on average."""
    rng = Random(seed)
    time = rng.expovariate(1 / every_s)
    while time < seconds:
        for _ in range(size):
            yield Arrival(time, kind, kind.lengths(rng))
        time += rng.expovariate(1 / every_s)


def trace(rows: Iterable[tuple[float, str, float, Lengths]]) -> Iterator[Arrival]:
    """What was recorded: time, tenant, weight and lengths of each request, in order; counted by tenant."""
    for time, tenant, weight, lengths in rows:
        yield Arrival(time, Kind(tenant, always(0), len(lengths), tenant, weight=weight), lengths)
