"""RenamingReader: a reader that gives tool calls the names that the client knows. It rules out the fast path.

A provider may accept only shorter names of tools than the client's API does. Then the request has other names
(`OutgoingRequest.tool_names`), and the answer is changed back.
"""

from collections.abc import Mapping

from msgspec import structs

from penstock.core.events import Event, ToolCallStart
from penstock.core.stream import EventReader, Failed


class RenamingReader:
    """Decorates a reader; `names` are the client's names by those in the request."""

    def __init__(self, reader: EventReader, names: Mapping[str, str]) -> None:
        self._reader = reader
        self._names = names

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
        return [self._renamed(event) for event in self._reader.feed(data)]

    def close(self) -> list[Event]:
        """End the stream; return its last events."""
        return [self._renamed(event) for event in self._reader.close()]

    def _renamed(self, event: Event) -> Event:
        if isinstance(event, ToolCallStart) and event.name in self._names:
            return structs.replace(event, name=self._names[event.name])
        return event
