"""Measure vecmill against the bare engine and against its own promises, and keep the result.

usage: run.py [NAME ...]        (names of `BENCHES`; all of them without an argument)
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import encoding
import footprint
import index
import lanes
import latency
import machine
import overhead
import overload
import start
import tenants
import workers

RESULTS = Path(__file__).parent / "results"

BENCHES: dict[str, Callable[[], dict[str, Any]]] = {
    "start": start.measure,
    "latency": latency.measure,
    "index": index.measure,
    "lanes": lanes.measure,
    "overhead": overhead.measure,
    "encoding": encoding.measure,
    "overload": overload.measure,
    "tenants": tenants.measure,
    "workers": workers.measure,
    "footprint": footprint.measure,
}


def main(names: list[str]) -> None:
    """Run the benches of these names and write bench/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    for name in names or list(BENCHES):
        result = BENCHES[name]()
        print(f"{name}:")
        for key, value in result.items():
            print(f"  {key:36} {value}")
        (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine.describe(), **result}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
