"""Which threads the machine's cores serve first."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress

NICE = 5
"""How many steps a lane goes behind the event loop and the express lane: where cores are short it has a third of their
part (docs/decisions/0011-lanes.md)."""


def behind(work: Callable[..., None]) -> Callable[..., None]:
    """The work of a thread, at a lower priority than its process has; as it is where threads have none of their own.

    On Linux a nice value is a thread's, and its process's that of the first one (sched(7)). Who begins a thread gives
    it its own, and none goes back: where lost lanes were replaced, by one of them, the express lane is beside them.
    """

    def patiently(*args: object) -> None:
        if sys.platform == "linux":
            with suppress(OSError):  # a sandbox may forbid it; the work goes on
                os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICE)
        work(*args)

    return patiently
