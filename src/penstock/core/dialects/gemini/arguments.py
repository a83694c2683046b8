"""PartialArguments: the arguments of a function call that arrive value by value, as JSON text.

With streamed arguments, Gemini sends pairs of a path and a value, such as `$.stops[0].port` and `"Brest"`. A text may
arrive in several pairs with the same path: `willContinue` says that more of it follows. The model writes its arguments
from the beginning to the end. So each value can be written as soon as it arrives, and a call that is cut off stays
incomplete JSON, which no client executes.

Pairs that no JSON text has in this order raise `ValueError`: a value that returns to an object that is complete, a gap
in an array, two values at one path.
"""

import json
import re
from typing import TypeAlias

import msgspec

Path: TypeAlias = tuple[str | int, ...]

_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(.)")
_MAX_PATH = 1_000
_MAX_DEPTH = 64
# Far above what a real call has; it limits the memory of one stream.
_MAX_MEMBERS = 10_000


class PartialArguments:
    """Writes the arguments of one call."""

    def __init__(self) -> None:
        self._open: list[str | int] = []  # the path of the innermost open container
        self._members: list[set[str | int]] = []  # what the root and each open container have so far
        self._arrays: list[bool] = []  # whether each of them is an array
        self._text: Path | None = None  # the path of the open text
        self._count = 0

    @property
    def open_text(self) -> bool:
        """Whether a text is not complete."""
        return self._text is not None

    def text(self, path: str, piece: str, *, more: bool) -> str:
        """Add a piece of text; returns the JSON text that it becomes."""
        steps = parse_path(path)
        continues = self._text == steps
        out = "" if continues else self._enter(steps) + '"'
        self._text = steps if more else None
        return out + json.dumps(piece, ensure_ascii=False)[1:-1] + ("" if more else '"')

    def value(self, path: str, value: object) -> str:
        """Add a value that is complete; returns the JSON text that it becomes."""
        return self._enter(parse_path(path)) + msgspec.json.encode(value).decode()

    def close(self) -> str:
        """The end of the JSON text."""
        if not self._members:
            return "{}"
        return self._end_text() + self._leave(0) + "}"

    def _enter(self, path: Path) -> str:
        """The JSON text before the value at this path."""
        if not path or len(path) > _MAX_DEPTH:
            raise ValueError("a path that names no member")
        out = self._end_text()
        if not self._members:
            self._begin(is_array=False)
            out += "{"
        common = 0
        while common < min(len(self._open), len(path) - 1) and self._open[common] == path[common]:
            common += 1
        out += self._leave(common)
        for step in range(common, len(path)):
            out += self._member(path[step])
            if step < len(path) - 1:
                is_array = isinstance(path[step + 1], int)
                self._open.append(path[step])
                self._begin(is_array=is_array)
                out += "[" if is_array else "{"
        return out

    def _begin(self, *, is_array: bool) -> None:
        self._members.append(set())
        self._arrays.append(is_array)

    def _member(self, key: str | int) -> str:
        """The JSON text before a new member of the innermost container."""
        members, is_array = self._members[-1], self._arrays[-1]
        self._count += 1
        if key in members or self._count > _MAX_MEMBERS or isinstance(key, int) != is_array:
            raise ValueError(f"a second value, or one of another kind, at {key!r}")
        if is_array and key != len(members):
            raise ValueError(f"the item {key} of an array that has {len(members)}")
        comma = "," if members else ""
        members.add(key)
        return comma if is_array else f"{comma}{json.dumps(key, ensure_ascii=False)}:"

    def _leave(self, depth: int) -> str:
        """End the containers that are deeper than this."""
        out = ""
        while len(self._open) > depth:
            self._open.pop()
            self._members.pop()
            out += "]" if self._arrays.pop() else "}"
        return out

    def _end_text(self) -> str:
        ended, self._text = self._text is not None, None
        return '"' if ended else ""


def parse_path(path: str) -> Path:
    """The keys and indexes of a JSON path; raises `ValueError`."""
    if not path.startswith("$") or len(path) > _MAX_PATH:
        raise ValueError("a path that does not begin with $")
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ValueError(f"a path that cannot be read: {path[:80]}")
        name, index, quoted, double = step.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else _ESCAPED.sub(r"\1", quoted if quoted is not None else double))
        position = step.end()
    return tuple(steps)
