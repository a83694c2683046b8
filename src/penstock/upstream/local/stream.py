"""CreatedTimeFilter: gives all chunks of a llama.cpp stream the same creation time.

llama.cpp writes the current second into `created` of every chunk, although it is a property of the whole completion.
The filter replaces every later value with the first one. It works on the raw bytes from the socket and replaces digit
by digit, so HTTP chunks keep their sizes, and a capture, the parser and the fast path all see the same stream.

Quotation marks inside JSON strings are escaped, so `"created":` never matches inside the model's text.
"""

import asyncio
import re

_NAME = b'"created":'
_DIGITS = 10  # of a Unix time, until the year 2286
_CREATED = re.compile(rb"%b(\d{%d})" % (_NAME, _DIGITS))
_PREFIXES = b"|".join(_NAME[:end] for end in range(len(_NAME), 0, -1))
# An incomplete match at the end of a read. It is buffered until the next read.
_PARTIAL = re.compile(rb"(?:%b\d{1,%d}|%b)\Z" % (_NAME, _DIGITS - 1, _PREFIXES))


class CreatedTimeFilter(asyncio.Protocol):
    """A protocol between the socket and the protocol that reads the response."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._created = b""
        self._partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio when the connection is established."""
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on, with every later creation time replaced by the first."""
        data = self._partial + data
        partial = _PARTIAL.search(data, max(0, len(data) - len(_NAME) - _DIGITS))
        self._partial = data[partial.start() :] if partial else b""
        data = data.removesuffix(self._partial) if partial else data
        if not self._created and (first := _CREATED.search(data)):
            self._created = first[0]
        if data := _CREATED.sub(self._created, data) if self._created else data:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Called by asyncio when the peer has closed its side."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when the connection is closed; passes on what was buffered."""
        if self._partial:
            self._protocol.data_received(self._partial)
        self._protocol.connection_lost(exc)
