"""Unpacking: bodies that came compressed although nothing compressed was asked for, no further than they are read."""

import zlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

_GZIP = (16 + zlib.MAX_WBITS,)
# What is called deflate has a head, or has none.
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}
_PLAIN = ("", "identity")
# As much as is dealt with at a time of what comes in the clear (`http/client.py`).
_PIECE = 3_072


class Decompressed(NamedTuple):
    """A body in the clear. There is more of a `part`, and should be more of what is `cut`."""

    data: bytes
    extent: Literal["whole", "part", "cut"]


def is_packed(coding: str) -> bool:
    """Whether a body with this `Content-Encoding` is not in the clear."""
    return coding.strip().lower() not in _PLAIN


def can_unpack(coding: str) -> bool:
    """Whether the coding is one that is known here."""
    return coding.strip().lower() in _WINDOWS


class Decompressor:
    """Unpacks a body as it comes, a little at a time. The coding must be one that can be unpacked."""

    def __init__(self, coding: str) -> None:
        self._window = _WINDOWS[coding.strip().lower()][0]
        self._decoder = zlib.decompressobj(self._window)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What these bytes hold, piece by piece; raises `zlib.error`."""
        while True:
            piece = self._decoder.decompress(data, _PIECE)
            data = self._decoder.unconsumed_tail
            if piece:
                yield piece
            elif self._decoder.eof and self._decoder.unused_data:
                data = self._decoder.unused_data  # what follows is a member of its own
                self._decoder = zlib.decompressobj(self._window)
            elif not data:
                return


def unpacked(body: bytes, coding: str, most: int) -> Decompressed | None:
    """So much of the body in the clear, or None where it cannot be unpacked: no bomb goes off."""
    for window in _WINDOWS.get(coding.strip().lower(), ()):
        decoder = zlib.decompressobj(window)
        try:
            data = decoder.decompress(body, most)
        except zlib.error:
            continue
        more = len(data) == most or decoder.unused_data
        return Decompressed(data, "part" if more else "whole" if decoder.eof else "cut")
    return None
