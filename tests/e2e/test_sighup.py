"""SIGHUP replaces the workers, and no client notices."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from os import kill
from pathlib import Path
from threading import Event

import pytest
from running import Running, running
from test_workers import TWO, children

BODY = '{"input": "hello"}'


@pytest.fixture(scope="module")
def server(tiny_folder: Path) -> Iterator[Running]:
    """Two workers."""
    with running(tiny_folder, *TWO, limit_s=240) as one:
        yield one


def ask(server: Running, over: Event, *, keep: bool) -> list[str]:
    """Ask until it is over, on one connection as long as it may be kept, or on one each; statuses and what was told."""
    host, port = server.url.removeprefix("http://").split(":")
    told, client = [], HTTPConnection(host, int(port), timeout=60)
    while not over.is_set():
        client.request("POST", "/v1/embeddings", BODY, {"content-type": "application/json"})
        answer = client.getresponse()
        answer.read()
        told.append(f"{answer.status} {answer.getheader('connection')}")
        if not keep or answer.getheader("connection") == "close":
            client.close()
        over.wait(0.01)
    client.close()
    return told


@contextmanager
def asked_meanwhile(server: Running) -> Iterator[list[list[str]]]:
    """Clients that ask until this is left, all but the first on connections that they keep; what each was told."""
    over, told = Event(), list[list[str]]()
    with ThreadPoolExecutor(6) as threads:
        asking = [threads.submit(ask, server, over, keep=number > 0) for number in range(6)]
        try:
            yield told
        finally:
            over.set()
        told += [one.result() for one in asking]


def test_a_second_sighup_waits_for_the_first(server: Running) -> None:
    """Two signals in a row are two rounds, one after the other, and no request is refused.

    Each client that keeps its connection is told before it ends, so that none is closed under a request.
    """
    old = set(children(server))
    with asked_meanwhile(server) as told:
        server.process.send_signal(signal.SIGHUP)
        server.told("replacing the workers")
        server.process.send_signal(signal.SIGHUP)
        server.told("all workers are replaced")
        between = set(children(server))
        server.told("all workers are replaced")
        new = set(children(server))
    assert {one for each in told for one in each} == {"200 None", "200 close"}
    assert [each.count("200 close") >= 2 for each in told[1:]] == [True] * 5
    assert not old & between
    assert not between & new


def test_sighup_while_a_worker_is_lost(server: Running) -> None:
    """The other does not leave before the lost one is replaced: no request is refused."""
    old = set(children(server))
    kill(max(old), signal.SIGKILL)
    server.told("another starts in 0 s")
    with asked_meanwhile(server) as told:
        server.process.send_signal(signal.SIGHUP)
        server.told("all workers are replaced")
    assert {one for each in told for one in each} == {"200 None", "200 close"}
    assert not old & set(children(server))
