"""Which threads the machine's cores serve first."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

Given = ParamSpec("Given")

NICE = 5
"""How many steps a lane goes behind the event loop and the express lane: where cores are short it has a third of their
part (docs/decisions/0011-lanes.md)."""


def behind(work: Callable[Given, None]) -> Callable[Given, None]:
    """The work of a thread, at a lower priority than its process has; as it is where threads have none of their own.

    On Linux a nice value is a thread's (sched(7)); for 0 `setpriority` takes the one that calls it.
    """

    @wraps(work)
    def patiently(*args: Given.args, **kwargs: Given.kwargs) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        work(*args, **kwargs)

    return patiently
