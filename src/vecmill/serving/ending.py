"""How something ends that others wait for: with a value, with an error, or because nobody wants it any more.

What `concurrent.futures.Future` is, without its condition variable: that is made for each future and taken with each
question, and was a tenth of what a lone request cost (docs/decisions/0016-fewer-calls.md).
"""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError
from threading import Lock
from typing import Generic, TypeVar, cast

log = logging.getLogger(__name__)

Made = TypeVar("Made")


class Ending(Generic[Made]):
    """Ends once, whoever is first. Thread-safe."""

    __slots__ = ("_calls", "_ended", "_error", "_lock", "_value")

    def __init__(self) -> None:
        self._lock = Lock()
        self._ended = False
        self._value: Made | None = None
        self._error: BaseException | None = None
        self._calls: list[Callable[[], object]] = []

    def set_result(self, value: Made) -> bool:
        """End with a value; whether this was first."""
        return self._end(value, None)

    def set_exception(self, error: BaseException) -> bool:
        """End with an error; whether this was first."""
        return self._end(None, error)

    def settle(self, work: Callable[[], Made]) -> None:
        """End with what this returns or raises; where it has ended already, nothing is done."""
        if self._ended:
            return
        try:
            self.set_result(work())
        except BaseException as error:  # noqa: BLE001 (whoever waits gets it)
            self.set_exception(error)

    def cancel(self) -> bool:
        """End because nobody waits; whether this was first."""
        return not self._ended and self._end(None, CancelledError())

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended

    def cancelled(self) -> bool:
        """Whether nobody waited for it."""
        return isinstance(self._error, CancelledError)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait on this thread for the error that it ends with; None where it ends with a value.

        Raises:
            TimeoutError: It has not ended within this time.
        """
        self._wait(timeout_s)
        return self._error

    def result(self, timeout_s: float | None = None) -> Made:
        """Wait for the value on this thread.

        Raises:
            TimeoutError: It has not ended within this time.
            CancelledError: It was cancelled.
            BaseException: It has ended with this.
        """
        self._wait(timeout_s)
        if self._error is not None:
            raise self._error
        return cast("Made", self._value)

    def at_end(self, call: Callable[[], object]) -> None:
        """Call this when it has ended, on the thread that ends it; at once where it has."""
        with self._lock:
            if not self._ended:
                self._calls.append(call)
                return
        call()

    def _wait(self, timeout_s: float | None) -> None:
        if self._ended:
            return
        ended = Lock()
        ended.acquire()
        self.at_end(ended.release)
        if not ended.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise TimeoutError

    def _end(self, value: Made | None, error: BaseException | None) -> bool:
        with self._lock:
            if self._ended:
                return False
            self._value, self._error, self._ended = value, error, True
            calls, self._calls = self._calls, []  # what they refer to is not kept by who keeps this
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("who was to be told of an end failed")  # others wait too
        return True
