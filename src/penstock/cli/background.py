"""Background: runs the long work of a command so that it does not disturb a gateway on the same machine."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

T = TypeVar("T")
# A signal that arrives just before a thread waits does not end the waiting, so it waits for so long only.
_CHECK_S = 0.5


def in_background(work: Callable[[Event], T]) -> T:
    """Run work in a thread with the lowest priority, and return its result.

    The event is set on Ctrl-C. The work must then end; it is waited for.
    """
    ending = Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_yield_to_others).result()
        try:
            running = pool.submit(work, ending)
            while not wait([running], _CHECK_S).done:
                continue
            return running.result()
        finally:
            ending.set()


def _yield_to_others() -> None:
    """Give this thread the lowest priority; on systems other than Linux, the process.

    Not `SCHED_IDLE`: on a busy machine the thread could hold a lock of the database for many seconds.
    """
    with contextlib.suppress(OSError):
        os.nice(19)
