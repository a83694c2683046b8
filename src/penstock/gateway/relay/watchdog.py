"""Watchdog: enforces the timeouts of an attempt with one timer.

The timer covers the first event, the gap between events, the total time and the heartbeat. Only events count as
progress: a provider that sends comments or single bytes cannot keep a dead stream open.

The timer is not set again for each event. It fires when the earliest timeout could have passed, and `_on_time` sets it
again for the time that is left since the last event. So an event costs one assignment to `last_event_at`.
"""

import asyncio
from bisect import bisect_left
from math import inf
from typing import Protocol

from penstock.core.hub.failure import Failure
from penstock.error_codes import ErrorCode
from penstock.gateway.record.attempt import GAP_BOUNDS, EventGaps
from penstock.gateway.record.failure import from_transport
from penstock.gateway.record.timeouts import AttemptTimeouts

# How long the end of the body may take after `[DONE]`. A provider may keep the connection open for much longer.
_AFTER_DONE_S = 0.5
# The least delay of the timer, so that it cannot fire again and again in the same moment.
_SOON_S = 0.001


class WatchedRelay(Protocol):
    """The relay, as the watchdog uses it."""

    @property
    def done(self) -> bool:
        """Whether the provider has sent its end marker, such as `[DONE]`."""

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""

    @property
    def output_chars(self) -> int:
        """How many characters have come so far."""

    def on_end(self) -> None:
        """Handle the end of the body."""

    def time_out(self, failure: Failure) -> None:
        """End the attempt: a timeout has passed."""

    def send_heartbeat(self) -> None:
        """Send the client a comment, so that no proxy closes the idle connection."""

    def on_exception(self, error: Exception) -> None:
        """End the call after an exception of ours."""


class Watchdog:
    """Watches one attempt until it is stopped."""

    seen_event = False
    """Whether an event has come."""
    seen_head = False
    """Whether the head of the provider's response has come."""
    paused = 0
    """The reasons for a pause, as bits (`relay.py`). During a pause only the total timeout runs."""
    # Time that belongs to no gap: before the first event, and during pauses.
    _uncounted_s = 0.0
    # Since when events have nothing for the client, such as reasoning that it did not ask for; None if the last had.
    _unsent_since: float | None = None
    _last_heartbeat = 0.0
    # When the present window of the least pace began, and the characters until then.
    _window_began = inf
    _window_chars = 0
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self, watched: WatchedRelay, timeouts: AttemptTimeouts, gaps: EventGaps, deadline: float, *, streamed: bool
    ) -> None:
        """`deadline` is by the clock of the loop. Heartbeats are sent only if the client is streamed to."""
        self.loop = loop = asyncio.get_running_loop()
        self.deadline = deadline
        """When the total timeout passes."""
        self.started = self.last_event_at = loop.time()
        """When the attempt started, and when the last event came or the last pause ended."""
        self._watched: WatchedRelay | None = watched
        self._timeouts = timeouts
        self.gaps = gaps
        self._streamed = streamed

    def first_event(self) -> None:
        """The first event has come."""
        self.seen_event = True
        self.last_event_at = now = self.loop.time()
        self._uncounted_s = self._window_began = now
        timeouts = self._timeouts
        if self._timer is not None and self._timer.when() > now + min(timeouts.gap_s, timeouts.pace_window_s):
            self.arm()

    def advance(self) -> None:
        """An event has come after another one."""
        now = self.loop.time()
        gap = now - self.last_event_at
        self.last_event_at = now
        gaps = self.gaps
        gaps.counts[bisect_left(GAP_BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - self.started)

    def note_sent(self, data: bytes) -> None:
        """Note what the client gets of the last event: heartbeats are due while it gets nothing."""
        if data:
            self._unsent_since = None
        elif self._unsent_since is None:
            self._unsent_since = self.last_event_at

    def resume(self) -> None:
        """The pause is over. Its time belongs to no gap, and the timeouts run again."""
        now = self.loop.time()
        self._uncounted_s += now - self.last_event_at
        self.last_event_at = now
        if self.seen_event and self._watched is not None:
            self._begin_window(now, self._watched)

    def _begin_window(self, now: float, watched: WatchedRelay) -> None:
        """Measure the pace from now on."""
        self._window_began, self._window_chars = now, watched.output_chars

    def _check_pace(self, now: float, watched: WatchedRelay) -> None:
        """A window of the least pace is over."""
        timeouts = self._timeouts
        if watched.output_chars - self._window_chars < timeouts.pace_chars:
            message = f"the answer had less than {timeouts.pace_chars:g} characters in {timeouts.pace_window_s:g} s"
            watched.time_out(from_transport("upstream_too_slow", message))
        else:
            self._begin_window(now, watched)

    def stop(self) -> None:
        """The attempt has ended: drop the reference cycle with the relay, so that both are freed at once."""
        self._watched = None
        self.gaps.total_s = self.last_event_at - self._uncounted_s if self.seen_event else 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def start(self) -> None:
        """The request is sent: set the timer."""
        if self.paused:
            self.arm()
            return
        due = min(self.started + self._timeouts.first_check_s, self.deadline)
        self._timer = self.loop.call_at(max(due, self.loop.time() + _SOON_S), self._on_time)

    def arm(self) -> None:
        """Set the timer for the next timeout or heartbeat."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watched is None:
            return
        now = self.loop.time()
        timeouts = self._timeouts
        due = self.deadline
        if not self.paused:
            wait = timeouts.gap_s if self.seen_event else timeouts.first_event_s
            due = min(due, self.last_event_at + (_AFTER_DONE_S if self._watched.done else wait))
            due = min(due, self._window_began + timeouts.pace_window_s)
        if self._streamed and timeouts.heartbeat_s:
            due = min(due, self._last_sent + timeouts.heartbeat_s)
        self._timer = self.loop.call_at(max(due, now + _SOON_S), self._on_time)

    @property
    def _last_sent(self) -> float:
        """When the client got something last: with the last event, unless that has nothing for the client."""
        since = self._unsent_since if self._unsent_since is not None else self.last_event_at
        return max(since, self._last_heartbeat)

    def _on_time(self) -> None:
        self._timer = None
        if (watched := self._watched) is not None:
            try:
                self._check(watched)
            except Exception as error:  # noqa: BLE001 - the call ends
                watched.on_exception(error)

    def _check(self, watched: WatchedRelay) -> None:
        """Act on the timeout that has passed, if one has, and set the timer again."""
        now = self.loop.time()
        timeouts = self._timeouts
        silent = now - self.last_event_at
        if now >= self.deadline:
            watched.time_out(from_transport("upstream_timeout_total", "the answer took too long"))
        elif self.paused:
            pass
        elif watched.done and silent >= _AFTER_DONE_S:
            watched.on_end()
        elif not self.seen_event and silent >= timeouts.first_event_s:
            code: ErrorCode = "upstream_timeout_idle" if self.seen_head else "upstream_timeout_headers"
            awaited = "event" if self._streamed else "answer"
            message = f"the provider sent no {awaited} within {timeouts.first_event_s:g} s"
            watched.time_out(from_transport(code, message))
        elif self.seen_event and silent >= timeouts.gap_s:
            message = f"the provider sent no event for {timeouts.gap_s:g} s"
            watched.time_out(from_transport("upstream_timeout_idle", message))
        elif now >= self._window_began + timeouts.pace_window_s:
            self._check_pace(now, watched)
        if watched.over:
            return
        if self._streamed and timeouts.heartbeat_s and now - self._last_sent >= timeouts.heartbeat_s:
            self._last_heartbeat = now
            watched.send_heartbeat()
        self.arm()
