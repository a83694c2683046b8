"""ReaderDecorator: what readers have in common that change or observe the events of another reader."""

from abc import ABC, abstractmethod

from penstock.core.hub.events import Event
from penstock.core.slow_path import FailedStream
from penstock.core.stream import EventReader


class ReaderDecorator(ABC):
    """An `EventReader` around another one: its state is that of the inner reader. It rules out the fast path."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader

    @abstractmethod
    def _convert(self, events: list[Event]) -> list[Event]:
        """The events to return in place of these events of the inner reader."""

    @property
    def done(self) -> bool:
        """Whether the provider has sent the end of the stream."""
        return self._reader.done

    @property
    def failed(self) -> FailedStream | None:
        """The state when the stream failed, or None if it has not."""
        return self._reader.failed

    @property
    def withheld(self) -> int:
        """The number of events of the inner reader that are known and emitted at the end only."""
        return self._reader.withheld

    @property
    def frames(self) -> int:
        """The number of frames so far."""
        return self._reader.frames

    def feed(self, data: bytes) -> list[Event]:
        """Read bytes; return the events that they complete."""
        return self._convert(self._reader.feed(data))

    def release(self) -> list[Event]:
        """Return the events that are held, as they came: the answer ends here."""
        return self._convert(self._reader.release())

    def close(self) -> list[Event]:
        """End the stream: return the last events, with the `End`."""
        return self._convert(self._reader.close())
