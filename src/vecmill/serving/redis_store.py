"""Answers in Redis, for all replicas of a model."""

from collections.abc import Mapping, Sequence

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_S = 0.2
"""For a connection, and for each answer."""

AT_ONCE = 256
"""Keys of one command."""

PREFIX = b"vecmill:1:"


class RedisStore:
    """Answers by key. What goes when Redis is full is Redis's own to decide (`maxmemory-policy`).

    Args:
        url: `redis://` or, with TLS, `rediss://`; with user, password and database where wanted.

    Raises:
        redis.RedisError: It cannot be reached.
        ValueError: The URL is none.
    """

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        self._client.ping()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What is stored under each key; None where nothing is.

        Raises:
            redis.RedisError: It does not answer.
        """
        with self._client.pipeline(transaction=False) as several:
            for start in range(0, len(keys), AT_ONCE):
                several.mget([PREFIX + key for key in keys[start : start + AT_ONCE]])
            return [value for part in several.execute() for value in part]

    def put(self, entries: Mapping[bytes, bytes], ttl_s: float) -> None:
        """Store these for so many seconds.

        Raises:
            redis.RedisError: It does not answer, or takes nothing.
        """
        with self._client.pipeline(transaction=False) as several:
            for key, value in entries.items():
                several.set(PREFIX + key, value, px=max(1, round(ttl_s * 1000)))
            several.execute()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
