"""AccumulatingReader: a reader that also makes a completion of what it reads. Every event passes it: no fast path."""

from penstock.core.completion import Accumulator, Completion
from penstock.core.events import Event
from penstock.core.stream import EventReader, Failed


class AccumulatingReader:
    """Reads as another reader does, and has all that was read so far as a completion."""

    def __init__(self, reader: EventReader) -> None:
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
    def failed(self) -> Failed | None:
        """How far it had come when it failed, if it has."""
        return self._reader.failed

    @property
    def pending(self) -> int:
        """How much is known that is told at the end only."""
        return self._reader.pending

    @property
    def frames(self) -> int:
        """How many frames there were so far."""
        return self._reader.frames

    def feed(self, data: bytes) -> list[Event]:
        """Take in bytes; return the events that they complete."""
        events = self._reader.feed(data)
        self._answer.extend(events)
        return events

    def close(self) -> list[Event]:
        """The bytes are over: return the last events."""
        events = self._reader.close()
        self._answer.extend(events)
        return events
