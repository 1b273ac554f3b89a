"""The gRPC service of a process: beside HTTP, and to the end."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from running import Running, running

from vecmill.api.grpc import tei_pb2 as pb

COUNT = 1500


def stream(channel: Any, count: int = COUNT) -> Any:
    """The answers to a stream of so many texts, no two of them equal."""
    words = product("abcdefghijklm", repeat=4)
    texts = (pb.EmbedRequest(inputs=" ".join(next(words))) for _ in range(count))
    return channel.stream_stream(
        "/tei.v1.Embed/EmbedStream", pb.EmbedRequest.SerializeToString, pb.EmbedResponse.FromString
    )(texts)


def healthy(channel: Any) -> bool:
    """Whether the server says that it serves."""
    reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="tei.v1.Embed"))
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.fixture
def drained(tiny_folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Running, Any, Any]]:
    """A server that drains with these arguments, a channel to it, and the stream whose first answer has come."""
    arguments = [*getattr(request, "param", ()), "--batch-tokens", "1"]
    with running(tiny_folder, "--grpc-port", "0", *arguments) as server, grpc.insecure_channel(server.grpc) as channel:
        answers = stream(channel)
        assert len(next(answers).embeddings) == 16
        server.terminate()
        server.told("draining")
        yield server, channel, answers


def test_both_ports_answer_the_same(tiny_folder: Path) -> None:
    """One process gives the same vector over both; idle, it ends at once and without a word."""
    with running(tiny_folder, "--grpc-port", "0") as server, grpc.insecure_channel(server.grpc) as channel:
        assert healthy(channel)
        ask = channel.unary_unary("/tei.v1.Embed/Embed", pb.EmbedRequest.SerializeToString, pb.EmbedResponse.FromString)
        vector = ask(pb.EmbedRequest(inputs="hello world"))
        same = httpx.post(f"{server.url}/embed", json={"inputs": "hello world"}).json()
        assert np.array_equal(np.float32(vector.embeddings), np.float32(same[0]))
        assert 'route="/tei.v1.Embed/Embed",status="200"} 1.0' in httpx.get(f"{server.url}/metrics").text
        server.terminate()
        assert server.exit_code() == 0
        assert server.process.stderr
        assert [line for line in server.process.stderr if " INFO " not in line] == []


def test_a_draining_server_finishes_streams(drained: tuple[Running, Any, Any]) -> None:
    """After SIGTERM nothing is healthy, new calls are refused, and an accepted stream is answered to its end."""
    server, channel, answers = drained
    assert not healthy(channel)
    assert httpx.get(f"{server.url}/ready").status_code == 503
    with pytest.raises(grpc.RpcError) as refused:
        next(stream(channel, 1))
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert len(list(answers)) == COUNT - 1
    assert server.exit_code() == 0


@pytest.mark.parametrize("drained", [("--drain-timeout-s", "0.01")], indirect=True)
def test_draining_has_an_end(drained: tuple[Running, Any, Any]) -> None:
    """When the time to drain is over the stream is told so, and the exit code is 1."""
    server, _, answers = drained
    with pytest.raises(grpc.RpcError) as cut:
        list(answers)
    assert (cut.value.code(), "shut down" in cut.value.details()) == (grpc.StatusCode.UNAVAILABLE, True)
    assert server.exit_code() == 1


def test_a_second_signal_stops_at_once(drained: tuple[Running, Any, Any]) -> None:
    """So it is after a second SIGTERM."""
    server, _, answers = drained
    server.terminate()
    with pytest.raises(grpc.RpcError) as cut:
        list(answers)
    assert cut.value.code() == grpc.StatusCode.UNAVAILABLE
    assert server.exit_code() == 1
