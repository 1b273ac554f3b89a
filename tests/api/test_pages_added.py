"""Pages of metrics, added up."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from vecmill.api import pages


def written(requests: dict[str, int], seconds: list[float], waiting: int) -> pages.Page:
    """The page of one process."""
    registry = CollectorRegistry()
    counter = Counter("requests", "Requests", ["route"], registry=registry)
    for route, count in requests.items():
        counter.labels(route).inc(count)
    histogram = Histogram("seconds", "Seconds", buckets=(1, 2), registry=registry)
    for value in seconds:
        histogram.observe(value)
    Gauge("waiting", "Waiting", registry=registry).set(waiting)
    Gauge("process_start_time_seconds", "Start", registry=registry).set(100 + waiting)
    return pages.read(generate_latest(registry).decode())


def numbers(page: pages.Page) -> dict[str, float]:
    """Series to number, without times of creation."""
    flat = {name: number for series in page.values() for name, number in series.items()}
    return {name: number for name, number in flat.items() if "_created" not in name}


def test_counts_are_added() -> None:
    """Counters, buckets and gauges are sums; a series that one process alone has is there; a start is the first."""
    total = numbers(pages.add([written({"/a": 1, 'b "\n': 2}, [0.5], 3), written({"/a": 4}, [1.5, 9], 5)]))
    assert total == {
        'requests_total{route="/a"}': 5,
        'requests_total{route="b \\"\\n"}': 2,
        'seconds_bucket{le="1.0"}': 1,
        'seconds_bucket{le="2.0"}': 2,
        'seconds_bucket{le="+Inf"}': 3,
        "seconds_count": 3,
        "seconds_sum": 11,
        "waiting": 8,
        "process_start_time_seconds": 103,
    }


def test_a_page_survives_being_read_and_written() -> None:
    """What is written reads as what it was, with the lines that say what each metric is."""
    page = written({"/a": 1}, [0.5], 3)
    assert pages.read(pages.write(page)) == page
    assert "# TYPE seconds histogram\n" in pages.write(page)


def test_names_may_hold_any_character() -> None:
    """What Python takes for the end of a line, and Prometheus does not, is a character of a name as any other."""
    name = "".join(map(chr, [*range(1, 32), 0x85, 0x2028, 0x2029, ord(" "), ord("}")]))
    page = written({name: 2}, [], 0)
    assert pages.read(pages.write(page)) == page
    assert numbers(pages.add([page, page]))['requests_total{route="' + name.replace("\n", "\\n") + '"}'] == 4


def test_counters_are_kept() -> None:
    """Of a process that has ended what it counted is kept, and what it held is not."""
    left = numbers(pages.kept(written({"/a": 1}, [0.5], 3)))
    assert left["seconds_count"] == left['requests_total{route="/a"}'] == 1
    assert "waiting" not in left
