"""Which threads the machine's cores serve first."""

import os
import sys
from contextlib import suppress

NICE = 5
"""How many steps bulk work goes behind the event loop and the express lane: where cores are short it has a third of
their part (docs/decisions/0011-lanes.md)."""


def go_behind() -> None:
    """Give this thread a lower priority than its process has; nothing where threads have none of their own.

    On Linux a nice value is a thread's, and its process's that of the first one (sched(7)). Who begins a thread gives
    it its own, and none goes back.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it; the work goes on
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICE)
