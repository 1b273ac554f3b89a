"""Several processes on one port: each answers, a lost one is replaced, and all of them end together."""

import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from os import kill
from pathlib import Path

import httpx
import pytest
from running import Running, running
from test_signals import INPUTS, busy, much
from test_start_errors import complaint

from checkpoints import write_bert

LIMIT_S = 40.0
TWO = ("--workers", "2")


def children(server: Running) -> list[int]:
    """The processes of the workers."""
    pid = server.process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def soon(true: Callable[[], bool]) -> bool:
    """Whether something becomes true within a bound that is far beyond what it takes."""
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def number(server: Running, series: str) -> float:
    """A number of the page of metrics; 0 where it is not there."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", httpx.get(f"{server.url}/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def answered(server: Running) -> float:
    """Requests for vectors that were answered well."""
    return number(server, 'vecmill_requests_total{model="tiny",route="/v1/embeddings",status="200"}')


def owner(server: Running, client: socket.socket) -> int:
    """Which worker has the other end of a connection; 0 where none has yet."""
    theirs = f":{client.getpeername()[1]:04X} 0100007F:{client.getsockname()[1]:04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if f"{row[1]} {row[2]}".endswith(theirs)}
    for pid in children(server):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(file.readlink()) in inodes:
                    return pid
            except OSError:  # it was closed meanwhile
                continue
    return 0


def connected(server: Running, client: httpx.Client) -> int:
    """Connect a client; which worker it is connected to."""
    with client.stream("POST", "/v1/embeddings", json={"input": "hello"}) as answer:
        assert answer.read()
        return owner(server, answer.extensions["network_stream"].get_extra_info("socket"))


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


@pytest.fixture(scope="module")
def server(tiny_folder: Path) -> Iterator[Running]:
    """Two workers."""
    with running(tiny_folder, *TWO, limit_s=120) as one:
        yield one


def test_all_workers_answer(server: Running) -> None:
    """The banner says how many there are; of many connections each has some, and /ready is true from the banner on."""
    assert "2 workers share the port" in server.banner
    assert httpx.get(f"{server.url}/ready").status_code == 200
    assert len(children(server)) == 2
    host, port = server.url.removeprefix("http://").split(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(100)]
    try:
        assert soon(lambda: owner(server, clients[-1]) > 0)
        shares = Counter(owner(server, client) for client in clients)
    finally:
        for client in clients:
            client.close()
    assert set(shares) == set(children(server))


def test_metrics_are_sums(server: Running) -> None:
    """Whoever is asked, the page counts what all have answered."""
    before = answered(server)
    for _ in range(40):  # a connection each
        assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "hello"}).status_code == 200
    pages = [answered(server) for _ in range(10)]
    assert pages == [before + 40] * 10
    assert number(server, "vecmill_workers_ready") == 2


def test_a_killed_worker_is_replaced(tiny_folder: Path) -> None:
    """Of requests under way only those of the killed worker are lost; it is replaced, and no counter goes down."""
    with running(tiny_folder, *TWO, "--batch-tokens", "1") as server, ThreadPoolExecutor(8) as threads:
        lost, kept = children(server)
        clients = [httpx.Client(base_url=server.url, timeout=60) for _ in range(8)]
        owners = [connected(server, client) for client in clients]
        before = answered(server)

        def outcome(client: httpx.Client) -> int:
            try:
                return client.post("/v1/embeddings", json=much()).status_code
            except httpx.TransportError:
                return 0

        asked = [threads.submit(outcome, client) for client in clients]
        assert soon(lambda: number(server, 'vecmill_queue_inputs{model="tiny"}') > INPUTS)
        kill(lost, signal.SIGKILL)
        assert soon(lambda: gone(lost))
        for _ in range(20):
            assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "meanwhile"}, timeout=60).is_success
        outcomes = [one.result() for one in asked]
        assert [outcome for outcome, of in zip(outcomes, owners, strict=True) if of == kept and outcome != 200] == []
        assert 200 not in {outcome for outcome, of in zip(outcomes, owners, strict=True) if of == lost}
        server.told("another starts in 0 s")
        assert soon(lambda: number(server, "vecmill_workers_ready") == 2)
        assert kept in children(server)
        assert lost not in children(server)
        assert answered(server) >= before + 20 + outcomes.count(200)
        assert number(server, "vecmill_workers_lost_total") == 1
        for client in clients:
            client.close()


def statuses(server: Running, *keys: str) -> list[set[int]]:
    """For each of these keys, how requests are answered, each on a connection of its own."""
    body = {"input": "hello"}
    return [
        {
            httpx.post(f"{server.url}/v1/embeddings", json=body, headers={"x-api-key": key}).status_code
            for _ in range(20)
        }
        for key in keys
    ]


def test_keys_are_read_once(tiny_folder: Path, tmp_path: Path) -> None:
    """A worker that replaces another asks for the same keys, though the file says others now, or nothing readable."""
    file = tmp_path / "tenants.toml"
    file.write_text('[search]\nkeys = ["sk-1"]\n')
    with running(tiny_folder, *TWO, "--tenants", file, VECMILL_API_KEY="main\n", limit_s=120) as server:
        assert statuses(server, "sk-1", "main", "sk-2", "") == [{200}, {200}, {401}, {401}]
        for text in ('[search]\nkeys = ["sk-2"]\n', "", "[search"):
            file.write_text(text)
            lost = children(server)[0]
            kill(lost, signal.SIGKILL)
            server.told("another starts in")
            assert soon(lambda: number(server, "vecmill_workers_ready") == 2)
            assert statuses(server, "sk-1", "main", "sk-2", "") == [{200}, {200}, {401}, {401}]


def test_one_signal_finishes_what_was_accepted(tiny_folder: Path) -> None:
    """After SIGTERM every accepted request of every worker is answered in full, and the exit code is 0."""
    with busy(tiny_folder, 4, *TWO) as (server, answers):
        workers = children(server)
        server.terminate()
        assert server.exit_code() == 0
        assert [one.result() for one in answers] == [(200, INPUTS, "")] * 4
        assert [pid for pid in workers if not gone(pid)] == []


def test_a_second_signal_stops_at_once(tiny_folder: Path) -> None:
    """After a second SIGTERM the exit code is 1."""
    with busy(tiny_folder, 4, *TWO) as (server, answers):
        server.terminate()
        server.told("draining")
        server.told("draining")
        server.terminate()
        assert server.exit_code() == 1
        assert {one.result()[0] for one in answers} <= {200, 503}


def test_a_killed_parent_leaves_no_worker(tiny_folder: Path) -> None:
    """When the parent is killed its workers finish and end, and the port is free."""
    with running(tiny_folder, *TWO) as server:
        workers = children(server)
        server.process.kill()
        assert soon(lambda: all(gone(pid) for pid in workers))
        host, port = server.url.removeprefix("http://").split(":")
        with closing(socket.create_server((host, int(port)))):
            pass


def test_sighup_replaces_all_without_a_loss(server: Running) -> None:
    """After SIGHUP every worker is another, one after the other; no request was refused, and counters go on."""
    old, before, asked = set(children(server)), answered(server), 0
    server.process.send_signal(signal.SIGHUP)
    while old & set(children(server)) or number(server, "vecmill_workers_ready") < 2:
        assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "meanwhile"}, timeout=60).is_success
        assert number(server, "vecmill_workers_ready") >= 1
        asked += 1
    assert answered(server) == before + asked
    assert number(server, "vecmill_workers_lost_total") == 0


def test_a_taken_port_is_said_once(tiny_folder: Path) -> None:
    """A port that another process holds is one line, as with one process."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = complaint("serve", tiny_folder, *TWO, "--port", str(port))
        assert line.startswith(f"cannot listen on 127.0.0.1 port {port}: ")
        line = complaint("serve", tiny_folder, *TWO, "--port", "0", "--grpc-port", str(port))
        assert line.endswith("choose another with --host or --grpc-port")


def test_what_cannot_start_says_so_once(tmp_path: Path) -> None:
    """A model that cannot be loaded, or a setting that only a worker reads, ends the start with its one line."""
    folder = write_bert(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors" in complaint("serve", folder, *TWO, "--port", "0", "--log-level", "error")
    line = complaint("serve", folder, *TWO, "--port", "0", "--tenants", str(tmp_path / "nothing"))
    assert line.startswith(f"tenants {tmp_path / 'nothing'}")


def test_grpc_is_on_one_port(tiny_folder: Path) -> None:
    """Each worker listens for gRPC on the same port, which is found where 0 asks for a free one."""
    grpc = pytest.importorskip("grpc")
    from vecmill.api.grpc import tei_pb2 as pb

    with running(tiny_folder, *TWO, "--grpc-port", "0") as server:
        port = int(server.grpc.rpartition(":")[2])
        files = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
        rows = [row.split() for file in files if file.exists() for row in file.read_text().splitlines()[1:]]
        assert sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows) == 2
        with grpc.insecure_channel(server.grpc) as channel:
            info = channel.unary_unary(
                "/tei.v1.Info/Info",
                request_serializer=pb.InfoRequest.SerializeToString,
                response_deserializer=pb.InfoResponse.FromString,
            )
            assert info(pb.InfoRequest()).model_id == "tiny"


MORTAL = """
import os
from pathlib import Path

from vecmill.engine.onnx import OnnxEngine


class Mortal(OnnxEngine):
    def __init__(self, *arguments, **options):
        alive()
        super().__init__(*arguments, **options)

    def compute(self, batch, outputs):
        alive()
        return super().compute(batch, outputs)


def alive():
    if Path(__file__).with_name(str(os.getpid())).exists():
        raise SystemExit("this process is to have no engine any more")
"""

STARTED = """
from vecmill.engine.base import ENGINES

ENGINES["onnx"] = "mortal:Mortal"
"""
"""What Python runs before anything else, in each process that finds it."""


def test_a_worker_whose_model_is_broken_is_replaced(tiny_folder: Path, tmp_path: Path) -> None:
    """A worker that has lost its engine for good leaves its place to another, without a signal from anybody."""
    (tmp_path / "mortal.py").write_text(MORTAL)
    (tmp_path / "sitecustomize.py").write_text(STARTED)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with running(tiny_folder, *TWO, PYTHONPATH=path, limit_s=120) as server:
        lost, kept = children(server)
        (tmp_path / str(lost)).touch()
        outcomes = set()
        while lost in children(server):
            outcomes.add(httpx.post(f"{server.url}/v1/embeddings", json={"input": "hello"}, timeout=60).status_code)
        assert outcomes <= {200, 500, 503}
        assert "tiny does not answer any more" in server.told("another starts in 0 s")
        assert soon(lambda: number(server, "vecmill_workers_ready") == 2)
        assert kept in children(server)
        for _ in range(20):
            assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "again"}).is_success
        assert number(server, "vecmill_workers_lost_total") == 1
