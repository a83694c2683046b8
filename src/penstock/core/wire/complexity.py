"""Complexity: what an event would take to read, estimated before it is read.

Everything runs on one event loop: an event that takes seconds to read holds up all other calls. How many bytes an event
has says little: a megabyte of text is read in a few milliseconds, a megabyte of `{}{}{}…` in seconds. So a large event
is counted first, by functions of `bytes` alone, and refused where it would take more than about 20 ms:

1. *To decode* (`outline_of`): each string, key, bracket and number has a price, which is what the decoder, and whatever
   copies or encodes its result, takes for it at worst. A megabyte of log probabilities has about the price that is
   allowed.
2. *To interpret* (`is_intricate`): choices, parts of content, pieces of tool calls and what stands in errors and usage
   are gone through one by one, some microseconds each. Fields without a meaning here are not.

A small event needs no count: whatever it is, it does not take long.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from penstock.core.wire.scan import unescaped, unquoted

# Bytes of an event that is read without being counted. The worst, a thousand parts of content, takes about 5 ms.
SMALL = 2_048
# Nanoseconds that the decoding of an event may take, beside some 5 ms for the count itself; and what each thing in it
# takes.
MOST = 15_000_000
_STRING = 80
_NEW_KEY = 230
_BRACKET = 105
_COMMA = 25
_FLOAT = 380
_EXTREME_FLOAT = 10_000
# What the lenient decoder takes for the same, more than once; and what it takes to look for halves of characters.
_LENIENTLY = 6
_HALVES = 1_000
# A float of such a magnitude is read by an algorithm of arbitrary precision.
_EXTREME = re.compile(rb"[eE][+-]?[0-9]{3}")
# A longer number is converted in quadratic time.
_LONGEST_NUMBER = b"0" * 400
_NUMBERS = bytes.maketrans(b"0123456789", b"0" * 10)
_NOT_STRUCTURAL = bytes(byte for byte in range(256) if byte not in b'{[,:"')
# Of the strings, at least so many are looked at: one in so many, which is a prime, so that no period hides the keys.
_SAMPLE = 1_000
_STRIDES = (13, 31, 61, 127, 251)
# What is gone through one by one: things that are said, at some 10 microseconds each, and fields and values.
_MOST_PIECES = 1_000
_MOST_VALUES = 10_000
_PIECES = ("content", "tool_calls", "reasoning_details", "thinking")
_MESSAGES = ("delta", "message")
# What is gone through to the last value.
_LOOKED_THROUGH = ("usage", "error", "errors", "Error", "fault", "base_resp", "x_groq")


class Outline(NamedTuple):
    """What a JSON text is made of."""

    outside: bytes
    """All that stands outside of its strings."""
    price: int
    """Nanoseconds that it takes at worst to decode it and to encode it again."""
    values: int

    most: int = MOST

    def is_costly(self, *, leniently: bool = False, halves: bool = False) -> bool:
        """Whether that is too long: strictly or leniently, with halves of characters that must be looked for or not."""
        price = self.price * (_LENIENTLY if leniently else 1) + self.values * (_HALVES if halves else 0)
        return price > self.most


def may_be_costly(data: bytes, most: int) -> bool:
    """A first, quick look: whether the price of a JSON text can exceed this, extreme floats apart."""
    structural = len(data.translate(None, _NOT_STRUCTURAL))
    return structural * _FLOAT > most or _LONGEST_NUMBER in data.translate(_NUMBERS)


def outline_of(data: bytes, most: int = MOST) -> Outline:
    """The outline of a JSON text. Where it is certain to be too costly, it is told without looking any further."""
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
    brackets = outside.count(b"{") + outside.count(b"[")
    commas, keys = outside.count(b","), outside.count(b":")
    floats = outside.count(b".") + outside.count(b"e") + outside.count(b"E")
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
    """Which share of the keys was not seen before, by a sample of strings, each with what stands behind it."""
    keys = [string for string, behind in sample if behind.lstrip()[:1] == b":"]
    return len(set(keys)) / len(keys) if keys else 1.0


def is_intricate(values: Iterable[object]) -> bool:
    """Whether an event that holds these values has more in it than can be gone through one by one."""
    count = _Count()
    return not all(map(count.has_room_for, values))


class _Count:
    """How many pieces and how many other values there may still be."""

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
        """The fields of an object, those of objects in it (which are merged, field by field), and what is looked
        through."""
        waiting = [fields]
        while waiting and self._values >= 0:
            found = waiting.pop()
            self._values -= len(found)
            if self._values >= 0:
                waiting += [value for value in found.values() if type(value) is dict]
        for name in _LOOKED_THROUGH:
            if name in fields:
                self._look_through(fields[name])

    def _look_through(self, value: object) -> None:
        waiting = [value]
        while waiting and self._values >= 0:
            found = waiting.pop()
            if isinstance(found, dict):
                self._values -= len(found)
                waiting += found.values() if self._values >= 0 else ()
            elif isinstance(found, list):
                self._values -= len(found)
                waiting += found if self._values >= 0 else ()
