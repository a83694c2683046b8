"""Members: every value in the JSON of an event, with its path, and where in the bytes it stands.

It follows brackets and strings, and asks for nothing else: what is not quite JSON can be followed too.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from penstock.core.dialects.dialect import JsonPath

_TOKEN = re.compile(rb'\s*(?:"((?:[^"\\]|\\.)*)"|([{\[])|([}\]])|([,:])|([^\s,:{}\[\]"]+))', re.DOTALL)
_OPENING = re.compile(rb"[{\[]")
_LINE_END = re.compile(rb"[\r\n]")


class JsonSpan(Struct, frozen=True):
    """A value of an event's JSON: the path to it, and where it begins and ends; in an object, with its key."""

    path: JsonPath
    start: int
    end: int


def members_of(data: bytes, offset: int) -> Iterator[JsonSpan]:
    """All values of the JSON that an event holds, as far as it can be followed; what is in another comes before it."""
    found = _OPENING.search(data, offset)
    line_end = end_of_line(data, offset)
    if found is not None and (found.start() < line_end or not data[line_end : found.start()].strip()):
        yield from _walk(data, found.start())


def _walk(data: bytes, position: int) -> Iterator[JsonSpan]:
    path: list[str | int] = []
    begun: list[int] = []  # of each value that is open, with its key
    key: tuple[str, int] | None = None
    while (token := _TOKEN.match(data, position)) is not None:
        string, opening, closing, mark, _ = token.groups()
        start, position = token.start() + len(token[0]) - len(token[0].lstrip()), token.end()
        in_object = bool(path) and isinstance(path[-1], str)
        if mark is not None:
            if mark == b"," and path and not in_object:
                path[-1] = int(path[-1]) + 1
        elif string is not None and in_object and key is None:
            key = string.decode(errors="replace"), start
            path[-1] = key[0]
        else:
            if closing is None:
                begun.append(key[1] if key is not None else start)
                key = None
            if opening is not None:
                path.append("" if opening == b"{" else 0)
                continue
            if closing is not None:
                if not path:
                    return
                path.pop()
            yield JsonSpan(tuple(path), begun.pop(), position)
            if not path:
                return


def leads(wanted: JsonPath, path: JsonPath) -> bool:
    """Whether a path is one that is wanted."""
    return len(wanted) == len(path) and all(want in ("*", step) for want, step in zip(wanted, path, strict=True))


def end_of_line(data: bytes, offset: int) -> int:
    """Where the line ends that a place is on."""
    found = _LINE_END.search(data, offset)
    return found.start() if found is not None else len(data)
