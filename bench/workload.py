"""Texts and requests for measuring: seeded, distinct, so that no cache can help."""

import http.client
import random
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass
class Client:
    """One keep-alive connection to an OpenAI-style endpoint."""

    host: str
    port: int

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(self.host, self.port, timeout=120)

    def embed(self, texts: str | list[str]) -> dict[str, Any]:
        """Send a request; anything but 200 with a vector for each text is an error."""
        body = orjson.dumps({"input": texts, "encoding_format": "base64"})
        self._connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
        response = self._connection.getresponse()
        answer: dict[str, Any] = orjson.loads(response.read())
        wanted = 1 if isinstance(texts, str) else len(texts)
        if response.status != 200 or len(answer["data"]) != wanted:
            raise RuntimeError(f"{response.status}: {answer}")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
