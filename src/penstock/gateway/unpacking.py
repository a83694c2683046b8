"""Unpacking: bodies that came compressed although nothing compressed was asked for, no further than they are read."""

import zlib
from typing import Literal, NamedTuple

_GZIP = (16 + zlib.MAX_WBITS,)
# What is called deflate has a head, or has none.
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}
_PLAIN = ("", "identity")


class Unpacked(NamedTuple):
    """A body in the clear. There is more of a `part`, and should be more of what is `cut`."""

    data: bytes
    extent: Literal["whole", "part", "cut"]


def is_packed(coding: str) -> bool:
    """Whether a body with this `Content-Encoding` is not in the clear."""
    return coding.strip().lower() not in _PLAIN


def can_unpack(coding: str) -> bool:
    """Whether the coding is one that is known here."""
    return coding.strip().lower() in _WINDOWS


def unpacked(body: bytes, coding: str, most: int) -> Unpacked | None:
    """So much of the body in the clear, or None where it cannot be unpacked: no bomb goes off."""
    for window in _WINDOWS.get(coding.strip().lower(), ()):
        decoder = zlib.decompressobj(window)
        try:
            data = decoder.decompress(body, most)
        except zlib.error:
            continue
        more = len(data) == most or decoder.unused_data
        return Unpacked(data, "part" if more else "whole" if decoder.eof else "cut")
    return None
