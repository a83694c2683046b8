"""RenamingReader: a reader that reports tool calls as the client knows them. It rules out the fast path.

A provider may accept only shorter names of tools than the client's API does, or only functions. Then tools have another
name or form in the request (`OutgoingRequest.tools`), and the answer is changed back (`core/hub/tool_map.py`).
"""

from collections.abc import Mapping

from penstock.core.hub.events import Event
from penstock.core.hub.tool_map import ClientTool, ToolCallRestorer
from penstock.core.reader_decorator import ReaderDecorator
from penstock.core.stream import EventReader


class RenamingReader(ReaderDecorator):
    """Decorates a reader; `tools` are the client's tools by their names in the request."""

    def __init__(self, reader: EventReader, tools: Mapping[str, ClientTool]) -> None:
        super().__init__(reader)
        self._restorer = ToolCallRestorer(tools)

    def _convert(self, events: list[Event]) -> list[Event]:
        return self._restorer.restore(events)
