"""What an answer costs to encode: 64 vectors of 384 numbers, and how long a large one keeps the event loop waiting."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np

from vecmill.api.dialects.openai import EmbeddingsBody, render
from vecmill.api.replies import rendered
from vecmill.core import Result, Timings

SMALL = (64, 384)
LARGE = (2048, 1024)
TIMES = 200
LARGE_TIMES = 9
PULSE_S = 0.001

Encoding = Literal["float", "base64"]
ENCODINGS: tuple[Encoding, ...] = ("float", "base64")


def measure() -> dict[str, Any]:
    """Milliseconds of OpenAI's answer, as numbers and as base64: medians of many."""
    small, large, found = _answer(*SMALL), _answer(*LARGE), dict[str, Any]()
    for encoding in ENCODINGS:
        body = EmbeddingsBody("", encoding_format=encoding)
        found[f"64x384_{encoding}_ms"] = _median([_timed(partial(_whole, body, small)) for _ in range(TIMES)])
        gaps = [asyncio.run(_gap(body, large)) for _ in range(LARGE_TIMES)]
        found[f"2048x1024_{encoding}_loop_blocked_ms"] = _median(gaps)
    return found


def _answer(inputs: int, dims: int) -> Result:
    rows = np.random.default_rng(0).standard_normal((inputs, dims)).astype(np.float32)
    return Result(model="m", rows=rows, tokens=[1] * inputs, timings=Timings())


def _whole(body: EmbeddingsBody, answer: Result) -> bytes:
    return msgspec.json.encode(render(body, answer))


def _median(figures: list[float]) -> float:
    return round(sorted(figures)[len(figures) // 2], 3)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


async def _gap(body: EmbeddingsBody, answer: Result) -> float:
    """Milliseconds of the longest time between two turns of the loop while the answer is encoded, less the pulse."""
    longest = 0.0

    async def pulse() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(PULSE_S)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    with ThreadPoolExecutor(2) as encoding:
        beat = asyncio.create_task(pulse())
        await asyncio.sleep(0.02)
        longest = 0.0
        await rendered(render, body, answer, encoding)
        beat.cancel()
    return max(0.0, longest - PULSE_S) * 1000
