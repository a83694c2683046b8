"""AccumulatingReader: a reader that also builds a completion from its events. It rules out the fast path."""

from collections.abc import Callable

from penstock.core.completion import Accumulator, Completion
from penstock.core.events import Event
from penstock.core.stream import EventReader, Failed
from penstock.gateway.relay.transcript import count_chars


class AccumulatingReader:
    """Decorates a reader; collects what it reads into a completion.

    `grow(size)` decides whether `size` more characters are collected. Without `grow`, all are.
    """

    def __init__(self, reader: EventReader, grow: Callable[[int], bool] | None = None) -> None:
        self._reader = reader
        self._grow = grow
        self._answer = Accumulator()

    @property
    def completion(self) -> Completion:
        """The answer so far."""
        return self._answer.completion

    @property
    def done(self) -> bool:
        """Whether the provider has sent its end marker, such as `[DONE]`."""
        return self._reader.done

    @property
    def failed(self) -> Failed | None:
        """The state of the stream at its failure, if it has failed."""
        return self._reader.failed

    @property
    def pending(self) -> int:
        """How many frames of the trailer have come, whose events follow at the end."""
        return self._reader.pending

    @property
    def frames(self) -> int:
        """How many frames have come so far."""
        return self._reader.frames

    def feed(self, data: bytes) -> list[Event]:
        """Read bytes; return the events that they complete."""
        events = self._reader.feed(data)
        self._collect(events)
        return events

    def close(self) -> list[Event]:
        """End the stream; return its last events."""
        events = self._reader.close()
        self._collect(events)
        return events

    def _collect(self, events: list[Event]) -> None:
        if self._grow is None or self._grow(count_chars(events)):
            self._answer.extend(events)
