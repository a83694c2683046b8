"""Watchdog: how long an attempt may take, and the one timer that enforces it.

The timer is for the first event, the gap between events, the total time and the heartbeat. Progress is counted in
events, so that comments and dripping bytes do not keep a dead stream alive.
"""

import asyncio
from bisect import bisect_left
from typing import Protocol

from penstock.core.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.gateway.calls.failure import from_transport
from penstock.gateway.relay.event_gaps import BOUNDS, EventGaps
from penstock.gateway.relay.ports import AttemptTimeouts

# After `[DONE]` the end of the body is near; a provider that keeps the connection open is not waited for longer.
_AFTER_DONE_S = 0.5
# A timer is not set for the moment that it is set in.
_SOON_S = 0.001


class WatchedRelay(Protocol):
    """What the watchdog acts on: a relay."""

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""

    def on_end(self) -> None:
        """The answer is complete, as far as it will come."""

    def time_out(self, failure: Failure) -> None:
        """The attempt took too long."""

    def send_heartbeat(self) -> None:
        """Keep the client waiting."""


class Watchdog:
    """Watches one attempt, until it is stopped."""

    seen_event = False
    """Whether an event has come."""
    seen_head = False
    """Whether the head of the provider's response has come."""
    paused = 0
    """Who makes the provider wait, as bits of one number. Meanwhile only the total time counts."""
    # Time that belongs to no gap: before the first event, and while the provider had to wait.
    _uncounted_s = 0.0
    _beaten = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self, watched: WatchedRelay, patience: AttemptTimeouts, gaps: EventGaps, until: float, *, streamed: bool
    ) -> None:
        """`until` is by the clock of the loop. Heartbeats are sent only if the client is streamed to."""
        self.loop = loop = asyncio.get_running_loop()
        self.until = until
        """When the total time is over."""
        self.started = self.progress = loop.time()
        """When it began, and when the last event came."""
        self._watched: WatchedRelay | None = watched
        self._patience = patience
        self.gaps = gaps
        self._streamed = streamed

    def first_event(self) -> None:
        """The first event has come."""
        self.seen_event = True
        self.progress = now = self.loop.time()
        self._uncounted_s = now
        if self._timer is not None and self._timer.when() > now + self._patience.gap_s:
            self.arm()

    def advance(self) -> None:
        """An event has come after another one."""
        now = self.loop.time()
        gap = now - self.progress
        self.progress = now
        gaps = self.gaps
        gaps.counts[bisect_left(BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - self.started)

    def resume(self) -> None:
        """The provider need not wait any more: the pause is no gap, and time counts again."""
        now = self.loop.time()
        self._uncounted_s += now - self.progress
        self.progress = now

    def stop(self) -> None:
        """The attempt has ended. The reference to it is dropped, so that both are freed at once."""
        self._watched = None
        self.gaps.total_s = self.progress - self._uncounted_s if self.seen_event else 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def start(self) -> None:
        """The request was sent: watch."""
        if self.paused:
            self.arm()
            return
        due = min(self.started + self._patience.first_look_s, self.until)
        self._timer = self.loop.call_at(max(due, self.loop.time() + _SOON_S), self._on_time)

    def arm(self) -> None:
        """Set the timer for whatever is due next."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watched is None:
            return
        now = self.loop.time()
        patience = self._patience
        due = self.until
        if not self.paused:
            wait = patience.gap_s if self.seen_event else patience.first_event_s
            due = min(due, self.progress + (_AFTER_DONE_S if self._watched.done else wait))
        if self._streamed and patience.heartbeat_s:
            due = min(due, max(self.progress, self._beaten) + patience.heartbeat_s)
        self._timer = self.loop.call_at(max(due, now + _SOON_S), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        watched = self._watched
        if watched is None:
            return
        now = self.loop.time()
        patience = self._patience
        silent = now - self.progress
        if now >= self.until:
            watched.time_out(from_transport("upstream_timeout_total", "the answer took too long"))
        elif self.paused:
            pass
        elif watched.done and silent >= _AFTER_DONE_S:
            watched.on_end()
        elif not self.seen_event and silent >= patience.first_event_s:
            code: ErrorCode = "upstream_timeout_idle" if self.seen_head else "upstream_timeout_headers"
            awaited = "event" if self._streamed else "answer"
            message = f"the provider sent no {awaited} within {patience.first_event_s:g} s"
            watched.time_out(from_transport(code, message))
        elif self.seen_event and silent >= patience.gap_s:
            message = f"the provider sent no event for {patience.gap_s:g} s"
            watched.time_out(from_transport("upstream_timeout_idle", message))
        if watched.over:
            return
        if self._streamed and patience.heartbeat_s and now - max(self.progress, self._beaten) >= patience.heartbeat_s:
            self._beaten = now
            watched.send_heartbeat()
        self.arm()
