"""DefectLocator: finds the exact bytes of a defect within its event.

The reader reports the event and the line of a defect. Exact positions would slow down every stream, so they are
computed here, afterwards, and only for output to people. Defects that any dialect may have are found by patterns in the
bytes; others by JSON paths (`defect_paths.py`). If neither matches, or if something is missing rather
than wrong, the position is the whole line.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from penstock import Fault, Repair, RepairCount
from penstock.cli.inspection.defect_paths import GROUP, NAMED, PATHS
from penstock.cli.inspection.json_spans import JsonPath, JsonSpan, end_of_line, json_spans, path_matches

_LINE_START = re.compile(rb"\r\n|\r|\n")
_FIELD = re.compile(rb"[^:\r\n]*:")
_PREFIX = re.compile(rb"data[ \t]*:[ \t]*", re.IGNORECASE)
_NEXT = re.compile(rb"\s*(?:data[ \t]*:)?\s*\{")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_INCOMPLETE = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}"')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_NOT_FINITE = re.compile(rb"-?(?:NaN|Infinity|inf)", re.IGNORECASE)

# Defects whose position is the end of the stream, because something is missing there.
_AT_THE_END = frozenset(("no-done", "no-final-blank-line", "no-final-newline", "array-unclosed"))

# How many bytes before an event are searched.
_MAX_LOOKBACK = 65_536


class DefectSpan(Struct, frozen=True):
    """The position of a defect. `length` is None if it is unknown."""

    offset: int
    length: int | None
    line: int


class DefectLocator:
    """Locates the defects of one stream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        # A cache for the last event: its JSON values, and those that match a path.
        self._offset = -1
        self._members: dict[JsonPath, JsonSpan] = {}
        self._matching: dict[JsonPath, list[JsonSpan]] = {}

    def locate(self, defect: Repair | RepairCount | Fault) -> DefectSpan:
        """The position of a defect."""
        data, offset = self._data, defect.offset
        start, end = self._find(defect) or (offset, end_of_line(data, offset))
        lines = len(_LINE_START.findall(data, min(start, offset), max(start, offset)))
        if start == len(data) > offset and data.endswith((b"\r", b"\n")):
            lines -= 1  # no line starts after the last line end
        return DefectSpan(start, end - start, defect.line + (lines if start >= offset else -lines))

    def _find(self, defect: Repair | RepairCount | Fault) -> tuple[int, int] | None:
        code, offset, data = defect.code, defect.offset, self._data
        if code in _AT_THE_END:
            return len(data), len(data)
        if code in _BY_BYTES:
            return _BY_BYTES[code](data, offset, end_of_line(data, offset))
        detail = defect.message if isinstance(defect, Fault) else defect.detail
        named = [(name,) for name in detail.split(", ")] if code in NAMED else []
        for path in (*named, *PATHS.get(code, ())):
            candidates = self._values_at(offset, path)
            if candidates:
                quoted = detail.encode(errors="replace")
                best = next((member for member in candidates if quoted in self._context(member)), candidates[0])
                return best.start, best.end
        return None

    def _values_at(self, offset: int, path: JsonPath) -> list[JsonSpan]:
        """The JSON values of an event that match a path."""
        if offset != self._offset:
            self._offset, self._matching = offset, {}
            self._members = {member.path: member for member in json_spans(self._data, offset)}
        if path not in self._matching:
            self._matching[path] = [member for member in self._members.values() if path_matches(path, member.path)]
        return self._matching[path]

    def _context(self, member: JsonSpan) -> bytes:
        """The bytes that a detail may quote: the value, or the item of its group (such as a tool call)."""
        if GROUP in member.path:
            member = self._members[member.path[: member.path.index(GROUP) + 2]]
        return self._data[member.start : member.end]


Finder: TypeAlias = Callable[[bytes, int, int], tuple[int, int] | None]
"""Gets the stream, and the start and end of the line."""


def _bom(_data: bytes, start: int, _end: int) -> tuple[int, int]:
    return start, start + 3


def _found_by(find: Callable[[bytes, int, int], re.Match[bytes] | None]) -> Finder:
    """Finds what a pattern matches."""

    def finder(data: bytes, start: int, end: int) -> tuple[int, int] | None:
        match = find(data, start, end)
        return match.span() if match is not None else None

    return finder


def _bracket(_data: bytes, start: int, end: int) -> tuple[int, int]:
    """The first byte of the JSON, before which `data:` is missing."""
    return start, min(start + 1, end)


def _line_before(data: bytes, start: int, _end: int) -> tuple[int, int] | None:
    """The `data:` on a line of its own, before this one."""
    rest = data[max(0, start - 200) : start].rstrip()
    line_start = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
    at = max(0, start - 200) + line_start
    match = _PREFIX.match(data, at)
    return (at, at + len(rest) - line_start) if match is not None else None


def _second_prefix(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    first = _PREFIX.match(data, start, end)
    second = _PREFIX.match(data, first.end(), end) if first is not None else None
    return (second.start(), second.start() + len(second[0].rstrip())) if second is not None else None


def _value(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The value after `data:`."""
    match = _PREFIX.match(data, start, end)
    return (match.end(), end) if match is not None and match.end() < end else None


def _object_boundary(data: bytes, start: int, _end: int) -> tuple[int, int] | None:
    """The boundary between two objects."""
    whole = next((member for member in json_spans(data, start) if not member.path), None)
    match = _NEXT.match(data, whole.end) if whole is not None else None
    return (match.start() - 1, match.end()) if match is not None else None


def _not_utf8(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    try:
        data[start:end].decode()
    except UnicodeDecodeError as error:
        return start + error.start, start + error.end
    return None


def _not_finite(data: bytes, start: int, _end: int) -> tuple[int, int] | None:
    for member in json_spans(data, start):
        value = data[member.start : member.end].rpartition(b":")[2].strip()
        if _NOT_FINITE.fullmatch(value):
            return member.end - len(value), member.end
    return None


def _unpaired_surrogate(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The first surrogate escape that is not part of a pair."""
    at = start
    while (match := _SURROGATE.search(data, at, end)) is not None:
        pair = _PAIR.match(data, match.start(), end)
        if pair is None:
            return match.span()
        at = pair.end()
    return None


def _lone_surrogate(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The unpaired surrogate that the defect is about: in this event, or the last one before it.

    A high surrogate at the end of this event may be completed by the next event. If an earlier one was already
    incomplete, the defect is about that one.
    """
    current, last, before = _unpaired_surrogate(data, start, end), None, max(0, start - _MAX_LOOKBACK)
    if current is not None and not _INCOMPLETE.match(data, current[0]):
        return current
    while (previous := _unpaired_surrogate(data, before, start)) is not None:
        last, before = previous, previous[1]
    return last if current is None or (last is not None and _INCOMPLETE.match(data, last[0])) else current


_field = _found_by(_FIELD.match)
_BY_BYTES: dict[str, Finder] = {
    "bom": _bom,
    "missing-blank-line": _field,
    "field-misspelled": _field,
    "unknown-field": _field,
    "error-field": _field,
    "json-on-next-line": _line_before,
    "no-data-prefix": _bracket,
    "json-lines": _bracket,
    "data-prefix-twice": _second_prefix,
    "done-misspelled": _value,
    "done-repeated": _value,
    "glued-events": _object_boundary,
    "invalid-utf8": _not_utf8,
    "raw-control-character": _found_by(_CONTROL.search),
    "non-finite-number": _not_finite,
    "split-surrogate": _unpaired_surrogate,
    "lone-surrogate": _lone_surrogate,
}
