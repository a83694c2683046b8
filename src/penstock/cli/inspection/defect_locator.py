"""DefectLocator: the very bytes that a defect is about, found in the event that it was met in.

The reader says in which event, and on which line, a defect stands: to know more would cost every stream. Whoever shows
a stream to a person looks for the rest here, afterwards: by the bytes, for defects that every dialect may have, and by
the places in an event's JSON that the dialect names. Where nothing better is known, or what is wrong is that something
is not there, it is the line.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from penstock import Fault, Repair, RepairCount
from penstock.cli.inspection.json_spans import JsonSpan, end_of_line, leads, members_of
from penstock.core.dialects.dialect import DefectPlaces, JsonPath
from penstock.core.dialects.registry import find_dialect

_LINE_START = re.compile(rb"\r\n|\r|\n")
_FIELD = re.compile(rb"[^:\r\n]*:")
_PREFIX = re.compile(rb"data[ \t]*:[ \t]*", re.IGNORECASE)
_NEXT = re.compile(rb"\s*(?:data[ \t]*:)?\s*\{")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_WAITING = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}"')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_NOT_FINITE = re.compile(rb"-?(?:NaN|Infinity|inf)", re.IGNORECASE)

# What is not there is missed at the end.
_AT_THE_END = frozenset(("no-done", "no-final-blank-line", "no-final-newline", "array-unclosed"))


# How far back something is looked for.
_FAR = 65_536


class DefectSpan(Struct, frozen=True):
    """So many bytes, if that is known, from where, on which line."""

    offset: int
    length: int | None
    line: int


class DefectLocator:
    """Where in a stream its defects are."""

    def __init__(self, data: bytes, dialect: str) -> None:
        self._data = data
        self._places = find_dialect(dialect).places or DefectPlaces(paths={})
        # The values of the event that was looked at last, and those of them that were looked for.
        self._offset = -1
        self._members: dict[JsonPath, JsonSpan] = {}
        self._led: dict[JsonPath, list[JsonSpan]] = {}

    def spot(self, found: Repair | RepairCount | Fault) -> DefectSpan:
        """Where one is."""
        data, offset = self._data, found.offset
        start, end = self._find(found) or (offset, end_of_line(data, offset))
        lines = len(_LINE_START.findall(data, min(start, offset), max(start, offset)))
        if start == len(data) > offset and data.endswith((b"\r", b"\n")):
            lines -= 1  # behind the last line end there is no line
        return DefectSpan(start, end - start, found.line + (lines if start >= offset else -lines))

    def _find(self, found: Repair | RepairCount | Fault) -> tuple[int, int] | None:
        code, offset, data = found.code, found.offset, self._data
        if code in _AT_THE_END:
            return len(data), len(data)
        if code in _BY_BYTES:
            return _BY_BYTES[code](data, offset, end_of_line(data, offset))
        detail = found.message if isinstance(found, Fault) else found.detail
        places = self._places
        paths = tuple((name,) for name in detail.split(", ")) if code in places.named else places.paths.get(code, ())
        for path in paths:
            candidates = self._leading(offset, path)
            if candidates:
                told = detail.encode(errors="replace")
                best = next((member for member in candidates if told in self._near(member)), candidates[0])
                return best.start, best.end
        return None

    def _leading(self, offset: int, path: JsonPath) -> list[JsonSpan]:
        """The values of an event to which a path leads."""
        if offset != self._offset:
            self._offset, self._led = offset, {}
            self._members = {member.path: member for member in members_of(self._data, offset)}
        if path not in self._led:
            self._led[path] = [member for member in self._members.values() if leads(path, member.path)]
        return self._led[path]

    def _near(self, member: JsonSpan) -> bytes:
        """What a detail may be about: the value, or the item of the group that it is in."""
        group = self._places.group
        if group and group in member.path:
            member = self._members[member.path[: member.path.index(group) + 2]]
        return self._data[member.start : member.end]


# Each gets the stream, and where the line begins and ends.


def _bom(_data: bytes, start: int, _end: int) -> tuple[int, int]:
    return start, start + 3


def _field(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The name of the field, and its colon."""
    found = _FIELD.match(data, start, end)
    return found.span() if found is not None else None


def _bracket(_data: bytes, start: int, end: int) -> tuple[int, int]:
    """Where `data:` should stand before it."""
    return start, min(start + 1, end)


def _line_before(data: bytes, start: int, _end: int) -> tuple[int, int] | None:
    """The `data:` that stands alone."""
    rest = data[max(0, start - 200) : start].rstrip()
    begins = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
    at = max(0, start - 200) + begins
    found = _PREFIX.match(data, at)
    return (at, at + len(rest) - begins) if found is not None else None


def _second_prefix(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    first = _PREFIX.match(data, start, end)
    second = _PREFIX.match(data, first.end(), end) if first is not None else None
    return (second.start(), second.start() + len(second[0].rstrip())) if second is not None else None


def _value(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """What stands behind `data:`."""
    found = _PREFIX.match(data, start, end)
    return (found.end(), end) if found is not None and found.end() < end else None


def _seam(data: bytes, start: int, _end: int) -> tuple[int, int] | None:
    """Where one object ends and the next begins."""
    whole = next((member for member in members_of(data, start) if not member.path), None)
    found = _NEXT.match(data, whole.end) if whole is not None else None
    return (found.start() - 1, found.end()) if found is not None else None


def _not_utf8(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    try:
        data[start:end].decode()
    except UnicodeDecodeError as error:
        return start + error.start, start + error.end
    return None


def _control(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    found = _CONTROL.search(data, start, end)
    return found.span() if found is not None else None


def _not_finite(data: bytes, start: int, _end: int) -> tuple[int, int] | None:
    for member in members_of(data, start):
        value = data[member.start : member.end].rpartition(b":")[2].strip()
        if _NOT_FINITE.fullmatch(value):
            return member.end - len(value), member.end
    return None


def _half(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The first half of a character that is not beside the other."""
    at = start
    while (found := _SURROGATE.search(data, at, end)) is not None:
        pair = _PAIR.match(data, found.start(), end)
        if pair is None:
            return found.span()
        at = pair.end()
    return None


def _lone_half(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The half that was waiting for the other: in this event, or the last one before.

    One that stands at the end of this event waits for the next: where one was waiting already, that one is meant.
    """
    here, last, before = _half(data, start, end), None, max(0, start - _FAR)
    if here is not None and not _WAITING.match(data, here[0]):
        return here
    while (again := _half(data, before, start)) is not None:
        last, before = again, again[1]
    return last if here is None or (last is not None and _WAITING.match(data, last[0])) else here


_BY_BYTES: dict[str, Callable[[bytes, int, int], tuple[int, int] | None]] = {
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
    "glued-events": _seam,
    "invalid-utf8": _not_utf8,
    "raw-control-character": _control,
    "non-finite-number": _not_finite,
    "split-surrogate": _half,
    "lone-surrogate": _lone_half,
}
