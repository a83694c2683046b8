"""Templates: what the events of a stream, and the streams of a target, have in common; learned and proved.

The argument why it is safe to rely on them is at the top of `core/passthrough.py`.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from penstock.core.events import Event
from penstock.core.passthrough_format import (
    DeltaTemplate,
    Opening,
    OpeningFormat,
    PassThroughFormat,
    Path,
    Slot,
    TextEvent,
)

_JSON = msgspec.json.Decoder()
# One SSE event that is one line of data, perhaps with a name.
_ONE_LINE = re.compile(rb"(?:event:[^\r\n]*\n)?data:([^\r\n]*)\n\n")
# What varies from answer to answer: nothing that could end a JSON string, or a number.
_PATTERNS = {"token": rb"[\w.:-]{1,128}", "seconds": rb"[1-9][0-9]{8,10}", "padding": rb"[0-9A-Za-z]+"}
# One opening is kept for each of many targets. Compiling its pattern takes a microsecond and ten bytes for each byte.
_MAX_OPENING = 4_096
# An opening that was met so often is learned anew as soon as it changes.
_ESTABLISHED = 16
# A longer event is not learned: to prove a template its JSON is decoded three times.
_MAX_LEARNED = 65_536
_MISSING = object()


class OpeningTemplate:
    """How the answers of one target open, learned from one of them."""

    __slots__ = ("_known", "_met", "_missed")

    def __init__(self) -> None:
        self._known: _KnownOpening | None = None
        self._met = self._missed = 0

    def match(self, data: bytes) -> Opening | None:
        """The opening of an answer, if it is the one that is known. More may stand behind it."""
        known = self._known
        found = known.pattern.match(data) if known is not None else None
        if known is None or found is None:
            return None
        events, fields = known.format.make(known.events, found.groupdict())
        before = known.before % found.group(*known.places)
        return Opening(events, fields, known.choice, found.end(), known.template, before)

    def confirm(self) -> None:
        """What followed an opening was what it should be."""
        self._met += 1

    def learn(self, format: OpeningFormat, first: bytes, events: list[Event], template: DeltaTemplate) -> None:
        """An answer was opened in another way. Learn it; ever more seldom, where each is opened in its own way."""
        if len(first) + template.size > _MAX_OPENING:
            return
        if self._met >= _ESTABLISHED:
            self._missed = 0
        self._missed += 1
        if self._missed & (self._missed - 1) == 0:
            self._met = 0
            self._known = _learn_opening(format, first, events, template)


class _KnownOpening(NamedTuple):
    """An opening that was proved: the pattern of its bytes, and its text deltas' template.

    `before` has holes for the values of the fields that `places` names.
    """

    pattern: re.Pattern[bytes]
    format: OpeningFormat
    events: list[Event]
    choice: int
    before: bytes
    places: list[str]
    template: DeltaTemplate


# The proof.


class _Part(NamedTuple):
    """A value in the bytes of an event: where it stands, and another value to try in its place."""

    start: int
    end: int
    path: Path
    other: object
    slot: Slot | None


def learn_template(
    format: PassThroughFormat, event: bytes, delta: TextEvent
) -> tuple[DeltaTemplate, dict[str, int]] | None:
    """The template of an event that says this, and its next counters; None where it cannot be proved."""
    line = _ONE_LINE.fullmatch(event) if len(event) <= _MAX_LEARNED else None
    if line is None:
        return None
    try:
        value = _JSON.decode(line[1])
    except ValueError:
        return None
    parts = _parts(format, event, value, delta)
    if not parts or not _is_proved(event, parts):
        return None
    literals = _literals(event, parts)
    text = next(place for place, part in enumerate(parts) if part.slot is None)
    counters = tuple(part.slot for part in parts[:text] if part.slot is not None)
    behind, *rest_literals = literals[text + 1 :]
    slots = [part.slot for part in parts[text + 1 :] if part.slot is not None]
    if not b"".join(literals).isascii() or any(slot.kind != "counter" for slot in counters):
        return None
    rest = {name: getattr(delta, name) for name in delta.__struct_fields__ if name not in ("choice", "text")}
    make: Callable[[str], TextEvent] = partial(type(delta), delta.choice, **rest)
    counts = {
        part.slot.name: int(event[part.start : part.end]) + 1
        for part in parts
        if part.slot is not None and part.slot.kind == "counter"
    }
    template = DeltaTemplate(
        before=tuple(literals[: text + 1]),
        counters=counters,
        behind=behind,
        slots=tuple(zip(slots, rest_literals, strict=True)),
        lines=event.count(b"\n"),
        make_event=make,
    )
    return template, counts


def _parts(format: PassThroughFormat, event: bytes, value: object, delta: TextEvent) -> list[_Part]:
    """What varies in an event, in the order of its bytes; nothing if it is not where it should be."""
    path = format.text_path(delta)
    parts = [_part(event, path, b'"%b"' % delta.text.encode(), delta.text + ".", None)]
    for slot in format.slots:
        found = value_at(value, slot.path)
        if found is _MISSING:
            continue
        if slot.kind == "padding" and isinstance(found, str):
            parts.append(_part(event, slot.path, b'"%b"' % found.encode(), found + "x", slot))
        elif slot.kind == "counter" and type(found) is int and found >= 0:
            parts.append(_part(event, slot.path, b"%d" % found, found + 1_000_003, slot))
        else:
            return []
    parts.sort(key=lambda part: part.start)
    ordered = all(before.end <= after.start for before, after in pairwise(parts))
    return parts if ordered and parts[0].start > 0 else []


def _part(event: bytes, path: Path, token: bytes, other: object, slot: Slot | None) -> _Part:
    """Where a value stands in an event: behind the name of its member. It stands nowhere if its start is 0."""
    key = b'"%b":' % str(path[-1]).encode()
    at = event.find(key)
    while at >= 0:
        at += len(key)
        at += event.startswith(b" ", at)
        if event.startswith(token, at):
            quote = token.startswith(b'"')
            return _Part(at + quote, at + len(token) - quote, path, other, slot)
        at = event.find(key, at)
    return _Part(0, 0, path, other, slot)


def _is_proved(event: bytes, parts: list[_Part]) -> bool:
    """Whether the event, with other values in these places, says other values at their paths and nothing else."""
    others = [str(part.other).encode() for part in parts]
    probe = b"".join(alternating(_literals(event, parts), others))
    return differs_only(event, probe, {part.path: part.other for part in parts})


def differs_only(event: bytes, other: bytes, changes: dict[Path, object]) -> bool:
    """Whether the JSON of two events of one line is the same but for these values, which the other one has."""
    lines = _ONE_LINE.fullmatch(event), _ONE_LINE.fullmatch(other)
    if lines[0] is None or lines[1] is None:
        return False
    try:
        value, changed = _JSON.decode(lines[0][1]), _JSON.decode(lines[1][1])
    except ValueError:
        return False
    for path, new in changes.items():
        holder: Any = value_at(value, path[:-1])
        if value_at(holder, path[-1:]) in (_MISSING, new):
            return False
        holder[path[-1]] = new
    return bool(value == changed)


def value_at(value: Any, path: Path) -> Any:
    """The value at a path; `_MISSING` if there is none."""
    for step in path:
        if not (step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))):
            return _MISSING
        value = value[step]
    return value


def _learn_opening(
    format: OpeningFormat, first: bytes, events: list[Event], template: DeltaTemplate
) -> _KnownOpening | None:
    """What is known by a first event and the template of the text behind it; None where it cannot be proved."""
    line = _ONE_LINE.fullmatch(first)
    (before,) = template.before
    tokens = _tokens(format, _JSON.decode(line[1]), before) if line is not None else None
    if tokens is None or format.choice(events) != template.make_event("").choice:
        return None
    padded = {slot.name for slot, _ in template.slots}
    fields = {field.name: field for field in format.fields}
    if padded != {name for name in tokens if fields[name].kind == "padding"}:
        return None
    places = sorted(tokens.keys() - padded, key=lambda name: before.find(tokens[name]))
    once = all(first.count(token) == 1 for token in tokens.values())
    if not places or not once or any(before.count(tokens[name]) != 1 for name in places):
        return None
    others = {name: _other(token) for name, token in tokens.items()}
    holed = _replaced(before.replace(b"%", b"%%"), tokens, {name: _hole(tokens[name]) for name in places})
    rest = b"text" + template.behind + b"".join(b"padding" + literal for _, literal in template.slots)
    changes = {fields[name].path: _value(other) for name, other in others.items()}
    words = {path: value for path, value in changes.items() if path in [fields[name].path for name in places]}
    proved = differs_only(first, _replaced(first, tokens, others), changes) and differs_only(
        before + rest, holed % tuple(others[name].strip(b'"') for name in places) + rest, words
    )
    if not proved or not first.isascii():
        return None
    groups = {
        name: _hole(token) % (b"(?P<%b>%b)" % (name.encode(), _PATTERNS[fields[name].kind]))
        for name, token in tokens.items()
    }
    pattern = _replaced(re.escape(first), {name: re.escape(token) for name, token in tokens.items()}, groups)
    return _KnownOpening(re.compile(pattern), format, events, format.choice(events), holed, places, template)


def _tokens(format: OpeningFormat, opening: object, before: bytes) -> dict[str, bytes] | None:
    """What varies in an opening, as it stands in the bytes; None if something of it is not of its kind."""
    tokens: dict[str, bytes] = {}
    for field in format.fields:
        value = value_at(opening, field.path)
        if field.kind == "seconds" and type(value) is int:
            token = b"%d" % value
        elif field.kind != "seconds" and isinstance(value, str):
            token = b'"%b"' % value.encode()
        elif field.if_repeated or field.kind == "padding":
            continue
        else:
            return None
        if field.if_repeated and token not in before:
            continue
        if not re.fullmatch(_PATTERNS[field.kind], token.strip(b'"')):
            return None
        tokens[field.name] = token
    return tokens


def _other(token: bytes) -> bytes:
    """Another token of the same kind."""
    return b'"%bx"' % token.strip(b'"') if token.startswith(b'"') else b"%d" % (int(token) + 1)


def _value(token: bytes) -> object:
    return token.strip(b'"').decode() if token.startswith(b'"') else int(token)


def _hole(token: bytes) -> bytes:
    """A hole for other values, within the quotes of the token if it has such."""
    return b'"%b"' if token.startswith(b'"') else b"%b"


def _replaced(data: bytes, tokens: dict[str, bytes], others: dict[str, bytes]) -> bytes:
    for name, other in others.items():
        data = data.replace(tokens[name], other)
    return data


def _literals(event: bytes, parts: list[_Part]) -> list[bytes]:
    """The bytes around the parts."""
    starts = [0, *(part.end for part in parts)]
    ends = [*(part.start for part in parts), len(event)]
    return [event[start:end] for start, end in zip(starts, ends, strict=True)]


def alternating(literals: Iterable[bytes], values: list[bytes]) -> list[bytes]:
    """Literals with values between them."""
    joined = [b""] * (2 * len(values) + 1)
    joined[::2] = literals
    joined[1::2] = values
    return joined


def plain_text(data: bytes) -> str:
    """The text of a JSON string without its quotes; empty if it has anything in it that must be decoded."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() and "\\" not in text else ""
