"""Templates for the fast path: the constant bytes of text deltas and of openings, and the proof that they are right.

`learn_template` makes the template of one stream's text deltas. `OpeningTemplate` is the template of the first events
of the answers of one target: `learn_opening` makes it. The complete argument why a template may replace the parser is
at the top of `core/fast/passthrough.py`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from penstock.core.fast.format import (
    DeltaTemplate,
    Opening,
    OpeningField,
    OpeningFormat,
    PassThroughFormat,
    Path,
    TemplateSlot,
    TextEvent,
)
from penstock.core.hub.events import Event, Extra

_JSON = msgspec.json.Decoder()
# One SSE event with one `data:` line, and perhaps an `event:` line. And its last bracket, with the spaces before it.
_ONE_LINE = re.compile(rb"(?:event:[^\r\n]*\n)?data:([^\r\n]*)\n\n")
_LAST_BRACKET = re.compile(rb" *\}\n\n")
# The values that a field of an opening may have. None of them can end a JSON string or a JSON number.
_PATTERNS = {
    "token": rb"[\w.:-]{1,128}",
    "seconds": rb"[1-9][0-9]{8,10}",
    "padding": rb"[0-9A-Za-z]+",
    "count": rb"0|[1-9][0-9]{0,8}",
}
# A longer opening is not learned: there is one per target, and each byte costs a microsecond and ten bytes of memory to
# compile into a pattern.
_MAX_OPENING = 4_096
# An opening that matched this many streams is learned again as soon as it changes.
_ESTABLISHED = 16
# A longer event is not learned: the proof of a template decodes its JSON three times.
MAX_LEARNED = 65_536
_MISSING = object()


class OpeningTemplate:
    """The template of the first events of the answers of one target, learned from one answer."""

    __slots__ = ("_known", "_matches", "_misses")

    def __init__(self) -> None:
        self._known: KnownOpening | None = None
        self._matches = self._misses = 0

    def match(self, data: bytes) -> Opening | None:
        """The opening at the start of the data, or None if it does not match. More bytes may follow it."""
        return self._known.read(data) if self._known is not None else None

    def confirm(self) -> None:
        """Count a match: the text that followed the opening matched the template too."""
        self._matches += 1

    def learn(self, size: int, prove: "Callable[[], KnownOpening | None]") -> None:
        """Learn an opening that did not match, of this size, if it can be proved.

        An established opening is replaced at once. Otherwise only the 1st, 2nd, 4th, 8th, … miss is learned, so that a
        target whose answers all open differently costs little.
        """
        if size > _MAX_OPENING:
            return
        if self._matches >= _ESTABLISHED:
            self._misses = 0
        self._misses += 1
        if self._misses & (self._misses - 1) == 0:  # a power of two
            self._matches = 0
            self._known = prove()


class KnownOpening(NamedTuple):
    """A proved opening: the pattern of its bytes, and the template of the text deltas that follow it.

    `prefix` is the template's prefix, if there are `prefix_fields` as a format string with a placeholder for each: text
    deltas repeat these values of the opening.
    """

    pattern: re.Pattern[bytes]
    format: OpeningFormat
    events: list[Event]
    frames: int
    tier: object
    choice: int
    prefix: bytes
    prefix_fields: list[str]
    template: DeltaTemplate

    def read(self, data: bytes) -> Opening | None:
        """The opening at the start of the data, or None if it does not match."""
        match = self.pattern.match(data)
        made = self.format.make(self.events, match.groupdict()) if match is not None else None
        if match is None or made is None:
            return None
        prefix = self.prefix % match.group(*self.prefix_fields) if self.prefix_fields else self.prefix
        return Opening(*made, self.choice, match[0], self.frames, self.tier, self.template, prefix)


# The proof.


class _SlotValue(NamedTuple):
    """A value in the bytes of an event: its position, its path in the JSON, and a substitute for the proof.

    `slot` is None for the text. A value without a path has no meaning: any substitute leaves the JSON as it is.
    """

    start: int
    end: int
    path: Path
    substitute: object
    slot: TemplateSlot | None


def learn_template(
    format: PassThroughFormat, event: bytes, delta: TextEvent
) -> tuple[DeltaTemplate, int | None] | None:
    """The template of an event that was read as `delta`, and the counter of the next event; None if not proved."""
    line = _ONE_LINE.fullmatch(event) if len(event) <= MAX_LEARNED else None
    if line is None:
        return None
    try:
        decoded = _JSON.decode(line[1])
    except ValueError:
        return None
    values = _slot_values(format, event, decoded, delta)
    if not values or not _is_proved(event, values):
        return None
    literals = _literals(event, values)
    text = next(place for place, value in enumerate(values) if value.slot is None)
    prefix_slots = [value.slot for value in values[:text] if value.slot is not None]
    suffix, *rest_literals = literals[text + 1 :]
    suffix_slots = [value.slot for value in values[text + 1 :] if value.slot is not None]
    if not b"".join(literals).isascii() or any(slot.kind != "counter" for slot in prefix_slots):
        return None
    rest = {name: getattr(delta, name) for name in delta.__struct_fields__ if name not in ("choice", "text")}
    make: Callable[[str], TextEvent] = partial(type(delta), delta.choice, **rest)
    counts = [value for value in values if value.slot is not None and value.slot.kind == "counter"]
    template = DeltaTemplate(
        prefix=tuple(literals[: text + 1]),
        suffix=suffix,
        suffix_slots=tuple(zip(suffix_slots, rest_literals, strict=True)),
        lines=event.count(b"\n"),
        make_event=make,
        members=members_of(format, decoded, delta),
    )
    return template, int(event[counts[0].start : counts[0].end]) + 1 if counts else None


def members_of(format: PassThroughFormat, decoded: object, delta: TextEvent) -> dict[str, object]:
    """The JSON of a text delta without its text, padding and counters, which are members of the JSON object itself.

    Empty for a dialect whose writer does not follow the text: no other code uses it.
    """
    if format.repeated is None or not isinstance(decoded, dict):
        return {}
    slots = {format.text_path(delta)[0], *(slot.path[0] for slot in format.slots if slot.path)}
    return {name: value for name, value in decoded.items() if name not in slots}


def _slot_values(format: PassThroughFormat, event: bytes, decoded: object, delta: TextEvent) -> list[_SlotValue]:
    """The values of the text and of all slots, in the order of their bytes; empty if one is not where it should be."""
    path = format.text_path(delta)
    values = [_slot_value(event, path, b'"%b"' % delta.text.encode(), delta.text + ".", None)]
    for slot in format.slots:
        if slot.kind == "spaces":
            bracket = event.rfind(b"}")
            start = len(event[:bracket].rstrip(b" "))
            values.append(_SlotValue(start, bracket, (), " " * (bracket - start + 1), slot))
            continue
        member = value_at(decoded, slot.path)
        if member is _MISSING:
            continue
        if slot.kind == "padding" and isinstance(member, str):
            values.append(_slot_value(event, slot.path, b'"%b"' % member.encode(), member + "x", slot))
        elif slot.kind == "counter" and type(member) is int and member >= 0:
            values.append(_slot_value(event, slot.path, b"%d" % member, member + 1_000_003, slot))
        else:
            return []
    values.sort(key=lambda value: value.start)
    ordered = all(left.end <= right.start for left, right in pairwise(values))
    return values if ordered and values[0].start > 0 else []


def _slot_value(event: bytes, path: Path, token: bytes, substitute: object, slot: TemplateSlot | None) -> _SlotValue:
    """Find a value in an event, after the name of its member. `start` is 0 if it is not there."""
    key = b'"%b":' % str(path[-1]).encode()
    at = event.find(key)
    while at >= 0:
        at += len(key)
        at += event.startswith(b" ", at)
        if event.startswith(token, at):
            quote = token.startswith(b'"')
            return _SlotValue(at + quote, at + len(token) - quote, path, substitute, slot)
        at = event.find(key, at)
    return _SlotValue(0, 0, path, substitute, slot)


def _is_proved(event: bytes, values: list[_SlotValue]) -> bool:
    """Whether substituting all values in the bytes changes the JSON at their paths, and nowhere else."""
    substitutes = [str(value.substitute).encode() for value in values]
    probe = b"".join(alternating(_literals(event, values), substitutes))
    return _differs_only(event, probe, {value.path: value.substitute for value in values if value.path})


def _differs_only(event: bytes, probe: bytes, changes: dict[Path, object]) -> bool:
    """Whether the JSON of the probe is that of the event with these changes, each of which really is one.

    If there are several events, the changes are those of the first one.
    """
    decoded, changed = _decoded_events(event), _decoded_events(probe)
    if not decoded:
        return False
    for path, new in changes.items():
        holder: Any = value_at(decoded[0], path[:-1])
        if value_at(holder, path[-1:]) in (_MISSING, new):
            return False
        holder[path[-1]] = new
    return decoded == changed


def _decoded_events(data: bytes) -> list[object]:
    """The JSON of each event; none if a part of the data is not an event with one line of JSON."""
    lines = list(_ONE_LINE.finditer(data))
    if b"".join(line[0] for line in lines) != data:
        return []
    try:
        return [_JSON.decode(line[1]) for line in lines]
    except ValueError:
        return []


def value_at(value: Any, path: Path) -> Any:
    """The value at a path; `_MISSING` if there is none."""
    for step in path:
        if not (step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))):
            return _MISSING
        value = value[step]
    return value


def learn_opening(
    format: OpeningFormat, first: bytes, events: list[Event], template: DeltaTemplate
) -> KnownOpening | None:
    """Prove an opening: its first events, and the template of the text that follows it. None if it cannot be proved.

    Each value that text deltas repeat must occur exactly once in the prefix of the template. Then substitution proves
    the opening and the prefix, as for a text delta.
    """
    decoded = _decoded_events(first)
    (prefix,) = template.prefix
    tokens = _tokens(format, decoded[0], prefix) if decoded else None
    choice = format.choice(events)
    if tokens is None or choice is None or choice != template.make_event("").choice or not first.isascii():
        return None
    padded = {slot.name for slot, _ in template.suffix_slots if slot.kind == "padding"}
    fields = {field.name: field for field in format.fields}
    if padded != {name for name in tokens if fields[name].kind == "padding"}:
        return None
    substitutes = {name: _substitute_for(token) for name, token in tokens.items()}
    found = {name: _slot_value(first, fields[name].path, token, b"", None) for name, token in tokens.items()}
    names = sorted(tokens, key=lambda name: found[name].start)
    values = [found[name] for name in names]
    if not values or values[0].start == 0 or any(left.end > right.start for left, right in pairwise(values)):
        return None
    literals = _literals(first, values)
    probe = b"".join(alternating(literals, [substitutes[name].strip(b'"') for name in names]))
    if not _differs_only(first, probe, {fields[name].path: _decoded_token(substitutes[name]) for name in names}):
        return None
    prefix_fields: list[str] = []
    if format.in_deltas:
        prefix_fields = sorted(tokens.keys() - padded, key=lambda name: prefix.find(tokens[name]))
        repeated = _repeated_prefix(template, fields, tokens, substitutes, prefix_fields)
        if repeated is None:
            return None
        prefix = repeated
    groups = [b"(?P<%b>%b)" % (name.encode(), _PATTERNS[fields[name].kind]) for name in names]
    spaces = any(slot.kind == "spaces" for slot, _ in template.suffix_slots)
    pattern = b"".join(alternating([_escaped(literal, spaces=spaces) for literal in literals], groups))
    return KnownOpening(
        re.compile(pattern), format, events, len(decoded), _tier_of(events), choice, prefix, prefix_fields, template
    )


def _tier_of(events: list[Event]) -> object:
    """The service tier that an opening with these events names, or None."""
    extras = (event.fields for event in events if isinstance(event, Extra) and event.place == "chunk")
    return next((fields["service_tier"] for fields in extras if "service_tier" in fields), None)


def _repeated_prefix(
    template: DeltaTemplate,
    fields: Mapping[str, OpeningField],
    tokens: dict[str, bytes],
    substitutes: dict[str, bytes],
    names: list[str],
) -> bytes | None:
    """The prefix of text deltas, which repeat these fields, as a format string; None if it cannot be proved."""
    (prefix,) = template.prefix
    if not names or any(prefix.count(tokens[name]) != 1 for name in names):
        return None
    format = _replaced(prefix.replace(b"%", b"%%"), tokens, {name: _placeholder(tokens[name]) for name in names})
    rest = b"text" + template.suffix + b"".join(b"padding" + literal for _, literal in template.suffix_slots)
    probe = format % tuple(substitutes[name].strip(b'"') for name in names) + rest
    changes = {fields[name].path: _decoded_token(substitutes[name]) for name in names}
    return format if _differs_only(prefix + rest, probe, changes) else None


def _escaped(literal: bytes, *, spaces: bool) -> bytes:
    """A literal as a pattern. With `spaces` there may be any number of them before the last bracket of an event.

    No string of the JSON is open there, so they have no meaning.
    """
    if not spaces:
        return re.escape(literal)
    return rb" *\}\n\n".join(map(re.escape, _LAST_BRACKET.split(literal)))


def _tokens(format: OpeningFormat, opening: object, prefix: bytes) -> dict[str, bytes] | None:
    """The values of the fields of an opening, as bytes of its JSON; None if one has not the form of its kind."""
    tokens: dict[str, bytes] = {}
    for field in format.fields:
        value = value_at(opening, field.path)
        if field.kind in ("seconds", "count") and type(value) is int:
            token = b"%d" % value
        elif field.kind in ("token", "padding") and isinstance(value, str):
            token = b'"%b"' % value.encode()
        elif field.if_repeated or field.kind == "padding" or (field.kind == "count" and value in (_MISSING, None)):
            continue
        else:
            return None
        if field.if_repeated and token not in prefix:
            continue
        if not re.fullmatch(_PATTERNS[field.kind], token.strip(b'"')):
            return None
        tokens[field.name] = token
    return tokens


def _substitute_for(token: bytes) -> bytes:
    """Another token of the same kind."""
    return b'"%bx"' % token.strip(b'"') if token.startswith(b'"') else b"%d" % (int(token) + 1)


def _decoded_token(token: bytes) -> object:
    """The value of a token."""
    return token.strip(b'"').decode() if token.startswith(b'"') else int(token)


def _placeholder(token: bytes) -> bytes:
    """A `%b` placeholder in place of the token, within its quotes if it has any."""
    return b'"%b"' if token.startswith(b'"') else b"%b"


def _replaced(data: bytes, tokens: dict[str, bytes], substitutes: dict[str, bytes]) -> bytes:
    for name, substitute in substitutes.items():
        data = data.replace(tokens[name], substitute)
    return data


def _literals(event: bytes, values: list[_SlotValue]) -> list[bytes]:
    """The bytes before, between and after the values."""
    starts = [0, *(value.end for value in values)]
    ends = [*(value.start for value in values), len(event)]
    return [event[start:end] for start, end in zip(starts, ends, strict=True)]


def alternating(literals: Iterable[bytes], values: list[bytes]) -> list[bytes]:
    """The literals, with the values between them."""
    joined = [b""] * (2 * len(values) + 1)
    joined[::2] = literals
    joined[1::2] = values
    return joined


def plain_text(data: bytes) -> str:
    """The text between the quotes of a JSON string; empty if any of it is escaped, unprintable or not UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() and "\\" not in text else ""
