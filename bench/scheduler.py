"""What the queue itself costs: microseconds to add and take an item, from a thousand to a million waiting.

usage: scheduler.py        (`make bench-scheduler`)
"""

import json
import random
import time
from pathlib import Path

import machine
import numpy as np

from vecmill.graph.packed import near
from vecmill.serving.scheduler import Owner, Scheduler
from vecmill.simulate.arrivals import Draw, lognormal

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
INPUTS = 32


BATCH_TOKENS = 512

LENGTHS: dict[str, Draw] = {
    "passages": lognormal(62.0, 0.9, 6, 256),
    "evenly from 4 to 512": lambda rng: rng.randint(4, 512),
}
"""What inputs have: passages as the fleets on paper have them, and the worst there is, where few share a batch."""


def microseconds(draw: Draw, items: int) -> float:
    """To add and take one of so many items, in requests of `INPUTS` inputs by 100 tenants."""
    rng = random.Random(0)
    ids = [np.zeros(length, dtype=np.int32) for length in range(BATCH_TOKENS + 1)]
    works = [(Owner(), [ids[draw(rng)] for _ in range(INPUTS)]) for _ in range(items // INPUTS)]
    scheduler = Scheduler[Owner](BATCH_TOKENS, alike=near)
    started = time.process_time()
    for number, (owner, rows) in enumerate(works):
        scheduler.add(owner, rows, tenant=str(number % 100))
    while scheduler.take():
        pass
    return (time.process_time() - started) / (len(works) * INPUTS) * 1e6


def main() -> None:
    """Measure, print and keep."""
    result = {
        "machine": machine.describe(),
        "microseconds_an_item": {
            name: {str(size): round(min(microseconds(draw, size) for _ in range(2)), 2) for size in SIZES}
            for name, draw in LENGTHS.items()
        },
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scheduler.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
