"""Looks at every request that is under way, now and then: a timer for each would cost all of them what few need."""

import asyncio
from typing import Protocol

EVERY_S = 0.1


class Visited(Protocol):
    """What is looked at."""

    def look(self) -> None:
        """So much time has passed again."""


class Rounds:
    """Who is to be looked at, and the one timer of an event loop; it stands still where nobody is."""

    def __init__(self) -> None:
        self._visited: set[Visited] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, one: Visited) -> None:
        """Look at it from now on, as long as the running loop runs."""
        self._visited.add(one)
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop = loop
            loop.call_later(EVERY_S, self._go, loop)

    def discard(self, one: Visited) -> None:
        """Look at it no more."""
        self._visited.discard(one)

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:
            return
        if not self._visited:
            self._loop = None
            return
        loop.call_later(EVERY_S, self._go, loop)  # first: what fails at one must not end the rounds
        for one in list(self._visited):
            one.look()
