"""JsonScan: decides whether a JSON text that arrives in pieces is complete, without parsing it.

A parser answers only "valid or not", and calling it again after each new line takes quadratic time. The scan keeps
its state from one piece to the next, so that it reads every byte once.

A piece may have a megabyte, chosen by a provider. Long pieces are scanned with methods of `bytes` only, which take a
few milliseconds for any content. A loop over their brackets and quotes would take most of a second.

A backslash before a quote or before another backslash escapes it, in strings and outside of them. JSON has no backslash
outside of a string, so one rule for both is enough, and it does not depend on how a text is split.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from operator import add

from msgspec import Struct

_OUTSIDE_STRING = re.compile(rb'[{}\[\]"\\]')
_INSIDE_STRING = re.compile(rb'["\\]')
_OPENING = b"{["
_ESCAPABLE = b'"\\'
# From this length on, `feed` does not loop over brackets and quotes: the loop takes longer for most content.
_LONG = 32
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"{}[]")
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'{}[]"')
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b'{}[]"\\/bfnrtu')
# The change of depth by each byte: 1 for an opening bracket, -1 for a closing one.
_STEPS = [(byte in b"{[") - (byte in b"}]") for byte in range(256)]
_BLOCK = 4_096
# Bytes for each quote: if a piece has more quotes than that, most of them are removed before it is split at them.
_DENSE = 16
_OPENS = (b"{", b"[")
_CLOSES = (b"}", b"]")
# Eight brackets as the bits of a byte, 1 for an opening one: the change of depth after them, and its minimum.
_AS_BITS = bytes.maketrans(b"()", b"10")
_PATHS = [list(accumulate(1 if byte >> bit & 1 else -1 for bit in range(7, -1, -1))) for byte in range(256)]
_LEVELS = [path[-1] for path in _PATHS]
_LOWEST = [min(path) for path in _PATHS]
# The number of bytes that are split at their quotes at a time.
_CUT_AT_ONCE = 65_536
_AS_ROUND = bytes.maketrans(b"{[}]", b"(())")


class JsonScan(Struct, eq=False, gc=False):
    """Tracks the brackets and strings of a JSON text that arrives in pieces."""

    closed: int = 0
    depth: int = 0
    in_string: bool = False
    started: bool = False
    _escaped: bool = False
    _unbalanced: bool = False  # a bracket was closed that was not open; `closed` is not counted after that

    @property
    def whole(self) -> bool:
        """Whether something was read and every bracket and string in it is closed."""
        return self.started and self.depth <= 0 and not self.in_string

    def feed(self, data: bytes) -> None:
        """Scan the next piece."""
        if self.in_string and not self._escaped and b'"' not in data and b"\\" not in data:
            return
        if len(data) >= _LONG:
            self._feed_long(data)
            return
        position = 0
        while position < len(data):
            position = self.advance(data, position)

    def advance(self, data: bytes, position: int) -> int:
        """Scan from `position` until the outermost bracket closes or the data ends; return where that is."""
        if not self.started:
            self.started = bool(data[position:].strip())
        end = len(data)
        while position < end:
            if self._escaped:
                self._escaped = False
                if data[position] in _ESCAPABLE:
                    position += 1
                    continue
            match = (_INSIDE_STRING if self.in_string else _OUTSIDE_STRING).search(data, position)
            if match is None:
                return end
            position = match.end()
            mark = match[0]
            if mark == b"\\":
                self._escaped = True
            elif mark == b'"':
                self.in_string = not self.in_string
            elif mark in _OPENING:
                self.depth += 1
            else:
                self.depth -= 1
                if self.depth < 0:
                    self._unbalanced = True
                elif self.depth == 0:
                    self.closed += not self._unbalanced
                    return position
        return end

    def end_string(self, data: bytes, position: int) -> int:
        """Scan from `position`, inside a string, until the string or the data ends; return where that is."""
        while position < len(data) and self.in_string:
            if self._escaped:
                self._escaped = False
                position += data[position] in _ESCAPABLE
                continue
            match = _INSIDE_STRING.search(data, position)
            if match is None:
                return len(data)
            position = match.end()
            self._escaped = match[0] == b"\\"
            self.in_string = self._escaped
        return position

    def _feed_long(self, data: bytes) -> None:
        if not self.started:
            self.started = bool(data.strip())
        if self._escaped and data[0] in _ESCAPABLE:
            data = data[1:]
        self._escaped = False
        if b"\\" in data:
            data = data.replace(b"\\\\", b"  ")
            self._escaped = data.endswith(b"\\")
            data = data.replace(b'\\"', b"  ")
        if data.count(b'"') > len(data) // _DENSE:
            data = _structure(data)
        for start in range(0, len(data), _BLOCK):
            parts = data[start : start + _BLOCK].split(b'"')
            brackets = b"".join(parts[self.in_string :: 2]).translate(None, _NO_BRACKETS)
            self.in_string ^= len(parts) % 2 == 0
            if brackets:
                self._pass_brackets(brackets)

    def _pass_brackets(self, brackets: bytes) -> None:
        """Update the depth, and how often the outermost bracket was closed. It counts to two: no caller needs more."""
        if self.closed < 2 and not self._unbalanced and self._may_close(brackets):
            depths = list(accumulate(map(_STEPS.__getitem__, brackets), initial=self.depth))[1:]
            if -1 in depths:
                self._unbalanced = True
                depths = depths[: depths.index(-1)]
            self.closed += depths.count(0)
        self.depth += sum(map(brackets.count, _OPENS)) - sum(map(brackets.count, _CLOSES))

    def _may_close(self, brackets: bytes) -> bool:
        """Whether the outermost bracket may be closed among these brackets."""
        if self.depth <= 0:
            return True
        # A pair `()` never lowers the minimum depth, so pairs are removed first: fewer brackets remain to be counted.
        brackets = brackets.translate(_AS_ROUND).replace(b"()", b"").replace(b"()", b"")
        return brackets.count(b")") >= self.depth and self._lowest(brackets) <= 0

    def _lowest(self, brackets: bytes) -> int:
        """The minimum depth after any of these round brackets. Eight brackets are looked up at a time."""
        bits = brackets.translate(_AS_BITS)
        bits += b"1" * (-len(bits) % 8)
        eights = int(bits, 2).to_bytes(len(bits) // 8, "big")
        before = accumulate(map(_LEVELS.__getitem__, eights), initial=self.depth)
        lowest: int = min(map(add, before, map(_LOWEST.__getitem__, eights)))
        return lowest


def unescaped(data: bytes) -> bytes:
    """A JSON text with spaces for its escaped quotes and backslashes: each remaining quote begins or ends a string.

    As many bytes as before: `replace` is slower if it has to count first.
    """
    return data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ") if b"\\" in data else data


def _structure(data: bytes) -> bytes:
    """The brackets and quotes of an `unescaped` JSON text, without most quotes.

    Whether a bracket is in a string depends on the number of quotes before it, odd or even. So two quotes with no
    bracket between them can be left out. That leaves few: those around the strings that contain brackets.
    """
    return data.translate(None, _NO_STRUCTURE).replace(b'""', b"")


def unquoted(data: bytes) -> Iterator[list[bytes]]:
    """An `unescaped` JSON text, split at its quotes: alternately the bytes outside of strings and a string.

    It is split in blocks, each of which begins and ends outside of strings. Splitting some megabytes at once takes
    three times as long, because the pieces do not fit into the processor's cache.
    """
    start = 0
    while start < len(data):
        end = start + _CUT_AT_ONCE
        parts = data[start:end].split(b'"')
        if len(parts) % 2 == 0:  # the block ends in a string
            rest = data[end : data.find(b'"', end) + 1 or len(data)]
            first, *behind = rest.split(b'"')
            parts[-1] += first
            parts += behind
            end += len(rest)
        yield parts
        start = end


def outside_strings(data: bytes) -> bytes:
    """The bytes outside of the strings of a JSON text."""
    return b"".join([b"".join(parts[::2]) for parts in unquoted(unescaped(data))])


def marks_of(data: bytes) -> bytes:
    """A JSON text with the same brackets and strings, but fewer bytes. A backslash is followed by what it escapes."""
    return data.translate(None, _NO_MARKS)


def brackets_of(data: bytes) -> bytes:
    """The brackets outside of the strings of a JSON text."""
    return b"".join([b"".join(parts[::2]) for parts in unquoted(_structure(unescaped(data)))])


def is_deeper(outside: bytes, most: int) -> bool:
    """Whether brackets are nested deeper than `most`, or more than `most` of them are not closed."""
    brackets = outside.translate(_AS_ROUND, _NO_BRACKETS)
    for _ in range(most):
        inner = brackets.replace(b"()", b"")
        if len(inner) == len(brackets):
            break
        brackets = inner
        most -= 1
    return brackets.count(b"(") > most
