"""Deadline: a time-out that is cheap to move.

Streams move their time-outs with every event, and connections with every request. Moving one here only stores a number;
the loop's timer is armed again when it fires early.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

_NEVER = float("inf")


class Deadline:
    """Calls back once when its time has come, unless it is moved or cleared before."""

    __slots__ = ("_armed", "_at", "_callback", "_handle", "_loop")

    def __init__(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._at = _NEVER
        self._armed = _NEVER  # when the loop's timer fires
        self._handle: TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Move the deadline to so many seconds from now."""
        self._at = at = self._loop.time() + seconds
        if at < self._armed:
            if self._handle is not None:
                self._handle.cancel()
            self._arm(at)

    def clear(self) -> None:
        """There is no deadline for now."""
        self._at = _NEVER

    def end(self) -> None:
        """There will be no deadline any more."""
        self._at = self._armed = _NEVER
        self._callback = _nothing  # whoever has this deadline is freed without the garbage collector
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


def _nothing() -> None:
    """The deadline has ended."""
