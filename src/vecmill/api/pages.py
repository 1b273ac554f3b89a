"""Pages in Prometheus's text format, added up: what several processes count, as if one had counted it."""

from collections.abc import Callable, Iterable

Page = dict[str, dict[str, float]]
"""The HELP and TYPE lines of a metric to its series (name and labels, as written) and their numbers."""

KEPT = (" counter", " histogram")
"""Ends of TYPE lines of what stays when a process has ended."""

JOINED: dict[str, Callable[[float, float], float]] = {
    "process_start_time_seconds": min,
    "process_max_fds": min,
    "vecmill_build_info": min,
    "vecmill_model_ready": min,
}
"""Gauges of which a sum would mean nothing. Other numbers are added."""


def read(text: str) -> Page:
    """A page as it was written by prometheus_client."""
    page: Page = {}
    head, series = "", {}
    for line in text.split("\n"):  # names may hold what else Python takes for the end of a line
        if line.startswith("# HELP"):
            head = line
        elif line.startswith("# TYPE"):
            series = page.setdefault(f"{head}\n{line}", {})
        elif line:
            name, _, number = line.rpartition(" ")
            series[name] = float(number)
    return page


def write(page: Page) -> str:
    """The page as text."""
    lines = []
    for head, series in page.items():
        lines += [head, *(f"{name} {number!r}" for name, number in series.items())]
    return "\n".join([*lines, ""])


def add(pages: Iterable[Page]) -> Page:
    """One page of all: a series is there where it is on any."""
    total: Page = {}
    for page in pages:
        for head, series in page.items():
            rows = total.setdefault(head, {})
            for name, number in series.items():
                rows[name] = _join(name)(rows[name], number) if name in rows else number
    return total


def kept(page: Page) -> Page:
    """What still counts of a process that has ended: a counter that went down would read as one that began anew."""
    return {head: series for head, series in page.items() if head.endswith(KEPT)}


def _join(name: str) -> Callable[[float, float], float]:
    return JOINED.get(name.partition("{")[0], _plus)


def _plus(one: float, other: float) -> float:
    return one + other
