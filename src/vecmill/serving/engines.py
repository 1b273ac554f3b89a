"""What the lanes of a runner compute with: one engine on all threads, and one on a single thread that lanes share.

An engine on several threads has to wait at every operator for the slowest of them, and waits longest where something
else wants the same cores, as the event loop does. So a batch that is alone runs on all threads, for its answer's sake,
and where more than one batch is there each runs on one thread (docs/decisions/0011-lanes.md).

Lanes on one thread can be more than cores without a loss: so there is one more, the express lane, for small requests
that would else wait for a batch much longer than themselves.
"""

import logging
import threading
from dataclasses import dataclass, field

from vecmill.engine.base import Engine

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Engines:
    """The engines of one model; closed when they are given up and the last lane has left them.

    Attributes:
        wide: On all threads; for one batch at a time.
        narrow: On one thread, for any number of batches at a time; None where there is none.
        lanes: Batches that may run at once, the express lane's not counted, which is there where `narrow` is.
    """

    wide: Engine
    narrow: Engine | None = None
    lanes: int = 1
    _users: int = 0
    _retired: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def usual(self) -> Engine:
        """The one that runs where there is much to do; costs are its."""
        return self.narrow or self.wide

    def of(self, *, alone: bool) -> Engine:
        """The engine for a batch, alone or beside others."""
        return self.wide if alone else self.usual

    def enter(self) -> None:
        """A lane computes with them from now on."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """A lane does so no more."""
        with self._lock:
            self._users -= 1
        self._close_unused()

    def retire(self) -> None:
        """No lane will begin to use them."""
        self._retired = True
        self._close_unused()

    def _close_unused(self) -> None:
        with self._lock:
            if self._users or not self._retired:
                return
            self._users = -1  # once
        for engine in (self.wide, self.narrow):
            try:
                if engine is not None:
                    engine.close()
            except Exception:
                log.exception("an engine could not be closed")
