"""AttemptControl: stops, pauses and limits an attempt that is in progress. `Attempt` is its data.

The relay registers itself here while the answer arrives. A budget sets a limit on the characters that the model may
send, and its callback is called when the limit is reached. The transcript for the admin page is kept here, too. Both
need attention only when the attempt has sent `check_at` characters, so the relay compares one number per event.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.core.hub.events import Ending, Event
from penstock.core.hub.failure import Failure
from penstock.gateway.record.transcript import TRIM_EVERY, Transcript, count_chars

NO_LIMIT = 1 << 60
MAX_CHARS = 32_000_000
"""The maximum number of characters in one answer, far above what models write. The gateway keeps the text in memory
for dialects whose last event repeats the answer."""


class RunningAnswer(Protocol):
    """The relay of an answer in progress."""

    @property
    def frames(self) -> int:
        """How many frames have come so far."""

    @property
    def last_event_at(self) -> float:
        """When the last event came, by the clock of the event loop; before the first one, when the attempt began."""

    @property
    def committed(self) -> bool:
        """Whether the client gets an answer: it is past its commit point, and has not ended."""

    def stop(self, failure: Failure, ending: Ending) -> None:
        """End the answer and send the client this failure."""

    def pause_for_limit(self, paused: bool) -> None:
        """Pause reading from the provider, or resume it."""


class TextCounter(Protocol):
    """The part of an attempt that the control reads."""

    output_chars: int
    """Characters that the model has sent so far."""


class AttemptControl:
    """Stops, pauses and limits one attempt, and keeps its transcript."""

    on_limit: Callable[[], None] | None = None
    """Called once when the limit is reached."""
    running: RunningAnswer | None = None
    """The relay, while the answer arrives."""
    transcript: Transcript | None = None
    """The text so far, if the operator allows the admin page to show it."""
    _limit = NO_LIMIT

    def __init__(self, attempt: TextCounter) -> None:
        self._attempt = attempt
        self.check_at = MAX_CHARS
        """The number of characters at which the relay must call `check`."""

    @property
    def limit(self) -> int:
        """The number of characters at which `on_limit` is called."""
        return self._limit

    @limit.setter
    def limit(self, output_chars: int) -> None:
        self._limit = output_chars
        self.check_at = min(self.check_at, output_chars)

    def keep_transcript(self) -> None:
        """Start to keep the text."""
        self.transcript = Transcript()
        self.check_at = min(self.check_at, self._attempt.output_chars + TRIM_EVERY)

    def drop_transcript(self) -> None:
        """Delete the text and keep no more of it."""
        if self.transcript is not None:
            self.transcript.clear()
            self.transcript = None
            self.check_at = 0

    @property
    def count_text(self) -> Callable[[list[Event]], int]:
        """The function that counts the characters of events and keeps their text if needed.

        Read it again after `check`.
        """
        return count_chars if self.transcript is None else self.transcript.append

    def check(self) -> None:
        """`check_at` is reached: call `on_limit` if its limit is reached, and trim the transcript."""
        output_chars = self._attempt.output_chars
        if output_chars >= self._limit and self.on_limit is not None:
            self._limit = NO_LIMIT
            self.on_limit()
        self.check_at = min(self._limit, MAX_CHARS)
        if self.transcript is not None:
            self.transcript.trim()
            self.check_at = min(self.check_at, output_chars + TRIM_EVERY)

    def release(self) -> None:
        """The attempt has ended: drop the references to the relay and the budget, and the text."""
        self.running = self.on_limit = None
        if self.transcript is not None:
            self.drop_transcript()
