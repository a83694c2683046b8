"""Reads a stream that is one JSON array, without SSE framing. Each element is a frame, emitted as soon as it ends."""

import re

from penstock.core.hub.events import Fault, Repair
from penstock.core.wire.frame import Frame, Framed
from penstock.core.wire.scan import JsonScan

_BETWEEN_ELEMENTS = b" \t\r\n,"
_BRACKETS = (b"{", b"[")
# Elements that are not objects have no meaning. They are read so that the elements around them are not lost.
_BEGINNINGS = (*_BRACKETS, b'"', *(bytes((byte,)) for byte in b"ntf-0123456789"))
# More of them would hold the event loop.
_MOST_MEANINGLESS = 1_000
_SCALAR_END = re.compile(rb"[\s,\]]")


class JsonArrayReader:
    """Splits a JSON array, without its opening bracket, into frames."""

    def __init__(self, max_event: int, *, offset: int = 0, line: int = 1) -> None:
        self.name = "json-array"
        self.cut = False
        self._max_event = max_event
        self._offset = offset
        self._line = line
        self._element = bytearray()
        self._at = (offset, line)
        self._scan = JsonScan()
        self._element_ended = False
        self._meaningless = 0
        self._closed = False
        self._dead = False

    def feed(self, data: bytes) -> list[Framed]:
        """Read bytes; return the elements that they complete."""
        items: list[Framed] = []
        position = 0
        while position < len(data) and not self._dead:
            if self._element:
                end = self._advance(data, position)
                self._element += data[position:end]
                if len(self._element) > self._max_event:
                    self._fault(items, "event-too-large", f"an event exceeds {self._max_event} bytes")
                elif self._element_ended:
                    self._meaningless += self._element[:1] not in _BRACKETS
                    if self._meaningless > _MOST_MEANINGLESS:
                        self._fault(items, "event-too-complex", "too many elements of the array are no objects")
                    else:
                        items.append(Frame(bytes(self._element), *self._at))
                        self._element.clear()
            else:
                end = self._begin_element(data, position, items)
            self._offset += end - position
            self._line += data.count(b"\n", position, end)
            position = end
        return items

    def close(self) -> list[Framed]:
        """End the stream; return a repair if the array is not closed."""
        self.cut = bool(self._element) and not self._dead
        if self._closed or self.cut or self._dead:
            return []
        return [Repair("array-unclosed", self._offset, self._line)]

    def _advance(self, data: bytes, position: int) -> int:
        """Scan on in the element; return where the element, or the data, ends."""
        if self._element[:1] in _BRACKETS:
            end = self._scan.advance(data, position)
            self._element_ended = self._scan.depth == 0 and not self._scan.in_string
            return end
        if self._element[:1] == b'"':
            end = self._scan.end_string(data, position)
            self._element_ended = not self._scan.in_string
            return end
        match = _SCALAR_END.search(data, position)
        self._element_ended = match is not None
        return len(data) if match is None else match.start()

    def _begin_element(self, data: bytes, position: int, items: list[Framed]) -> int:
        """Read one byte between elements, which may be the first of the next element."""
        mark = data[position : position + 1]
        if mark in _BEGINNINGS and not self._closed:
            self._at = (self._offset, self._line)
            self._scan = JsonScan()
            self._scan.advance(mark, 0)
            self._element += mark
            self._element_ended = False
        elif mark == b"]" and not self._closed:
            self._closed = True
        elif mark not in _BETWEEN_ELEMENTS:
            self._fault(items, "not-a-stream", f"byte {mark!r} between the elements of a JSON array")
        return position + 1

    def _fault(self, items: list[Framed], code: str, message: str) -> None:
        place = self._at if self._element else (self._offset, self._line)
        items.append(Fault(code, message, *place))
        self._dead = True
        self._element.clear()
