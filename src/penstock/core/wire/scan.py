"""JsonScan: how far a JSON text has got, without parsing it.

A parser answers only "valid or not", and asking it again after each new line costs quadratic time. The scan carries
its state from one piece to the next, so that every byte is looked at once.
"""

import re

from msgspec import Struct

_OUTSIDE_STRING = re.compile(rb'[{}\[\]"]')
_INSIDE_STRING = re.compile(rb'["\\]')
_OPENING = b"{["


class JsonScan(Struct, eq=False, gc=False):
    """Follows brackets and strings through pieces of JSON text."""

    closed: int = 0
    deepest: int = 0
    depth: int = 0
    in_string: bool = False
    started: bool = False
    _escaped: bool = False

    @property
    def whole(self) -> bool:
        """Whether something was read and every bracket and string in it is closed."""
        return self.started and self.depth <= 0 and not self.in_string

    def feed(self, data: bytes) -> None:
        """Take in the next piece."""
        if self.in_string and not self._escaped and b'"' not in data and b"\\" not in data:
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
            if self.in_string:
                if self._escaped:
                    self._escaped = False
                    position += 1
                    continue
                found = _INSIDE_STRING.search(data, position)
                if found is None:
                    return end
                position = found.end()
                if found[0] == b'"':
                    self.in_string = False
                else:
                    self._escaped = True
                continue
            found = _OUTSIDE_STRING.search(data, position)
            if found is None:
                return end
            position = found.end()
            mark = found[0]
            if mark == b'"':
                self.in_string = True
            elif mark in _OPENING:
                self.depth += 1
                self.deepest = max(self.deepest, self.depth)
            else:
                self.depth -= 1
                if self.depth == 0:
                    self.closed += 1
                    return position
        return end
