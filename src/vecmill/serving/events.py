"""What happened, told to whoever subscribed: metrics, logs, tests. Nothing here knows a metrics library."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from vecmill.core import Timings

log = logging.getLogger(__name__)

NO_TIMINGS = Timings()


class RequestDone(msgspec.Struct, frozen=True):
    """A request was answered.

    Attributes:
        model: Served name; "" where the request named none that is served.
        route: The path's template.
        status: HTTP status of the answer.
        tenant: Whose request it was; "" where there are no tenants.
        inputs: Texts in it; 0 where it failed.
        tokens: Tokens that went through the model.
        truncated: Inputs cut to the limit.
        cached: Inputs that were not computed for this request.
        timings: Seconds by stage.
    """

    model: str
    route: str
    status: int
    tenant: str = ""
    inputs: int = 0
    tokens: int = 0
    truncated: int = 0
    cached: int = 0
    timings: Timings = NO_TIMINGS


class BatchDone(msgspec.Struct, frozen=True):
    """The engine ran one micro-batch.

    Attributes:
        model: Served name.
        rows: Inputs in it.
        tokens: Tokens in it.
        seconds: What it took.
        failed: Whether the engine raised.
    """

    model: str
    rows: int
    tokens: int
    seconds: float
    failed: bool


Event = RequestDone | BatchDone
Subscriber = Callable[[Event], None]


@dataclass(slots=True)
class Events:
    """The list of subscribers, called in the thread in which it happened; they must be quick.

    What one raises is logged: it harms neither those who make things happen nor other subscribers.
    """

    subscribers: list[Subscriber] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Tell everyone."""
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except Exception:
                log.exception("who is told of events could not take one")
