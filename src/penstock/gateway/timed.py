"""Timed: an attempt in time. When its events come, how long they may take, and the one timer that watches over that.

The timer is for the first event, the gap between events, the total time and the heartbeat. Progress is counted in
events, so that comments and dripping bytes do not keep a dead stream alive.
"""

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Literal

from penstock.core.events import Ending
from penstock.core.failure import Failure
from penstock.gateway.failure import from_transport
from penstock.gateway.gaps import BOUNDS, Gaps
from penstock.gateway.sides import Patience

# After `[DONE]` the end of the body is near; a provider that keeps the connection open is not waited for longer.
_AFTER_DONE_S = 0.5
# A timer is not set for the moment that it is set in.
_SOON_S = 0.001


class Timed(ABC):
    """An attempt that is watched over while it lasts."""

    _phase: Literal["waiting", "streaming", "over"] = "waiting"
    _status = 0  # of the answer, once its head has come
    _paused = 0  # by whom, as bits of one number
    _seen_event = False
    # What gaps are not made of: the time before the first event, and what the client holds up.
    _uncounted_s = 0.0
    _beaten = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, patience: Patience, gaps: Gaps, until: float, *, streamed: bool) -> None:
        """It may last until then, by the clock of the loop. Only to a client that is streamed to a heart can beat."""
        self._loop = loop = asyncio.get_running_loop()
        self._patience = patience
        self._gaps = gaps
        self._until = until
        self._streamed = streamed
        self._begun = self._progress = loop.time()

    # What whoever is watched over does.

    @property
    @abstractmethod
    def _done(self) -> bool:
        """Whether the provider has said that nothing more will come."""

    @abstractmethod
    def on_end(self) -> None:
        """The answer is over."""

    @abstractmethod
    def _fail(self, failure: Failure, ending: Ending = "failed") -> None:
        """It has failed."""

    @abstractmethod
    def _beat(self) -> None:
        """Let the client know that somebody is there."""

    # What it tells.

    def _see_first(self) -> None:
        """The first event has come."""
        self._seen_event = True
        self._progress = now = self._loop.time()
        self._uncounted_s = now
        if self._timer is not None and self._timer.when() > now + self._patience.gap_s:
            self._watch_time()

    def _advance(self) -> None:
        """An event has come after another one."""
        now = self._loop.time()
        gap = now - self._progress
        self._progress = now
        gaps = self._gaps
        gaps.counts[bisect_left(BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - self._begun)

    def _go_on(self) -> None:
        """Nobody has the provider wait any more: what was held up is no gap, and time counts again."""
        now = self._loop.time()
        self._uncounted_s += now - self._progress
        self._progress = now

    def _stop_time(self) -> None:
        """It is over."""
        self._gaps.total_s = self._progress - self._uncounted_s if self._seen_event else 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The timer.

    def _start_time(self) -> None:
        """The provider was asked: watch."""
        if self._paused:
            self._watch_time()
            return
        due = min(self._begun + self._patience.first_look_s, self._until)
        self._timer = self._loop.call_at(max(due, self._loop.time() + _SOON_S), self._on_time)

    def _watch_time(self) -> None:
        """Arm the timer for whatever is due next."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        patience = self._patience
        due = self._until
        if not self._paused:
            wait = patience.gap_s if self._seen_event else patience.first_event_s
            due = min(due, self._progress + (_AFTER_DONE_S if self._done else wait))
        if self._streamed and patience.heartbeat_s:
            due = min(due, max(self._progress, self._beaten) + patience.heartbeat_s)
        self._timer = self._loop.call_at(max(due, now + _SOON_S), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._loop.time()
        patience = self._patience
        silent = now - self._progress
        if now >= self._until:
            self._fail(from_transport("upstream_timeout_total", "the answer took too long"), ending="timed_out")
        elif self._paused:
            pass
        elif self._done and silent >= _AFTER_DONE_S:
            self.on_end()
        elif not self._seen_event and silent >= patience.first_event_s:
            code = "upstream_timeout_idle" if self._status else "upstream_timeout_headers"
            awaited = "event" if self._streamed else "answer"
            message = f"the provider sent no {awaited} within {patience.first_event_s:g} s"
            self._fail(from_transport(code, message), ending="timed_out")
        elif self._seen_event and silent >= patience.gap_s:
            message = f"the provider sent no event for {patience.gap_s:g} s"
            self._fail(from_transport("upstream_timeout_idle", message), ending="timed_out")
        if self._phase == "over":
            return
        if self._streamed and patience.heartbeat_s and now - max(self._progress, self._beaten) >= patience.heartbeat_s:
            self._beaten = now
            self._beat()
        self._watch_time()
