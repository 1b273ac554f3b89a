"""A thread that looks after others: at its own times, and where one of them asks for something to be done."""

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Watch:
    """Looks again and again, and does what those it looks after ask for; whatever comes of one, it does the next.

    A thread has the priority of the one that begins it, and lanes have a low one: what is begun here has this one's.

    Args:
        name: Of the thread.
        look: Called again and again.
        every_s: How often; 0 is never.
    """

    def __init__(self, name: str, look: Callable[[], None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._wanted: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._main, name=name, daemon=True).start()

    def ask(self, do: Callable[[], None]) -> None:
        """Call this soon."""
        self._wanted.put(do)

    def close(self) -> None:
        """Do what is asked for already, and look no more."""
        self._wanted.put(None)

    def _main(self) -> None:
        while True:
            try:
                do = self._wanted.get(timeout=self._every_s or None)
            except queue.Empty:
                do = self._look
            if do is None:
                return
            try:
                do()
            except Exception:
                log.exception("%s could not look after its lanes", threading.current_thread().name)
