"""Openings: the first events of an answer, recognised by their bytes.

`OpeningTemplate` is the template of the first events of the answers of one target. `learn_opening` makes and proves it.
The complete argument why it may replace the parser is in `core/fast/__init__.py`.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from penstock.core.fast.format import MISSING, OpeningField, OpeningFormat, SlowRead, value_at
from penstock.core.fast.matcher import TextMatcher
from penstock.core.fast.templates import (
    VALUES,
    DeltaTemplate,
    alternating,
    decoded,
    find_slot,
    literals_of,
    substitute_for,
)
from penstock.core.hub.events import Event, Extra, Repair
from penstock.core.wire.frame import Frame

# One event with one `data:` line, and perhaps an `event:` line. And its last bracket, with the spaces before it.
_ONE_LINE = re.compile(rb"(?:event:[^\r\n]*\n)?data:([^\r\n]*)\n\n")
_LAST_BRACKET = re.compile(rb" *\}\n\n")
# The values that a field may have. None of them can end a JSON string or a JSON number.
_PATTERNS = {
    "token": rb"[\w.:-]{1,128}",
    "seconds": rb"[1-9][0-9]{8,10}",
    "padding": VALUES["padding"],
    "count": rb"0|[1-9][0-9]{0,8}",
}
# A longer opening is not learned: there is one per target, and each byte costs a microsecond and ten bytes of memory to
# compile into a pattern.
_MAX_OPENING = 4_096
# An opening that matched this many streams is learned again as soon as it changes.
_ESTABLISHED = 16


class Opening(Struct, eq=False):
    """The opening of an answer, recognised by its bytes.

    The first of its `events` is a `Start`; the others have no id, no usage and no audio. `matcher` takes the text
    deltas that should follow.
    """

    events: list[Event]
    raw: bytes
    """Its bytes."""
    frames: int
    """The number of its events on the wire."""
    tier: object
    """The service tier that it names, or None."""
    matcher: TextMatcher


class FirstEvents(NamedTuple):
    """The first events of a stream that the slow path has read, before its text."""

    raw: bytes
    events: list[Event]


def first_events(read: SlowRead) -> FirstEvents | None:
    """The events before the text in a first read; None if anything but text follows them, or if there is a defect."""
    frames = [frame_bytes(item) for item in read.items if isinstance(item, Frame)]
    opened, events = read.opened
    if not events or opened + read.texts != len(read.items) or Repair in map(type, read.events):
        return None
    return FirstEvents(b"".join(frames[:opened]), read.events[:events]) if b"".join(frames) == read.data else None


def frame_bytes(frame: Frame) -> bytes:
    """The bytes of a frame, if its lines are in the usual form."""
    name = b"event: %b\n" % frame.event.encode() if frame.event else b""
    return b"%bdata:%b\n" % (name, frame.data)


class OpeningTemplate:
    """The template of the first events of the answers of one target, learned from one answer."""

    __slots__ = ("_known", "_matches", "_misses")

    def __init__(self) -> None:
        self._known: _KnownOpening | None = None
        self._matches = self._misses = 0

    def match(self, data: bytes) -> Opening | None:
        """The opening at the start of the data, or None if it does not match. More bytes may follow it."""
        return self._known.read(data) if self._known is not None else None

    def confirm(self) -> None:
        """Count a match: the text that followed the opening matched the template too."""
        self._matches += 1

    def learn(self, format: OpeningFormat, first: FirstEvents, template: DeltaTemplate) -> None:
        """Learn an opening that did not match, if it can be proved, and the template of the text that follows it."""
        if len(first.raw) + template.size > _MAX_OPENING or self.skips():
            return
        self._misses += 1
        self._matches = 0
        self._known = _proved(format, first, template)

    def skips(self) -> bool:
        """Whether an opening that did not match is not learned; then it is counted.

        An established opening is replaced at once. Otherwise only the 1st, 2nd, 4th, 8th, … miss is learned, so that a
        target whose answers all open differently costs little.
        """
        if self._matches >= _ESTABLISHED:
            self._misses = 0
        skipped = self._misses & (self._misses + 1) != 0  # the next one is no power of two
        self._misses += skipped
        return skipped


class _KnownOpening(NamedTuple):
    """A proved opening: the pattern of its bytes, and the template of the text deltas that follow it.

    `prefix` is the template's prefix, if there are `prefix_fields` as a format string with a placeholder for each: text
    deltas repeat these values of the opening. `padding` is the name of the field with the padding, or empty.
    """

    pattern: re.Pattern[bytes]
    format: OpeningFormat
    events: list[Event]
    frames: int
    tier: object
    prefix: bytes
    prefix_fields: list[str]
    padding: str
    template: DeltaTemplate

    def read(self, data: bytes) -> Opening | None:
        """The opening at the start of the data, or None if it does not match."""
        match = self.pattern.match(data)
        events = self.format.make(self.events, match.groupdict()) if match is not None else None
        if match is None or events is None:
            return None
        prefix = self.prefix % match.group(*self.prefix_fields) if self.prefix_fields else self.prefix
        matcher = TextMatcher(self.template, prefix, match[self.padding] if self.padding else b"")
        return Opening(events, match[0], self.frames, self.tier, matcher)


# The proof.


def _proved(format: OpeningFormat, first: FirstEvents, template: DeltaTemplate) -> _KnownOpening | None:
    """Prove an opening, and that text deltas repeat its values; None if that is impossible.

    Each value that text deltas repeat must occur exactly once in the prefix of the template. Then substitution proves
    the opening and the prefix, as for a text delta.
    """
    json, raw = _decoded_events(first.raw), first.raw
    tokens = _tokens(format, json[0], template.prefix) if json else None
    choice = format.choice(first.events)
    if tokens is None or choice is None or choice != template.make_event("").choice or not raw.isascii():
        return None
    if template.counted:
        return None
    fields = {field.name: field for field in format.fields}
    padded = [name for name in tokens if fields[name].kind == "padding"]
    if bool(padded) != (template.kind == "padding"):
        return None
    found = {name: find_slot(raw, str(fields[name].path[-1]), token, "text") for name, token in tokens.items()}
    slots = {name: slot for name, slot in found.items() if slot is not None}
    names = sorted(slots, key=lambda name: slots[name].start)
    ordered = [slots[name] for name in names]
    if not slots or len(slots) < len(found) or any(left.end > right.start for left, right in pairwise(ordered)):
        return None
    literals = literals_of(raw, ordered)
    probe = b"".join(alternating(literals, [slot.substitute for slot in ordered]))
    if not _differs_only(raw, probe, fields, {name: substitute_for(tokens[name]) for name in names}):
        return None
    prefix, prefix_fields = template.prefix, list[str]()
    if format.in_deltas:
        repeated = {name: token for name, token in tokens.items() if name not in padded}
        prefix_fields = sorted(repeated, key=lambda name: prefix.find(tokens[name]))
        prefix = _repeated_prefix(template, fields, repeated, prefix_fields)
        if not prefix:
            return None
    groups = [b"(?P<%b>%b)" % (name.encode(), _PATTERNS[fields[name].kind]) for name in names]
    escaped = [_escaped(literal, spaces=template.kind == "spaces") for literal in literals]
    pattern = re.compile(b"".join(alternating(escaped, groups)))
    tier, padding = _tier_of(first.events), padded[0] if padded else ""
    return _KnownOpening(pattern, format, first.events, len(json), tier, prefix, prefix_fields, padding, template)


def _tokens(format: OpeningFormat, opening: object, prefix: bytes) -> dict[str, bytes] | None:
    """The values of the fields of an opening, as bytes of its JSON; None if one has not the form of its kind."""
    tokens: dict[str, bytes] = {}
    for field in format.fields:
        value = value_at(opening, field.path)
        if field.kind in ("seconds", "count") and type(value) is int:
            token = b"%d" % value
        elif field.kind in ("token", "padding") and isinstance(value, str):
            token = b'"%b"' % value.encode()
        elif field.if_repeated or field.kind == "padding" or (field.kind == "count" and value in (MISSING, None)):
            continue
        else:
            return None
        if field.if_repeated and token not in prefix:
            continue
        if not re.fullmatch(_PATTERNS[field.kind], token.strip(b'"')):
            return None
        tokens[field.name] = token
    return tokens


def _repeated_prefix(
    template: DeltaTemplate, fields: Mapping[str, OpeningField], tokens: dict[str, bytes], names: list[str]
) -> bytes:
    """The prefix of text deltas, which repeat these fields, as a format string; empty if it cannot be proved."""
    prefix = template.prefix
    if not names or any(prefix.count(tokens[name]) != 1 for name in names):
        return b""
    format = prefix.replace(b"%", b"%%")
    for token in tokens.values():
        format = format.replace(token, b'"%b"' if token.startswith(b'"') else b"%b")
    rest = b"text" + template.suffix + template.sample + template.tail
    substitutes = {name: substitute_for(tokens[name]) for name in names}
    probe = format % tuple(substitute.strip(b'"') for substitute in substitutes.values()) + rest
    return format if _differs_only(prefix + rest, probe, fields, substitutes) else b""


def _differs_only(
    events: bytes, probe: bytes, fields: Mapping[str, OpeningField], substitutes: dict[str, bytes]
) -> bool:
    """Whether the JSON of the probe is that of the events, with these values in the fields of the first one.

    Each substitute must really be another value.
    """
    before, after = _decoded_events(events), _decoded_events(probe)
    if not before:
        return False
    for name, token in substitutes.items():
        *path, last = fields[name].path
        holder, new = value_at(before[0], tuple(path)), decoded(token)
        if value_at(holder, (last,)) in (MISSING, new):
            return False
        holder[last] = new
    return before == after


def _decoded_events(data: bytes) -> list[object]:
    """The JSON of each event; none if a part of the data is not an event with one line of JSON."""
    lines = list(_ONE_LINE.finditer(data))
    json = [decoded(line[1]) for line in lines]
    return json if b"".join(line[0] for line in lines) == data and None not in json else []


def _escaped(literal: bytes, *, spaces: bool) -> bytes:
    """A literal as a pattern. With `spaces` there may be any number of them before the last bracket of an event.

    No string of the JSON is open there, so they have no meaning.
    """
    if not spaces:
        return re.escape(literal)
    return rb" *\}\n\n".join(map(re.escape, _LAST_BRACKET.split(literal)))


def _tier_of(events: list[Event]) -> object:
    """The service tier that an opening with these events names, or None."""
    extras = (event.fields for event in events if isinstance(event, Extra) and event.place == "chunk")
    return next((fields["service_tier"] for fields in extras if "service_tier" in fields), None)
