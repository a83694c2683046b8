"""Background: runs the long work of a command so that it does not disturb a gateway on the same machine."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[Event], T]) -> T:
    """Run work in a thread with the lowest priority, and return its result.

    The event is set on Ctrl-C. The work must then end; it is waited for.
    """
    ending = Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_yield_to_others).result()
        try:
            return pool.submit(work, ending).result()
        finally:
            ending.set()


def _yield_to_others() -> None:
    """Give this thread the lowest priority; on systems other than Linux, the process."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # for I/O as well
