"""Heard: a reader that keeps what the model says, beside the one that reads it. It costs the fast lane."""

from penstock.core.completion import Accumulator, Completion
from penstock.core.dialects.openai_chat.tail import Tail
from penstock.core.events import Event
from penstock.core.stream import Failed, Reader


class Heard:
    """Reads as another reader does, and has all that was read so far as a completion."""

    untouched = False
    """Nothing goes on as it came: so every event passes here."""
    mould = None

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._answer = Accumulator()

    @property
    def completion(self) -> Completion:
        """What was said so far."""
        return self._answer.completion

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""
        return self._reader.done

    @property
    def tail(self) -> Tail | None:
        """The usual ending, as far as it has come."""
        return self._reader.tail

    @property
    def failed(self) -> Failed | None:
        """How far it had come when it failed, if it has."""
        return self._reader.failed

    @property
    def held(self) -> int:
        """How much is known that is told at the end only."""
        return self._reader.held

    @property
    def frames(self) -> int:
        """How many frames there were so far."""
        return self._reader.frames

    @property
    def max_event(self) -> int:
        """How many bytes one event may have."""
        return self._reader.max_event

    def begin(self, _first: bytes, _words: bytes) -> None:
        """Nothing: every event passes here."""

    def feed(self, data: bytes) -> list[Event]:
        """Take in bytes; return the events that they complete."""
        events = self._reader.feed(data)
        self._answer.extend(events)
        return events

    def hold(self, _data: bytes) -> None:
        """Nothing: every event passes here."""

    def close(self) -> list[Event]:
        """The bytes are over: return the last events."""
        events = self._reader.close()
        self._answer.extend(events)
        return events
