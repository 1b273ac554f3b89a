"""Clients that leave, bodies that never end and wrong requests, each a thousand times, beside good work."""

import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import msgspec
import pytest
from running import Running, running

TIMES = 1000
WORDS = ["cat", "dog", "sat", "mat", "the", "on", "hello", "world"]
GROWTH_MB = 40
"""More than caches and allocators take once they are warm, less than a thousand requests would leave."""


@pytest.fixture
def server(tiny_folder: Path) -> Iterator[Running]:
    """A server of the tiny model with two lanes and an express lane, that remembers no answers.

    It has tokenised much at once, as those threads begin when they are first wanted.
    """
    with running(tiny_folder, "--threads", "2", "--lanes", "2", "--result-cache-mb", "0") as one:
        with httpx.Client(base_url=one.url, timeout=30) as client, ThreadPoolExecutor(8) as at_once:
            list(at_once.map(lambda _: embed(client, ["hello world " * 500] * 20), range(16)))
        yield one


def text(rng: random.Random) -> str:
    """A text of 1 to 40 words."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 40)))


def embed(client: httpx.Client, texts: list[str]) -> list[str]:
    """The vectors, each as base64: equal where their bytes are."""
    answer = client.post("/v1/embeddings", json={"input": texts, "encoding_format": "base64"})
    assert answer.status_code == 200, answer.text
    return [one["embedding"] for one in answer.json()["data"]]


def request(body: bytes, length: int | None = None) -> bytes:
    """The bytes of a request."""
    head = "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {length or len(body)}\r\n\r\n".encode() + body


def many() -> bytes:
    """A body of 40 texts that nobody has asked for before."""
    return msgspec.json.encode({"input": [f"hello {uuid4().hex[:6]} {number}" for number in range(40)]})


def leave(address: tuple[str, int]) -> None:
    """Ask and be gone before the answer."""
    with socket.create_connection(address) as line:
        line.sendall(request(many()))


def reset(address: tuple[str, int]) -> None:
    """Ask and break the connection off, as a killed process on another machine does."""
    line = socket.create_connection(address)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    line.sendall(request(many()))
    line.close()


def stop_half_way(address: tuple[str, int]) -> None:
    """Send half of a body and be gone."""
    with socket.create_connection(address) as line:
        body = many()
        line.sendall(request(body[: len(body) // 2], len(body)))


def talk_nonsense(address: tuple[str, int]) -> None:
    """Send what is no request, and read the refusal."""
    with socket.create_connection(address) as line:
        line.sendall(random.Random(0).randbytes(200) + b"\r\n\r\n")
        assert line.recv(1000).startswith(b"HTTP/1.1 400 ")


def send_poison(address: tuple[str, int]) -> None:
    """A list in which one text is empty: the whole request is refused."""
    with socket.create_connection(address) as line:
        line.sendall(request(b'{"input": ["hello", "", "world"]}'))
        assert line.recv(1000).startswith(b"HTTP/1.1 400 ")


@contextmanager
def good_work(server: Running) -> Iterator[list[int]]:
    """Clients that ask all the while and look at every answer; the counts of what each has got."""
    rng = random.Random(1)
    texts = [text(rng) for _ in range(60)]
    with httpx.Client(base_url=server.url, timeout=30) as client:
        wanted = dict(zip(texts, embed(client, texts), strict=True))
    done, over = [0, 0, 0], threading.Event()

    def work(number: int) -> None:
        own = random.Random(number)
        with httpx.Client(base_url=server.url, timeout=30) as client:
            while not over.is_set():
                some = own.sample(texts, own.randint(1, 20))
                assert embed(client, some) == [wanted[one] for one in some]
                done[number] += 1

    with ThreadPoolExecutor(3) as pool:
        workers = [pool.submit(work, number) for number in range(3)]
        try:
            yield done
        finally:
            over.set()
        for worker in workers:
            worker.result()


def state(server: Running) -> tuple[int, int, float]:
    """Threads, open files and resident megabytes of the process."""
    process = Path(f"/proc/{server.process.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    files = len(list((process / "fd").iterdir()))
    return int(status["Threads"]), files, int(status["VmRSS"].split()[0]) / 1024


def queued(server: Running) -> float:
    """Inputs that wait."""
    page = httpx.get(f"{server.url}/metrics").text
    return float(page.partition('vecmill_queue_inputs{model="tiny"} ')[2].partition("\n")[0])


def until(condition: Callable[[], bool]) -> None:
    """Wait for what comes true by itself."""
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    assert condition()


@pytest.mark.parametrize("fault", [leave, reset, stop_half_way, talk_nonsense, send_poison])
def test_a_thousand_faults(server: Running, fault: Callable[[tuple[str, int]], None]) -> None:
    """Others get their right answers meanwhile; afterwards nothing waits, no thread, connection or memory is left."""
    parts = urlsplit(server.url)
    address = (parts.hostname or "", parts.port or 0)
    with good_work(server) as done, ThreadPoolExecutor(8) as faulty:
        list(faulty.map(fault, [address] * (TIMES // 10)))
        before = state(server)
        first = list(done)
        list(faulty.map(fault, [address] * TIMES))
        until(lambda: all(now > then for now, then in zip(done, first, strict=True)))
    until(lambda: queued(server) == 0)
    threads, files, megabytes = before
    until(lambda: state(server)[1] <= files)
    after = state(server)
    assert after[0] <= threads
    assert after[2] < megabytes + GROWTH_MB
    assert httpx.get(f"{server.url}/ready").status_code == 200


def test_a_text_has_one_answer(server: Running) -> None:
    """The bytes of a vector are the same alone, in any mix and at any load, whichever lane it runs in."""
    rng = random.Random(2)
    texts = [f"{text(rng)} {number}" for number in range(200)]
    with httpx.Client(base_url=server.url, timeout=30) as client:
        alone = {one: embed(client, [one])[0] for one in texts}

    def ask(seed: int) -> list[bool]:
        own = random.Random(seed)
        with httpx.Client(base_url=server.url, timeout=60) as client:
            found = []
            for _ in range(20):
                some = own.choices(texts, k=own.choice([1, 1, 2, 7, 60, 200]))
                found += [got == alone[one] for got, one in zip(embed(client, some), some, strict=True)]
            return found

    with ThreadPoolExecutor(8) as pool:
        found = [same for part in pool.map(ask, range(8)) for same in part]
    assert len(found) > 1000
    assert all(found)
