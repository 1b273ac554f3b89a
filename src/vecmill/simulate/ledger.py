"""What became of a load: latencies, what lanes did, who had which part, and whether refusals were right."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from vecmill.simulate.refused import Told
from vecmill.simulate.station import Lane, Request

QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(slots=True)
class Ledger:
    """Everything that ended, by the name of its kind; and what ran, by tenant.

    Attributes:
        warm_up_s: Requests that came earlier are not in `latencies_s`.
        seconds: Work is counted until then.
        lanes: Lanes of all replicas, the express lanes not counted.
        told: When refused requests were told to come back.
        latencies_s: Seconds from the first asking to the answer, in order of answers.
        answer_s: The same from when each was admitted, all of them.
        ended: Requests that were done.
        inputs: Inputs of requests that were done by `seconds`.
        refusals: Refusals; one request may have several.
        given_up: Requests that were refused and did not come back.
        returned: Requests that came back after their first refusal.
        welcome: Of those, how many were then admitted.
        redone: Requests of lost replicas that had begun.
        served_s: Tenant to seconds of lanes that its inputs took, from the warm-up to `seconds`.
        busy_s: Seconds of lanes, until `seconds`.
        batches: How many ran.
        rows: Their inputs.
    """

    warm_up_s: float
    seconds: float
    lanes: int
    told: Told
    latencies_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answer_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ended: Counter[str] = field(default_factory=Counter)
    inputs: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    returned: int = 0
    welcome: int = 0
    redone: int = 0
    served_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    busy_s: float = 0.0
    batches: int = 0
    rows: int = 0

    @property
    def utilisation(self) -> float:
        """Part of their time that lanes worked; express lanes may add to it."""
        return self.busy_s / (self.lanes * self.seconds)

    @property
    def inputs_per_s(self) -> float:
        """Inputs of answered requests a second, until `seconds`."""
        return self.inputs.total() / self.seconds

    @property
    def refused(self) -> float:
        """Part of all askings that were refused."""
        return self.refusals.total() / max(1, self.refusals.total() + self.ended.total())

    def quantiles_s(self, kind: str) -> dict[float, float]:
        """Latencies that these parts of a kind's requests keep."""
        return dict(zip(QUANTILES, map(float, np.quantile(self.latencies_s[kind], QUANTILES)), strict=True))

    def mean_s(self, kind: str) -> float:
        """Mean latency of a kind."""
        return float(np.mean(self.latencies_s[kind]))

    def fairness(self, shares: dict[str, float]) -> float:
        """How near busy tenants are to their shares: 1 where they have them, 1/n where one has all.

        Args:
            shares: Tenant to its weight.

        Source: Jain, Chiu and Hawe, A quantitative measure of fairness, 1984.
        """
        parts = [self.served_s[tenant] / share for tenant, share in shares.items()]
        return sum(parts) ** 2 / (len(parts) * sum(part**2 for part in parts))

    def admitted(self, request: Request) -> None:
        """A request waits."""
        self.welcome += request.tries == 2
        self.returned += request.tries == 2

    def refused_once(self, request: Request) -> None:
        """A request was told to come back later."""
        self.refusals[request.arrival.kind.name] += 1
        self.returned += request.tries == 2

    def gave_up(self, request: Request) -> None:
        """A request was refused and does not come back."""
        self.given_up[request.arrival.kind.name] += 1

    def done(self, request: Request, now: float) -> None:
        """A request was answered."""
        kind = request.arrival.kind.name
        self.ended[kind] += 1
        self.answer_s[kind].append(now - request.visit.inside)
        if now <= self.seconds:
            self.inputs[kind] += len(request.arrival.lengths)
        if request.since >= self.warm_up_s:
            self.latencies_s[kind].append(now - request.since)

    def ran(self, lane: Lane, now: float) -> None:
        """A batch ran."""
        self.batches += 1
        self.rows += len(lane.items)
        self.busy_s += max(0.0, min(now, self.seconds) - lane.began)
        if self.warm_up_s <= lane.began < self.seconds:
            for item in lane.items:
                self.served_s[item.owner.arrival.kind.tenant] += (now - lane.began) / len(lane.items)
