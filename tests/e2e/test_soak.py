"""A short soak: thousands of requests of all sizes leave a server as it was after the first ones."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from running import Running, running

ROUNDS = 4
REQUESTS = 750
WORDS = ["cat", "dog", "sat", "mat", "the", "on", "hello", "world"]
GROWTH_MB = 10
"""What allocators may keep more after three rounds; 2,250 answers kept by mistake would be more than that."""


def ask(client: httpx.Client, rng: random.Random) -> None:
    """A request of 1 to 32 texts of 1 to 40 words, for floats or base64, or a wrong one."""
    texts = [
        " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 40))) for _ in range(rng.choice([1, 1, 1, 8, 32]))
    ]
    wrong = rng.random() < 0.05
    body = {"input": [""] if wrong else texts, "encoding_format": rng.choice(["float", "base64"])}
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == (400 if wrong else 200)
    assert wrong or len(answer.json()["data"]) == len(texts)


def files_of(process: Path, most: int) -> int:
    """Open files; a server hears after its clients that they have left, and has a moment to close what is too many."""
    for _ in range(200):
        if (files := len(list((process / "fd").iterdir()))) <= most:
            break
        time.sleep(0.05)
    return files


def round_of(server: Running, seed: int, files: int) -> tuple[float, int, int]:
    """Megabytes, threads and open files after a round of requests by four clients; `files` before it."""
    rng = random.Random(seed)
    with ThreadPoolExecutor(4) as pool, httpx.Client(base_url=server.url, timeout=60) as client:
        for done in [pool.submit(ask, client, random.Random(rng.random())) for _ in range(REQUESTS)]:
            done.result()
    process = Path(f"/proc/{server.process.pid}")
    pages = int((process / "statm").read_text().split()[1])
    return pages * 4096 / 2**20, len(list((process / "task").iterdir())), files_of(process, files)


def test_nothing_grows(tiny_folder: Path) -> None:
    """From the second round on a server has the memory, threads and files that it had after the first."""
    with running(tiny_folder, "--result-cache-mb", "1") as server:
        before = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        first, *_, last = [round_of(server, seed, before) for seed in range(ROUNDS)]
    assert last[0] - first[0] < GROWTH_MB
    assert last[1] <= first[1]
    assert last[2] <= before
