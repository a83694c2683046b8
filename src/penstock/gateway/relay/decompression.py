"""Decompression of response bodies, which some providers compress although the request does not accept it.

Both ways bound the memory against decompression bombs: `Decompressor` yields small pieces as they are read,
`decompress` stops at a given size.
"""

import zlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

from penstock.http.client import turn_size

_GZIP = (16 + zlib.MAX_WBITS,)
# Servers send `deflate` with a zlib header, as RFC 9110 says, or without one.
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}
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
        self._window = _WINDOWS[coding.strip().lower()][0]
        self._decoder = zlib.decompressobj(self._window)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decompress these bytes, piece by piece; raises `zlib.error`."""
        while True:
            piece = self._decoder.decompress(data, _PIECE_SIZE)
            data = self._decoder.unconsumed_tail
            if piece:
                size = turn_size(piece)
                yield from (piece[start : start + size] for start in range(0, len(piece), size))
            elif self._decoder.eof and self._decoder.unused_data:
                data = self._decoder.unused_data  # a gzip body may have several members
                self._decoder = zlib.decompressobj(self._window)
            elif not data:
                return


def decompress(body: bytes, coding: str, max_size: int) -> Decompressed | None:
    """At most `max_size` decompressed bytes of the body, or None if it cannot be decompressed."""
    for window in _WINDOWS.get(coding.strip().lower(), ()):
        decoder = zlib.decompressobj(window)
        try:
            data = decoder.decompress(body, max_size)
        except zlib.error:
            continue
        more = len(data) == max_size or decoder.unused_data
        return Decompressed(data, "part" if more else "whole" if decoder.eof else "cut")
    return None
