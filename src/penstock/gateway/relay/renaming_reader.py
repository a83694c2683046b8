"""RenamingReader: a reader that reports tool calls as the client knows them. It rules out the fast path.

A provider may accept only shorter names of tools than the client's API does, or only functions. Then tools have another
name or form in the request (`OutgoingRequest.tools`), and the answer is changed back (`core/tool_map.py`).
"""

from collections.abc import Mapping

from penstock.core.events import Event
from penstock.core.stream import EventReader, Failed
from penstock.core.tool_map import ClientTool, ToolCallRestorer


class RenamingReader:
    """Decorates a reader; `tools` are the client's tools by their names in the request."""

    def __init__(self, reader: EventReader, tools: Mapping[str, ClientTool]) -> None:
        self._reader = reader
        self._restorer = ToolCallRestorer(tools)

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
        return self._restorer.restore(self._reader.feed(data))

    def close(self) -> list[Event]:
        """End the stream; return its last events."""
        return self._restorer.restore(self._reader.close())
