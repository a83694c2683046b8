"""Deadline: a timeout that is cheap to move.

Streams move their timeouts with every event, and connections with every request. Moving a deadline to a later time only
stores a number; the loop's timer fires too early then, and is set again.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

_NEVER = float("inf")


class Deadline:
    """Calls back once at its time, unless it is moved or cleared before."""

    __slots__ = ("_armed", "_at", "_callback", "_handle", "_loop")

    def __init__(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._at = _NEVER
        self._armed = _NEVER  # when the loop's timer fires
        self._handle: TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Set the deadline to this many seconds from now."""
        self._at = at = self._loop.time() + seconds
        if at < self._armed:
            if self._handle is not None:
                self._handle.cancel()
            self._arm(at)

    def clear(self) -> None:
        """Remove the deadline; `set` may set another."""
        self._at = _NEVER

    def end(self) -> None:
        """Remove the deadline for good, and free the callback."""
        self._at = self._armed = _NEVER
        self._callback = _do_nothing  # breaks the reference cycle with the owner of this deadline
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, at: float) -> None:
        self._handle = self._loop.call_at(at, self._fire)
        self._armed = at

    def _fire(self) -> None:
        self._handle = None
        self._armed = _NEVER
        if self._loop.time() >= self._at:
            self._callback()
        elif self._at != _NEVER:
            self._arm(self._at)


def _do_nothing() -> None:
    """The callback of a deadline that has ended."""
