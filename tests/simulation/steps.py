"""StepCounter: counts the functions that each callback of an event loop calls, and reports one that calls too many."""

import asyncio
import sys
from collections.abc import Callable
from types import FrameType


class StepCounter:
    """Runs callbacks, each within its budget."""

    def __init__(self, most: int, report: Callable[[str], None], name: str) -> None:
        self._most = most
        self._report = report
        self._name = name
        self._steps = 0
        self.longest = 0

    def __call__(self, handle: asyncio.Handle) -> None:
        self._steps = 0
        sys.setprofile(self._count)
        try:
            handle._run()
        finally:
            sys.setprofile(None)
            self.longest = max(self.longest, self._steps)
            if self._steps > self._most:
                self._report(f"{self._name}: a callback has taken {self._steps} steps: {handle!r:.200}")

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self._steps += 1
