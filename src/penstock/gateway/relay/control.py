"""AttemptControl: the handle on an attempt that is under way. `Attempt` is what is known of it; this acts on it.

The relay registers itself here while the answer comes. Budgets set a limit on the characters that the model may send,
and are called when it is reached. The admin page's transcript is kept here, too. Both are looked at when the attempt
has sent `check_at` characters: so the relay compares one number for each event.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.core.events import Ending, Event
from penstock.core.failure import Failure
from penstock.gateway.relay.transcript import TURN, Transcript, size_of

NO_LIMIT = 1 << 60


class RunningAnswer(Protocol):
    """What brings an answer, while it comes: a relay."""

    @property
    def frames(self) -> int:
        """How many events there were so far."""

    def stop(self, failure: Failure, ending: Ending) -> None:
        """End the answer, and tell the client why."""

    def halt(self, halted: bool) -> None:
        """Make the provider wait, or let it go on."""


class TextCounter(Protocol):
    """An attempt, as far as its text is counted."""

    said: int
    """Characters that the model has sent so far."""


class AttemptControl:
    """Stops, pauses and limits one attempt, and keeps its transcript."""

    on_limit: Callable[[], None] | None = None
    """Called once when the limit is reached."""
    running: RunningAnswer | None = None
    """What brings the answer, while it comes."""
    transcript: Transcript | None = None
    """What was said, where it may be read along."""
    _limit = NO_LIMIT

    def __init__(self, attempt: TextCounter) -> None:
        self._attempt = attempt
        self.check_at = NO_LIMIT
        """When the attempt has sent so many characters, `check` must be called."""

    @property
    def limit(self) -> int:
        """How many characters the attempt may send until `on_limit` is called."""
        return self._limit

    @limit.setter
    def limit(self, said: int) -> None:
        self._limit = said
        self.check_at = min(self.check_at, said)

    def keep_transcript(self) -> None:
        """Keep what is said."""
        self.transcript = Transcript()
        self.check_at = min(self.check_at, self._attempt.said + TURN)

    def drop_transcript(self) -> None:
        """Keep nothing of what was said, nor of what will be."""
        if self.transcript is not None:
            self.transcript.clear()
            self.transcript = None
            self.check_at = 0

    @property
    def count_text(self) -> Callable[[list[Event]], int]:
        """Counts the characters of events, and keeps the text where that is wanted. Ask for it anew after `check`."""
        return size_of if self.transcript is None else self.transcript.hear

    def check(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """`check_at` is reached: call `on_limit` soon if that is due, and trim the transcript."""
        said = self._attempt.said
        if said >= self._limit and self.on_limit is not None:
            self._limit = NO_LIMIT
            soon(self.on_limit)
        self.check_at = self._limit
        if self.transcript is not None:
            self.transcript.turn()
            self.check_at = min(self.check_at, said + TURN)

    def release(self) -> None:
        """The attempt has ended: let go of everything that takes part in it."""
        self.running = self.on_limit = None
        if self.transcript is not None:
            self.drop_transcript()
