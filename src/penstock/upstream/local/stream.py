"""OneCreated: gives the stream of llama.cpp one creation time.

llama.cpp writes the present second into `created` of every chunk. It is a property of the completion: the first one
stands for the whole stream. The figures are replaced in the bytes as they come off the socket, digit for digit. So HTTP
chunks keep their sizes, and a capture, the parser and its shortcut all see the same stream.

Inside a JSON string quotation marks are escaped: `"created":` is never a part of what the model says.
"""

import asyncio
import re

_NAME = b'"created":'
_DIGITS = 10  # of the second, until the year 2286
_CREATED = re.compile(rb"%b(\d{%d})" % (_NAME, _DIGITS))
_BEGINNINGS = b"|".join(_NAME[:end] for end in range(len(_NAME), 0, -1))
# A part of one at the end of a read. It is held until the next.
_BEGUN = re.compile(rb"(?:%b\d{1,%d}|%b)\Z" % (_NAME, _DIGITS - 1, _BEGINNINGS))


class OneCreated(asyncio.Protocol):
    """Stands between the socket and the protocol that reads an answer from it."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._created = b""
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have come: pass them on, with the first creation time in place of any later one."""
        data = self._held + data
        begun = _BEGUN.search(data, max(0, len(data) - len(_NAME) - _DIGITS))
        self._held = data[begun.start() :] if begun else b""
        data = data.removesuffix(self._held) if begun else data
        if not self._created and (first := _CREATED.search(data)):
            self._created = first[0]
        if data := _CREATED.sub(self._created, data) if self._created else data:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """The other side has closed."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._held:
            self._protocol.data_received(self._held)
        self._protocol.connection_lost(exc)
