"""JsonSpans: every value in the JSON of an event, with its path and its position in the bytes.

The scanner only follows brackets and strings, so that it also works on JSON with errors.
"""

import re
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

JsonPath: TypeAlias = tuple[str | int, ...]
"""The path of a value in JSON: keys and list indexes; `*` matches any of them."""
_TOKEN = re.compile(rb'\s*(?:"((?:[^"\\]|\\.)*)"|([{\[])|([}\]])|([,:])|([^\s,:{}\[\]"]+))', re.DOTALL)
_OPENING = re.compile(rb"[{\[]")
_LINE_END = re.compile(rb"[\r\n]")
# What may stand between the first line of an event and its JSON: blank lines, or further fields up to its data.
_BEFORE_JSON = re.compile(rb"\s*|(?:\r\n|\r|\n)(?:[^\r\n]+(?:\r\n|\r|\n))*data[ \t]*:[ \t]*", re.IGNORECASE)


class JsonSpan(Struct, frozen=True):
    """A JSON value: its path, and its start and end. In an object, the span includes the key."""

    path: JsonPath
    start: int
    end: int


def json_spans(data: bytes, offset: int) -> Iterator[JsonSpan]:
    """All values of an event's JSON, as far as it can be scanned. Nested values come before their container."""
    match = _OPENING.search(data, offset)
    line_end = end_of_line(data, offset)
    if match is not None and (match.start() < line_end or _BEFORE_JSON.fullmatch(data, line_end, match.start())):
        yield from _walk(data, match.start())


def _walk(data: bytes, position: int) -> Iterator[JsonSpan]:
    path: list[str | int] = []
    starts: list[int] = []  # of each open value, including its key
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
                starts.append(key[1] if key is not None else start)
                key = None
            if opening is not None:
                path.append("" if opening == b"{" else 0)
                continue
            if closing is not None:
                if not path:
                    return
                path.pop()
            yield JsonSpan(tuple(path), starts.pop(), position)
            if not path:
                return


def path_matches(pattern: JsonPath, path: JsonPath) -> bool:
    """Whether a path matches a pattern, in which `*` matches any step."""
    return len(pattern) == len(path) and all(each in ("*", step) for each, step in zip(pattern, path, strict=True))


def end_of_line(data: bytes, offset: int) -> int:
    """The end of the line that contains an offset."""
    match = _LINE_END.search(data, offset)
    return match.start() if match is not None else len(data)
