"""Deadline: a time-out that is cheap to move.

Streams move their time-outs with every event, and connections with every request. Moving one here only stores a number;
the loop's timer is armed again when it fires early.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

_NEVER = float("inf")


class Deadline:
    """Calls back once when its time has come, unless it is moved or cleared before."""

    __slots__ = ("_at", "_callback", "_handle", "_loop")

    def __init__(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._at = 0.0
        self._handle: TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Move the deadline to so many seconds from now."""
        self._at = self._loop.time() + seconds
        handle = self._handle
        if handle is None:
            self._handle = self._loop.call_at(self._at, self._fire)
        elif handle.when() > self._at:
            handle.cancel()
            self._handle = self._loop.call_at(self._at, self._fire)

    def clear(self) -> None:
        """There is no deadline for now."""
        self._at = _NEVER

    def end(self) -> None:
        """There will be no deadline any more."""
        self._at = _NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        if self._at == _NEVER:
            return
        if self._loop.time() < self._at:
            self._handle = self._loop.call_at(self._at, self._fire)
        else:
            self._callback()
