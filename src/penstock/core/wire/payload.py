"""Payload: decodes the data of a frame into JSON values, strictly first, and leniently only if that fails.

The strict decoder (msgspec) reads every healthy frame. Data that it rejects is tried again, in this order, each step
with the defect that it tolerates:

1. as UTF-8 with the broken bytes replaced by U+FFFD (`invalid-utf8`);
2. with Python's `json`, which also reads `NaN` and `Infinity` (`non-finite-number`), escapes of half a surrogate pair
   (`Payload.surrogates`: the dialect joins them) and, if need be, raw control characters in strings
   (`raw-control-character`);
3. as several values on one line (`glued-events`), or one after a repeated `data:` (`data-prefix-twice`).

Each step reads what the sender meant or nothing. No step can change a value that a strict parser would accept.
"""

import json
import re
from itertools import islice

import msgspec
from msgspec import Struct

from penstock.core.wire.complexity import MOST, SMALL, Outline, outline_of
from penstock.core.wire.scan import brackets_of, is_deeper, marks_of, outside_strings

# Deeper than any chunk, and less deep than the recursion limit of `repr`, `==` or an encoder.
MAX_DEPTH = 100
# No sender puts more values on one line on purpose.
MOST_GLUED = 1_000
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BETWEEN_VALUES = re.compile(r"(?:\s+|data:)*")
_OPENING = "{["
_OBJECTS = (dict, bytes)  # a sentinel is bytes
_NOT_CONTROL = bytes(range(0x20, 0x100))
_HALF_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# More halves in a large event (ten thousand characters) would take too long to join.
_MOST_HALVES = 20_000
# Broken bytes or raw control characters in a large event. Each becomes three or six bytes, which are copied and
# searched several times. Text has few of them.
_MOST_BROKEN = 20_000
_WHITE_SPACE = b"\t\r\n"


class Payload(Struct, frozen=True):
    """The values in a frame's data, and the defects that were tolerated to read them."""

    values: list[object]
    defects: list[str] = []
    surrogates: bool = False


class TooComplexError(Exception):
    """Decoding the data would take too long (`complexity.py`), or it is nested too deep."""


def decode(data: bytes, sentinel: str = "", outline: Outline | None = None) -> Payload | None:
    """The JSON values in the data, or None if it cannot be read; raises `TooComplexError`.

    The sentinel is the text that the dialect sends in place of a value. If it is on one line with a value, it is
    returned as bytes, which no JSON value is. The sentinel alone is not read here. `outline` is that of the data, if it
    is known.
    """
    if outline is None and len(data) > SMALL:
        outline = outline_of(data)
    if outline is not None and outline.is_costly():
        raise TooComplexError
    try:
        return Payload([msgspec.json.decode(data)])
    except (ValueError, RecursionError):
        return decode_leniently(data, sentinel, outline)


def is_json(data: bytes | bytearray) -> bool:
    """Whether the data is exactly one JSON value, by the strict decoder."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def is_too_deep(data: bytes, outside: bytes | None = None, most: int = MAX_DEPTH) -> bool:
    """Whether the data is nested deeper than `most`. `outside` are the bytes outside of its strings, if known.

    Decoders have limits too, which are the interpreter's: each version of Python has others.
    """
    if outside is None and len(data) > SMALL:
        data = marks_of(data)  # what follows takes less time then
    counted = data if outside is None else outside
    if counted.count(b"{") + counted.count(b"[") <= most:
        return False
    return is_deeper(brackets_of(data) if outside is None else outside, most)


class TextDecoder:
    """Decodes texts that hold JSON, such as the arguments of calls. The texts of one request or answer share one limit.

    A string in a body or an event costs nothing, whatever is in it. So the limits of the body do not hold for the JSON
    in its texts: they are counted here. Each text may take as long as one event, and all of them as long as `events`.
    """

    def __init__(self, events: int = 1) -> None:
        self._left = events * MOST

    def decode(self, text: str) -> object:
        """The value in a text. Raises `ValueError` if it is not JSON, and `TooComplexError` if it is too complex."""
        data = text.encode()
        outline = outline_of(data, min(self._left, MOST))
        if outline.is_costly() or is_too_deep(data, outline.outside):
            raise TooComplexError
        self._left -= outline.price
        return msgspec.json.decode(data)


def decode_leniently(data: bytes, sentinel: str, outline: Outline | None) -> Payload | None:
    """The values in data that the strict decoder has rejected; None if there are none. Small data has no outline."""
    defects = []
    data = data.strip()  # at once: a megabyte of white space would be searched several times
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        if outline is not None and text.count(_REPLACEMENT) > _MOST_BROKEN:
            raise TooComplexError from None
        defects.append("invalid-utf8")
    halves = 0
    if b"\\u" in data:
        most = _MOST_HALVES + 1 if outline is not None else 1
        halves = sum(1 for _ in islice(_HALF_SURROGATE.finditer(data), most))
    if outline is not None and (halves > _MOST_HALVES or outline.is_costly(leniently=True, halves=halves > 0)):
        raise TooComplexError
    finite = not _is_infinite(data) or not _is_infinite(outside_strings(data))
    controls = data.translate(None, _NOT_CONTROL)
    if outline is not None and len(controls.translate(None, _WHITE_SPACE)) > _MOST_BROKEN:
        raise TooComplexError
    for lenience, decoder in _DECODERS if controls else _DECODERS[:1]:
        try:
            values, gluing = _split(text, decoder, sentinel)
        except (ValueError, RecursionError):  # ValueError: not JSON, or an integer too long to convert
            continue
        return Payload(values, defects + lenience + ([] if finite else ["non-finite-number"]) + gluing, halves > 0)
    return None


def _is_infinite(data: bytes) -> bool:
    """Whether the data names a number that is not finite."""
    return b"NaN" in data or b"Infinity" in data


def _split(text: str, decoder: json.JSONDecoder, sentinel: str) -> tuple[list[object], list[str]]:
    """All values in the text; raises ValueError if anything but white space and `data:` is between them."""
    values: list[object] = []
    defects = []
    start = _skip(text, 0)
    if "data:" in text[:start]:
        defects.append("data-prefix-twice")
    while start < len(text):
        if sentinel and text.startswith(sentinel, start):
            value, end = sentinel.encode(), start + len(sentinel)
        else:
            value, end = decoder.raw_decode(text, start)
        values.append(value)
        if len(values) > MOST_GLUED:
            raise TooComplexError
        start = _skip(text, end)
        if len(values) > 1 and not isinstance(value, _OBJECTS):
            raise ValueError("only objects are split: other values run into each other")
    if not values or (isinstance(values[0], bytes) and not defects):
        raise ValueError("no value")
    if len(values) > 1:
        defects.append("glued-events")
    return values, defects


def _skip(text: str, start: int) -> int:
    """Where the next value starts."""
    if text[start : start + 1] in _OPENING:  # or the text ends
        return start
    match = _BETWEEN_VALUES.match(text, start)
    assert match is not None  # the pattern matches the empty string
    return match.end()


_DECODERS: tuple[tuple[list[str], json.JSONDecoder], ...] = (
    ([], json.JSONDecoder()),
    (["raw-control-character"], json.JSONDecoder(strict=False)),
)
