"""How the server ends: accepted work is finished, a second signal ends it at once."""

import os
import random
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase

import httpx
import pytest
from running import COMMAND, Running, environment, read_to, running

INPUTS = 2048


def much() -> dict[str, object]:
    """A request that keeps the server busy: no two texts have the same tokens, in it and in others like it."""
    texts = [" ".join(random.choices(ascii_lowercase, k=8)) for _ in range(INPUTS)]
    return {"input": texts, "encoding_format": "base64"}


def ask(url: str) -> tuple[int, int, str]:
    """Status, number of vectors and error code of such a request."""
    answer = httpx.post(f"{url}/v1/embeddings", json=much(), timeout=60)
    data = answer.json()
    return answer.status_code, len(data.get("data", [])), data.get("error", {}).get("code", "")


def waiting(url: str) -> float:
    """Inputs in the queue."""
    page = httpx.get(f"{url}/metrics").text
    return float(page.partition('vecmill_queue_inputs{model="tiny"} ')[2].partition("\n")[0])


@contextmanager
def busy(folder: Path, callers: int, *arguments: str) -> Iterator[tuple[Running, list[Future[tuple[int, int, str]]]]]:
    """A server with work from so many callers, all of it accepted, one input a batch; and the answers to come."""
    with running(folder, "--batch-tokens", "1", *arguments) as server, ThreadPoolExecutor(callers) as threads:
        answers = [threads.submit(ask, server.url) for _ in range(callers)]
        while waiting(server.url) <= INPUTS * (callers - 1):
            pass  # one of them is not accepted yet
        yield server, answers


def test_one_signal_finishes_what_was_accepted(tiny_folder: Path) -> None:
    """After SIGTERM every accepted request is answered in full, and the exit code is 0."""
    with busy(tiny_folder, 2) as (server, answers):
        server.terminate()
        assert server.exit_code() == 0
        assert [one.result() for one in answers] == [(200, INPUTS, "")] * 2


def test_a_draining_server_says_so(tiny_folder: Path) -> None:
    """While accepted work is finished, new connections see a server that is not ready and takes no new work."""
    with busy(tiny_folder, 2) as (server, answers):
        server.terminate()
        server.told("draining")
        ready = httpx.get(f"{server.url}/ready")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        refused = httpx.post(f"{server.url}/v1/embeddings", json={"input": "late"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert server.exit_code() == 0
        assert [one.result() for one in answers] == [(200, INPUTS, "")] * 2


def test_an_idle_server_gives_notice(tiny_folder: Path) -> None:
    """A server with nothing to finish still answers for as long as it was told to."""
    with running(tiny_folder, "--drain-notice-s", "1.0") as server:
        server.terminate()
        server.told("draining")
        assert httpx.get(f"{server.url}/ready").status_code == 503
        assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "late"}).status_code == 200
        assert server.exit_code() == 0


def test_the_time_to_drain_begins_after_the_notice(tiny_folder: Path) -> None:
    """However short it is, work is taken and done for as long as the notice says."""
    with running(tiny_folder, "--drain-notice-s", "50", "--drain-timeout-s", "0.01") as server:
        server.terminate()
        server.told("draining")
        for _ in range(50):
            assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "late"}).status_code == 200
        server.terminate()
        assert server.exit_code() == 1


@pytest.mark.parametrize("sent", [b"", b"{", b"{" * 100_000])
def test_a_body_that_does_not_come_is_no_accepted_work(tiny_folder: Path, sent: bytes) -> None:
    """Who has sent a head and not all of its body does not keep a server that drains, and is told so."""
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"
    with running(tiny_folder) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as idle:
            idle.sendall(head + sent)
            assert httpx.get(f"{server.url}/health").is_success
            server.terminate()
            assert idle.recv(1000).startswith(b"HTTP/1.1 503 ")
            assert server.exit_code() == 0


SLOW = """
import time

import vecmill.serving.registry as registry

calibrate = registry.calibrate


def slowly(run, **options):
    print("calibrating", flush=True)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        calibrate(run, **options)


registry.calibrate = slowly
registry.kept_cost = lambda *_, **__: Unknown()


class Unknown:
    batch_s = 0.01

    def start(self, probe, measure):
        return measure()

    def learned(self, *_):
        pass
"""
"""What Python runs before anything else: loading takes half a minute, all of it in the engine."""


def test_a_server_that_loads_ends_quietly(tiny_folder: Path, tmp_path: Path) -> None:
    """A signal while a model is loaded ends the process with 0 and without a word of what it was at."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [*COMMAND, "serve", "--port", "0", str(tiny_folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment({"PYTHONPATH": path})) as one:
        read_to(one.stdout, "calibrating")
        one.terminate()
        errors = one.communicate(timeout=60)[1]
    assert one.returncode == 0, errors
    assert [line for line in errors.splitlines() if " INFO " not in line] == []


def test_a_second_signal_stops_at_once(tiny_folder: Path) -> None:
    """After a second SIGTERM what waits is told so, and the exit code is 1."""
    with busy(tiny_folder, 4) as (server, answers):
        server.terminate()
        server.told("draining")
        server.terminate()
        assert server.exit_code() == 1
        assert [one.result() for one in answers] == [(503, 0, "shutting_down")] * 4


def test_draining_has_an_end(tiny_folder: Path) -> None:
    """When the time to drain is over, what is left is told so, and the exit code is 1."""
    with busy(tiny_folder, 4, "--drain-timeout-s", "0.01") as (server, answers):
        server.terminate()
        assert server.exit_code() == 1
        assert [one.result() for one in answers] == [(503, 0, "shutting_down")] * 4


def test_an_idle_server_ends_quietly(tiny_folder: Path) -> None:
    """An idle server with open connections exits with 0, without an error in its log."""
    with running(tiny_folder) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/health").status_code == 200
        server.terminate()
        assert server.exit_code() == 0
        assert server.process.stderr
        assert [line for line in server.process.stderr if " INFO " not in line] == []
