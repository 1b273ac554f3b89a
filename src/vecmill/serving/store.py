"""A second memory behind the first, outside this process: a thread reads and writes it, and no request depends on it.

A request waits for what is stored a fifth of a second at most, and then not again for some time. Writing comes after
the answer, from a bounded queue; what does not fit is not written. A store that fails is opened again after a pause.
"""

import contextlib
import hashlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from vecmill import __version__
from vecmill.config import Settings
from vecmill.core import Output, Value
from vecmill.errors import BadSettings
from vecmill.model.identity import digest_of_files
from vecmill.model.spec import ModelSpec
from vecmill.serving.cache import Key, size_bytes
from vecmill.serving.encoded import decode, encode
from vecmill.serving.ending import Ending

log = logging.getLogger(__name__)

WAIT_S = 0.2
"""Longest time that a request waits for the store."""

PAUSE_S = 5.0
"""For so long a store that failed, or was too slow, is left alone."""

QUEUED_BYTES = 32_000_000
"""Most bytes that wait to be written."""

AT_ONCE = 256
"""Answers that are written together."""

CLOSE_S = 2.0
"""Longest time for what still waits to be written when the server stops."""

Known = dict[Key, tuple[tuple[Value, ...], float]]
"""Answers and the seconds for which they hold."""


class Store(Protocol):
    """Bytes by key; used by one thread. Whatever its methods raise counts as a failure."""

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """What is stored under each key."""

    def put(self, entries: Mapping[bytes, bytes], ttl_s: float) -> None:
        """Store these for so many seconds."""

    def close(self) -> None:
        """Give it up."""


@dataclass(slots=True)
class Counts:
    """What came of a store: inputs found and not found, failures and waits in vain, answers that were not written."""

    hits: int = 0
    misses: int = 0
    errors: int = 0
    dropped: int = 0

    @property
    def outcomes(self) -> dict[str, int]:
        """The counts by name."""
        return {"hit": self.hits, "miss": self.misses, "error": self.errors, "dropped": self.dropped}


class ResultStore:
    """The stored answers of one model. Thread-safe.

    Args:
        name: Served name.
        begin: Opens the store and says whose answers these are, so that no other model's are found; on our thread.
        widths: Output to the numbers of a value of it; 0 where they differ.
        ttl_s: Seconds that an answer is remembered.
        pause_s: Seconds for which a store that failed is left alone.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], tuple[Store, bytes]],
        widths: Mapping[Output, int],
        ttl_s: float,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.counts = Counts()
        self._name = name
        self._begin = begin
        self._widths = widths
        self._ttl_s = ttl_s
        self._pause_s = pause_s
        self._changed = threading.Condition()
        self._reads: deque[tuple[Sequence[Key], Ending[Known]]] = deque()
        self._writes: deque[tuple[Key, Sequence[Value]]] = deque()
        self._queued_bytes = 0
        self._ready = self._closing = self._failed = False
        self._quiet_until = 0.0
        self._thread = threading.Thread(target=self._main, name=f"store {name}", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether it is worth asking now."""
        return self._ready and time.monotonic() >= self._quiet_until

    def read(self, keys: Sequence[Key]) -> Ending[Known] | None:
        """Ask for these answers; None where the store would not answer. The future never ends with an error."""
        with self._changed:
            if not self.ready or self._closing:
                return None
            future: Ending[Known] = Ending()
            self._reads.append((keys, future))
            self._changed.notify()
        return future

    def give_up(self) -> None:
        """A request waited in vain: the next ones do not, for a while, nor as long as the store has not come back."""
        with self._changed:
            self._ready = False
            self._changed.notify()
            self._quiet_until = time.monotonic() + self._pause_s
            self._fail(f"no answer in {WAIT_S:g} s")

    def write(self, key: Key, values: Sequence[Value]) -> None:
        """Store an answer some time later, or not where too much waits. Nobody changes the values any more."""
        size = size_bytes(key, values)
        with self._changed:
            if self._queued_bytes + size > QUEUED_BYTES or self._closing:
                self.counts.dropped += 1
                return
            self._queued_bytes += size
            self._writes.append((key, values))
            self._changed.notify()

    def close(self) -> None:
        """Write what still waits, in a bounded time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)

    def _main(self) -> None:
        while not self._closing:
            store = None
            try:
                store, whose = self._begin()
                self._serve(store, whose)
            except Exception as error:  # noqa: BLE001 (whatever a store raises)
                with self._changed:
                    self._fail(f"{type(error).__name__}: {error}")
                    self._ready = False
                    self._forget_reads()
            finally:
                if store is not None:
                    with contextlib.suppress(Exception):
                        store.close()
            with self._changed:
                self._changed.wait_for(lambda: self._closing, self._pause_s)

    def _serve(self, store: Store, whose: bytes) -> None:
        """Read and write until it is closed; reading comes first."""
        while True:
            with self._changed:
                self._ready = True
                self._changed.wait_for(lambda: self._reads or self._writes or self._closing or not self._ready)
                read = self._reads.popleft() if self._reads else None
                writes = [] if read else [self._writes.popleft() for _ in range(min(AT_ONCE, len(self._writes)))]
                self._queued_bytes -= sum(size_bytes(*one) for one in writes)
            if read:
                self._read(store, whose, *read)
            elif writes:
                until = time.time() + self._ttl_s
                store.put({_digest(whose, key): encode(values, until) for key, values in writes}, self._ttl_s)
            elif self._closing:
                return
            if self._failed and self.ready:
                self._failed = False
                log.info("the stored answers of %s are used again", self._name)

    def _read(self, store: Store, whose: bytes, keys: Sequence[Key], future: Ending[Known]) -> None:
        if future.done():
            return
        known: Known = {}
        try:
            now = time.time()
            for key, data in zip(keys, store.get([_digest(whose, key) for key in keys]), strict=True):
                outputs = key[2]
                found = decode(data, outputs, [self._widths[output] for output in outputs]) if data else None
                if found is not None and now < found[1]:
                    known[key] = found[0], min(found[1] - now, self._ttl_s)
            self.counts.hits += len(known)
            self.counts.misses += len(keys) - len(known)
        finally:
            future.set_result(known)

    def _forget_reads(self) -> None:
        while self._reads:
            _, future = self._reads.popleft()
            future.set_result({})

    def _fail(self, why: str) -> None:
        """Count a failure; the first after it worked gets a line."""
        self.counts.errors += 1
        level = logging.DEBUG if self._failed else logging.WARNING
        self._failed = True
        log.log(level, "the stored answers of %s are not used for now: %s", self._name, why)


def _digest(whose: bytes, key: Key) -> bytes:
    ids, mark, outputs, tenant = key
    said = [",".join(outputs), str(mark), hashlib.sha256(tenant.encode()).hexdigest()]
    return hashlib.sha256(b"\0".join([whose, *(one.encode() for one in said), ids])).digest()


def open_store(name: str, spec: ModelSpec, settings: Settings, asked: Sequence[str]) -> ResultStore | None:
    """The store that the settings name; None where they name none.

    Args:
        name: Served name.
        spec: Whose answers.
        settings: Where they are stored.
        asked: What else decides the numbers: precision and engine.

    Raises:
        BadSettings: It needs a library that is not installed.
    """
    place = settings.result_store
    if not place:
        return None
    if "://" in place and not find_spec("redis"):
        raise BadSettings("result_store is in Redis, which needs its library: pip install 'vecmill[redis]'")

    def begin() -> tuple[Store, bytes]:
        from vecmill.graph.quantize import largest_weight

        facts = [__version__, *asked, largest_weight(), spec.task, digest_of_files(spec.folder)]
        return _open(place, settings.result_store_mb * 1_000_000), json.dumps(facts).encode()

    widths = {output: spec.width(output) for output in spec.outputs}
    return ResultStore(name, begin, widths, settings.result_cache_ttl_s)


def _open(place: str, max_bytes: int) -> Store:
    if "://" in place:
        from vecmill.serving.redis_store import RedisStore

        return RedisStore(place)
    from vecmill.serving.disk_store import DiskStore

    return DiskStore(Path(place).expanduser(), max_bytes)
