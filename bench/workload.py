"""Texts and requests for measuring: seeded, distinct, so that no cache can help."""

import random
import re
import socket
from collections.abc import Iterator
from typing import Any

import orjson

WORDS = (
    "river stone window market letter engine garden winter signal paper bridge music doctor planet forest silver "
    "morning reason answer travel kitchen history number island teacher summer picture village machine question"
).split()


def query(rng: random.Random) -> str:
    """A short text, 3 to 14 words."""
    return words(rng, rng.randint(3, 14))


def passage(rng: random.Random) -> str:
    """A text of mixed length: lognormal, median 60 words, 4 to 350."""
    return words(rng, max(4, min(350, int(rng.lognormvariate(4.1, 0.9)))))


def words(rng: random.Random, count: int) -> str:
    """That many words and a number that makes the text distinct."""
    return " ".join(rng.choice(WORDS) for _ in range(count)) + f" {rng.randrange(10**9)}"


def queries(seed: int, count: int) -> list[str]:
    """Short texts."""
    rng = random.Random(seed)
    return [query(rng) for _ in range(count)]


def passages(seed: int, count: int) -> list[str]:
    """Texts of mixed length."""
    rng = random.Random(seed)
    return [passage(rng) for _ in range(count)]


def chunks(texts: list[str], size: int) -> Iterator[list[str]]:
    """The texts in requests of that size."""
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


class Client:
    """One keep-alive connection to an OpenAI-style endpoint, as thin as can be: what is measured is the server."""

    def __init__(
        self, host: str, port: int, path: str = "/v1/embeddings", headers: dict[str, str] | None = None
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = {"host": host, "content-type": "application/json", **(headers or {})}
        named = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._answer_head = b""
        self._head = f"POST {path} HTTP/1.1\r\n{named}".encode()

    @property
    def retry_after_s(self) -> float:
        """What the last answer said of when to come back; 0 where it said nothing."""
        found = re.search(rb"retry-after-ms: (\d+)", self._answer_head)
        return int(found[1]) / 1000 if found else 0.0

    def embed(self, texts: str | list[str]) -> dict[str, Any]:
        """Send a request; anything but 200 with a vector for each text is an error."""
        status, content = self.send(orjson.dumps({"input": texts, "encoding_format": "base64"}))
        answer: dict[str, Any] = orjson.loads(content)
        wanted = 1 if isinstance(texts, str) else len(texts)
        if status != 200 or len(answer["data"]) != wanted:
            raise RuntimeError(f"{status}: {answer}")
        return answer

    def send(self, body: bytes) -> tuple[int, bytes]:
        """Status and content of one request."""
        self._socket.sendall(self._head + b"content-length: %d\r\n\r\n" % len(body) + body)
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        self._answer_head = received[:end].lower()
        length = int(self._answer_head.split(b"content-length:")[1].split(b"\r\n")[0])
        parts, missing = [received[end + 4 :]], length - len(received) + end + 4
        while missing:
            parts.append(self._receive())
            missing -= len(parts[-1])
        return int(received[9:12]), b"".join(parts)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self) -> bytes:
        part = self._socket.recv(1 << 20)
        if not part:
            raise RuntimeError("the server closed the connection")
        return part
