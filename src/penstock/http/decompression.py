"""Decompression of response bodies, which some providers compress although the request does not accept it.

Both ways bound the memory against decompression bombs: `Decompressor` yields small pieces as they are read,
`decompress` stops at a given size.
"""

import zlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

from penstock.http.upstream_connection import turn_size

_GZIP = 16 + zlib.MAX_WBITS
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}
_ZLIB_HEADER = 2
_IDENTITY = ("", "identity")
# In bytes: about as much as the relay gets in one turn of the event loop from an uncompressed body (`turn_size`).
_PIECE_SIZE = 2_048


class Decompressed(NamedTuple):
    """A decompressed body. `part`: it is longer than the size limit. `cut`: the compressed body is truncated."""

    data: bytes
    extent: Literal["whole", "part", "cut"]


def is_compressed(coding: str) -> bool:
    """Whether a body with this `Content-Encoding` is compressed."""
    return coding.strip().lower() not in _IDENTITY


def can_decompress(coding: str) -> bool:
    """Whether this module can decompress the coding."""
    return coding.strip().lower() in _WINDOWS


class Decompressor:
    """Decompresses a body in small pieces as it arrives. The coding must satisfy `can_decompress`."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._head = b""
        self._decoder: zlib._Decompress | None = None

    def blocks(self, data: bytes) -> Iterator[bytes]:
        """Decompress these bytes, in blocks of at most `_PIECE_SIZE` bytes; raises `zlib.error`."""
        if self._decoder is None:
            data = self._head = self._head + data
            if len(data) < _ZLIB_HEADER:
                return
            self._decoder = zlib.decompressobj(_window(self._coding, data))
        while True:
            block = self._decoder.decompress(data, _PIECE_SIZE)
            data = self._decoder.unconsumed_tail
            if block:
                yield block
            elif self._decoder.eof and self._decoder.unused_data:
                data = self._decoder.unused_data  # a gzip body may have several members
                self._decoder = zlib.decompressobj(_window(self._coding, data))
            elif not data:
                return

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decompress these bytes, in pieces for one turn of the event loop each; raises `zlib.error`."""
        for block in self.blocks(data):
            size = turn_size(block)
            yield from (block[start : start + size] for start in range(0, len(block), size))


def decompress(body: bytes, coding: str, max_size: int) -> Decompressed | None:
    """At most `max_size` decompressed bytes of the body, or None if it cannot be decompressed."""
    if not can_decompress(coding):
        return None
    decoder = zlib.decompressobj(_window(coding, body))
    try:
        data = decoder.decompress(body, max_size)
    except zlib.error:
        return None
    more = len(data) == max_size or decoder.unused_data
    return Decompressed(data, "part" if more else "whole" if decoder.eof else "cut")


def _window(coding: str, body: bytes) -> int:
    """The `wbits` of zlib. Servers send `deflate` with a zlib header, as RFC 9110 says, or without one.

    No encoder begins raw data with these bytes: they would be a stored block whose padding is not zero.
    """
    window = _WINDOWS[coding.strip().lower()]
    has_header = body[:1] and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:_ZLIB_HEADER]) % 31 == 0
    return window if window == _GZIP or has_header else -window
