"""A thread that looks after others: at its own times, and where one of them asks for something to be done."""

import queue
import threading
from collections.abc import Callable


class Watch:
    """Looks again and again, and begins the threads that those it looks after want to have begun.

    A thread has the priority of the one that begins it, and lanes have a low one: what they begin has this one's.

    Args:
        name: Of the thread.
        look: Called again and again.
        every_s: How often; 0 is never.
    """

    def __init__(self, name: str, look: Callable[[], None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._wanted: queue.SimpleQueue[threading.Thread | None] = queue.SimpleQueue()
        threading.Thread(target=self._main, name=name, daemon=True).start()

    def begin(self, thread: threading.Thread) -> None:
        """Start this thread soon."""
        self._wanted.put(thread)

    def close(self) -> None:
        """Start what is wanted already, and look no more."""
        self._wanted.put(None)

    def _main(self) -> None:
        while True:
            try:
                thread = self._wanted.get(timeout=self._every_s or None)
            except queue.Empty:
                self._look()
                continue
            if thread is None:
                return
            thread.start()
