"""BodyForwarder: a healthy unstreamed answer takes the shortest way from the provider to the client.

A relay has one if the client speaks the provider's dialect, and nothing between reader and writer needs the events. It
holds the answer until the end of its body. Then the dialect's typed decoders read it (`TextFormat.read_body`), and the
client gets it as it came, but for members that the gateway sets. Of an answer that they refuse, the reader gets the
same pieces, one after the other.
"""

import re

from penstock.core.fast.format import PlainBody, TextFormat
from penstock.core.stream import EventReader, StreamReader
from penstock.core.stream_writer import StreamWriter

# In bytes. Far above answers without media, and so little that decoding it delays no other call.
_MAX_BODY = 262_144
# As integers, which `in` finds faster.
_CR, _LF = b"\r\n"
_BLANK_LINE = re.compile(rb"\n[ \t]*\n")


class BodyForwarder:
    """The bytes of one unstreamed answer so far."""

    _size = 0

    def __init__(self, format: TextFormat) -> None:
        self._format = format
        self.pieces: list[bytes] = []
        """The pieces that are held."""

    @classmethod
    def between(cls, reader: EventReader, writer: StreamWriter) -> "BodyForwarder | None":
        """The fast path between a reader and a writer; None if something changes or accumulates the events."""
        if not isinstance(reader, StreamReader) or reader.format is None:
            return None
        return cls(reader.format) if reader.dialect == writer.dialect else None

    @property
    def body(self) -> bytes:
        """All that is held."""
        pieces = self.pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def hold(self, data: bytes, *, last: bool) -> bool:
        """Add a piece of the body; `last`: the body ends there. False if the reader must have all pieces and this one
        now, because they may be events that come one by one."""
        self._size += len(data)
        begins = self.pieces or data.startswith(b"{")
        if not begins or self._size > _MAX_BODY or (not last and data.endswith(b"\n")):
            return False
        self.pieces.append(data)
        return True

    def read(self) -> PlainBody | None:
        """The answer, if all of it is held and it is healthy."""
        body = self.body
        if _CR in body or (_LF in body and _BLANK_LINE.search(body)):
            return None  # to the framing these are events
        return self._format.read_body(body)
