"""Complexity: estimates the time to read an event, before it is read.

Everything runs on one event loop, so an event that takes seconds to read blocks all other calls. The size of an event
is no measure: a megabyte of text takes a few milliseconds, a megabyte of `{}{}{}…` takes seconds. So the elements of a
large event are counted first, with methods of `bytes` only, and the event is rejected if it would take more than about
20 ms:

1. *To decode* (`outline_of`): each string, key, bracket and number has a price. The price is the worst time that the
   decoder takes for it, and the code that copies or encodes the result. A megabyte of log probabilities just passes.
2. *To interpret* (`is_intricate`): a reader processes choices, parts of content, pieces of tool calls, and the contents
   of errors and usage one by one, some microseconds each. It does not process fields without a meaning to us. Where a
   dialect's reader limits the pieces itself (`FrameReader.limits_pieces`), only fields are counted: those of objects
   that are merged or copied field by field.

A small event is not counted: it cannot take long.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from penstock.core.wire.scan import unescaped, unquoted

# The maximum size of an event that is not counted. The worst, a thousand parts of content, takes about 5 ms.
SMALL = 2_048
# The limit for decoding an event, in nanoseconds, without some 5 ms for the count itself; and the price of each
# element.
MOST = 15_000_000
_STRING = 80
_NEW_KEY = 230
_BRACKET = 105
_COMMA = 25
_FLOAT = 380
_EXTREME_FLOAT = 10_000
# The factor for the lenient decoder, which tries several times, and the price per value of joining surrogate pairs.
_LENIENTLY = 6
_HALVES = 1_000
# The decoder reads a float with such an exponent with arbitrary precision.
_EXTREME = re.compile(rb"[eE][+-]?[0-9]{3}")
# Converting a longer number takes quadratic time.
_LONGEST_NUMBER = b"0" * 400
_NUMBERS = bytes.maketrans(b"0123456789", b"0" * 10)
# A thread checks large bodies, and a call that takes long blocks all other threads. So they are checked in slices.
_SLICE = 4_000_000
_NOT_STRUCTURAL = bytes(byte for byte in range(256) if byte not in b'{[,:"')
_NO_ELEMENTS = bytes(byte for byte in range(256) if byte not in b"{[,:.eE")
# The minimum number of strings in the sample. The strides are primes, so that no regular structure hides the keys.
_SAMPLE = 1_000
_STRIDES = (13, 31, 61, 127, 251)
# Limits for what is processed one by one: pieces of content, at some 10 microseconds each, and fields and values.
_MOST_PIECES = 1_000
_MOST_VALUES = 10_000
_PIECES = ("content", "tool_calls", "reasoning_details", "thinking")
# The same in events that have no choices: lists of content blocks, and of what belongs to one. A block becomes several
# events, so it counts as more than one piece.
_BLOCKS = ("content", "citations", "parts")
_PIECES_PER_BLOCK = 2
_MESSAGES = ("delta", "message")
# The parameters of a tool call. The reader encodes an object in them as text.
_WRITTEN_AS_TEXT = ("arguments", "input")
# Fields that a reader processes down to the last value.
_LOOKED_THROUGH = ("usage", "error", "errors", "Error", "fault", "base_resp", "x_groq")


class Outline(NamedTuple):
    """The elements of a JSON text."""

    outside: bytes
    """All bytes outside of its strings."""
    price: int
    """The worst time to decode it and to encode it again, in nanoseconds."""
    values: int

    most: int = MOST

    def is_costly(self, *, leniently: bool = False, halves: bool = False) -> bool:
        """Whether decoding takes too long: with the strict or the lenient decoder, with or without joining halves."""
        price = self.price * (_LENIENTLY if leniently else 1) + self.values * (_HALVES if halves else 0)
        return price > self.most


def may_be_costly(data: bytes, most: int) -> bool:
    """A quick check whether the price of a JSON text can exceed this limit. It ignores extreme floats."""
    parts = [data[start : start + _SLICE + len(_LONGEST_NUMBER)] for start in range(0, len(data), _SLICE)]
    structural = sum(len(part.translate(None, _NOT_STRUCTURAL)) for part in parts)
    return structural * _FLOAT > most or any(_LONGEST_NUMBER in part.translate(_NUMBERS) for part in parts)


def outline_of(data: bytes, most: int = MOST) -> Outline:
    """The outline of a JSON text. Stops, with a price above the limit, as soon as it is certain to be too costly."""
    data = unescaped(data)
    strings = data.count(b'"') // 2
    if strings * _STRING > most:
        return Outline(b"", most + 1, 0, most)
    stride = max((stride for stride in _STRIDES if stride * _SAMPLE <= strings), default=_STRIDES[0])
    pieces: list[bytes] = []
    sample: list[tuple[bytes, bytes]] = []
    for parts in unquoted(data):
        pieces.append(b"".join(parts[::2]))
        sample += zip(parts[1 : -1 : 2 * stride], parts[2 :: 2 * stride], strict=True)
    outside = b"".join(pieces)
    elements = outside.translate(None, _NO_ELEMENTS)  # at once: each count reads all bytes
    brackets = elements.count(b"{") + elements.count(b"[")
    commas, keys = elements.count(b","), elements.count(b":")
    floats = len(elements) - brackets - commas - keys
    if floats:
        floats -= outside.count(b"true") + outside.count(b"false")
    price = strings * _STRING + brackets * _BRACKET + commas * _COMMA + floats * _FLOAT
    if price <= most < price + keys * _NEW_KEY:
        price += int(keys * _NEW_KEY * _share_of_new(sample))
    else:
        price += keys * _NEW_KEY
    if price <= most < floats * _EXTREME_FLOAT:
        price += sum(1 for _ in islice(_EXTREME.finditer(outside), floats)) * _EXTREME_FLOAT
    if price > most or (len(data) > SMALL and _LONGEST_NUMBER in outside.translate(_NUMBERS)):
        return Outline(b"", most + 1, 0, most)
    return Outline(outside, price, strings + brackets + commas, most)


def _share_of_new(sample: list[tuple[bytes, bytes]]) -> float:
    """The share of distinct keys, in a sample of strings, each with the bytes that follow it."""
    keys = [string for string, behind in sample if behind.lstrip()[:1] == b":"]
    return len(set(keys)) / len(keys) if keys else 1.0


def is_intricate(values: Iterable[object], *, pieces: bool = True) -> bool:
    """Whether an event with these values has too many pieces or values to interpret. Without `pieces`, pieces of an
    answer are not counted."""
    count = _Count()
    return not all(map(count.has_room_for if pieces else count.has_room_for_fields, values))


class _Count:
    """The number of pieces and of other values that are still allowed."""

    def __init__(self) -> None:
        self._pieces = _MOST_PIECES
        self._values = _MOST_VALUES

    def has_room_for(self, event: object) -> bool:
        self._pieces -= 1
        if isinstance(event, list):
            return len(event) <= self._pieces and all(map(self.has_room_for, event))
        if not isinstance(event, dict):
            return self._pieces >= 0
        choices = event.get("choices")
        if not isinstance(choices, list):
            self._look_through(event)
        else:
            self._pieces -= len(choices)
            self._enter(event)
            for choice in choices if self._pieces >= 0 else ():
                self._take_choice(choice)
        return self._pieces >= 0 and self._values >= 0

    def has_room_for_fields(self, event: object) -> bool:
        """Whether the fields of the event and of output items fit the limits, without the pieces of an answer."""
        self._pieces -= 1
        if isinstance(event, list):
            return len(event) <= self._pieces and all(map(self.has_room_for_fields, event))
        if isinstance(event, dict):
            self._enter(event)
            response = event.get("response")
            if isinstance(response, dict):
                self._enter(response)
            for holder in (event, response):
                items = holder.get("output") if isinstance(holder, dict) else None
                if isinstance(items, list):
                    self._values -= len(items)
                    for item in items if self._values >= 0 else ():
                        if isinstance(item, dict):
                            self._enter(item)
        return self._pieces >= 0 and self._values >= 0

    def _take_choice(self, choice: object) -> None:
        if not isinstance(choice, dict):
            return
        self._enter(choice)
        for name in _MESSAGES:
            message = choice.get(name)
            if isinstance(message, dict):
                self._enter(message)
                for field in _PIECES:
                    self._take_pieces(message.get(field))

    def _take_pieces(self, pieces: object) -> None:
        if isinstance(pieces, list):
            self._pieces -= len(pieces)
            for piece in pieces if self._pieces >= 0 else ():
                if isinstance(piece, dict):
                    self._enter(piece)
                    self._take_pieces(piece.get("thinking"))

    def _enter(self, fields: dict[str, object]) -> None:
        """Count the fields of an object and of all objects in it, which are merged field by field."""
        waiting = [fields]
        while waiting and self._values >= 0:
            found = waiting.pop()
            self._values -= len(found)
            if self._values >= 0:
                waiting += [value for value in found.values() if type(value) is dict]
                for name in _WRITTEN_AS_TEXT:
                    if name in found:
                        self._look_through(found[name])
        for name in _LOOKED_THROUGH:
            if name in fields:
                self._look_through(fields[name])

    def _look_through(self, value: object) -> None:
        waiting = [value]
        while waiting and self._values >= 0 and self._pieces >= 0:
            found = waiting.pop()
            if isinstance(found, dict):
                self._values -= len(found)
                for name in _BLOCKS:
                    if isinstance(blocks := found.get(name), list):
                        self._pieces -= _PIECES_PER_BLOCK * len(blocks)
                waiting += found.values() if self._values >= 0 else ()
            elif isinstance(found, list):
                self._values -= len(found)
                waiting += found if self._values >= 0 else ()
