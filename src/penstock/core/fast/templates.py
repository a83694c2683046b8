"""DeltaTemplate: the bytes that all text deltas of a stream share, and the proof that they are right.

`learn_template` makes a template of one text delta. `core/fast/__init__.py` has the complete argument why a template
may replace the parser.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from penstock.core.fast.format import TextEvent, TextFormat, value_at

_JSON = msgspec.json.Decoder()
# The values that a slot behind the text may have. None of them can end a JSON string or a JSON number. A count is not
# zero, so that no report becomes a blank one; and below any absurd count.
_COUNT = rb"[1-9][0-9]{0,8}"
VALUES = {"padding": rb"[0-9A-Za-z]+", "spaces": rb" *", "count": _COUNT}
_IS_COUNT = re.compile(_COUNT)
# Counts between punctuation. Digits in a string are so rarely among them that the proof may fail then.
_NUMBERS = re.compile(rb"(?<=[:, \[])%b(?=[,}\] ])" % _COUNT)
# The largest report, and the most counts in it. Recorded ones have some 300 bytes with up to ten counts. To compile a
# pattern takes a microsecond for each byte and some ten for each count.
_MAX_REPORT = 1_024
_MAX_COUNTS = 40
# A longer event is not learned: the proof decodes its JSON three times.
_MAX_LEARNED = 65_536
# Added to a number for the proof.
_ADDED = 1_000_003

SlotKind: TypeAlias = Literal["text", "counter", "padding", "spaces", "count"]
_Part: TypeAlias = Literal["", "prefix", "suffix", "tail"]


class DeltaTemplate(NamedTuple):
    """The bytes of a text delta: `prefix`, the text, `suffix`, a value that matches the pattern, `tail`.

    The prefix ends with the opening quote of the text. Without such a value, the tail begins with the closing quote,
    and the suffix is empty. If there is a counter, the literal with its name (`counted`) is a format string for it.
    """

    prefix: bytes
    suffix: bytes
    value: re.Pattern[bytes]
    tail: bytes
    counted: _Part
    next_count: int
    """The counter of the next event."""
    kind: SlotKind | Literal[""]
    """What the value is; a report is a value with several counts."""
    sample: bytes
    """The value in the learned event."""
    make_event: Callable[[str], TextEvent]
    json: dict[str, object]
    """The JSON of the learned event."""
    json_start: int
    """Where the JSON begins, in bytes."""
    end: bytes
    """The line ends of the event."""
    lines: int
    """The number of its lines."""
    keeps_text: bool
    """Whether the frame reader needs the texts of the events that match."""

    @property
    def size(self) -> int:
        """The length of all literals, in bytes."""
        return len(self.prefix) + len(self.suffix) + len(self.tail)


class Slot(NamedTuple):
    """A value in the bytes of an event that may vary, and another value for the proof."""

    start: int
    end: int
    kind: SlotKind
    substitute: bytes


def learn_template(format: TextFormat, event: bytes, delta: TextEvent) -> DeltaTemplate | None:
    """The template of an event that was read as `delta`; None if it cannot be proved."""
    line = format.event.fullmatch(event) if len(event) <= _MAX_LEARNED else None
    json = decoded(line[1]) if line is not None else None
    if line is None or not isinstance(json, dict):
        return None
    slots = _slots(format, event, json, delta)
    literals = literals_of(event, slots)
    if not slots or not b"".join(literals).isascii():
        return None
    probe = format.event.fullmatch(b"".join(alternating(literals, [slot.substitute for slot in slots])))
    if probe is None or decoded(probe[1]) != _changed(format, decoded(line[1]), delta):
        return None
    parts = _parts(slots, literals)
    if parts is None:
        return None
    prefix, suffix, between, tail = parts
    counted: _Part = "prefix" if len(prefix) > 1 else "suffix" if len(suffix) > 1 else "tail" if len(tail) > 1 else ""
    kinds = [slot.kind for slot in slots if slot.kind not in ("text", "counter")]
    varying = [slot for slot in slots if slot.kind == kinds[0]] if kinds else []
    rest = {name: getattr(delta, name) for name in delta.__struct_fields__ if name not in ("choice", "text")}
    return DeltaTemplate(
        prefix=_counted(prefix),
        suffix=_counted(suffix),
        value=_pattern(kinds[0] if kinds else "", tuple(between)),
        tail=_counted(tail),
        counted=counted,
        next_count=next((int(event[slot.start : slot.end]) + 1 for slot in slots if slot.kind == "counter"), 0),
        kind=kinds[0] if kinds else "",
        sample=event[varying[0].start : varying[-1].end] if varying else b"",
        make_event=partial(type(delta), delta.choice, **rest),
        json=json,
        json_start=line.start(1),
        end=line[2],
        lines=event.count(b"\n"),
        keeps_text=format.keeps_text,
    )


def _parts(
    slots: list[Slot], literals: list[bytes]
) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]] | None:
    """The literals of the prefix and of the suffix, those between the varying values, and those of the tail.

    A part with two literals has the counter between them. None if only the counter may be where another value is.
    """
    text = next(place for place, slot in enumerate(slots) if slot.kind == "text")
    varying = [place for place, slot in enumerate(slots) if slot.kind not in ("text", "counter")]
    prefix, behind = literals[: text + 1], literals[text + 1 :]
    if not varying:
        return prefix, [b""], [], behind
    first, last = varying[0], varying[-1]
    if first < text or len(varying) != last - first + 1:
        return None
    return prefix, literals[text + 1 : first + 1], literals[first + 1 : last + 1], literals[last + 1 :]


def _counted(literals: list[bytes]) -> bytes:
    """The only literal; or two literals as a format string, with the counter between them."""
    if len(literals) == 1:
        return literals[0]
    return b"%d".join(literal.replace(b"%", b"%%") for literal in literals)


@lru_cache(maxsize=64)
def _pattern(kind: str, between: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """The pattern of values of one kind with these literals between them. Nearly all streams of a provider share it."""
    return re.compile(VALUES[kind].join([b"", *map(re.escape, between), b""]) if kind else b"")


def _slots(format: TextFormat, event: bytes, json: dict[str, object], delta: TextEvent) -> list[Slot]:
    """All values that may vary, in the order of their bytes; empty if one is not where it should be."""
    path = format.text_path(delta)
    text = _text_slot(event, str(path[-1]), delta.text) if path else None
    if text is None:
        return []
    slots: list[Slot | None] = [text]
    if format.spaces:
        bracket = event.rfind(b"}")
        start = len(event[:bracket].rstrip(b" "))
        slots.append(Slot(start, bracket, "spaces", b" " * (bracket - start + 1)))
    if format.padding is not None and format.padding in json:
        padding = json[format.padding]
        known = isinstance(padding, str)
        slots.append(find_slot(event, format.padding, b'"%b"' % str(padding).encode(), "padding") if known else None)
    if format.counter is not None and format.counter in json:
        count = json[format.counter]
        known = type(count) is int and count >= 0
        slots.append(find_slot(event, format.counter, str(count).encode(), "counter") if known else None)
    if format.report is not None:
        slots += _count_slots(event, text.end, format.report)
    found = sorted(slot for slot in slots if slot is not None)
    ordered = all(left.end <= right.start for left, right in pairwise(found))
    return found if len(found) == len(slots) and ordered else []


def _text_slot(event: bytes, name: str, text: str) -> Slot | None:
    """Where a member of this name has this text, which may be escaped, between its quotes."""
    for member in re.finditer(rb'"%b": ?("[^"\\]*(?:\\.[^"\\]*)*")' % name.encode(), event):
        if decoded(member[1]) == text:
            return Slot(member.start(1) + 1, member.end(1) - 1, "text", member[1][1:-1] + b".")
    return None


def find_slot(event: bytes, name: str, token: bytes, kind: SlotKind) -> Slot | None:
    """Where a member of this name has this value, a string without escapes or a number."""
    member = re.search(rb'"%b": ?(?=%b)' % (name.encode(), re.escape(token)), event)
    if member is None:
        return None
    quote = token.startswith(b'"')
    start, end = member.end() + quote, member.end() + len(token) - quote
    return Slot(start, end, kind, substitute_for(token).strip(b'"'))


def _count_slots(event: bytes, start: int, name: str) -> list[Slot | None]:
    """The counts in or behind the member of this name, which is behind `start`."""
    report = event.find(b'"%b":' % name.encode(), start)
    if report < 0:
        return []
    counts = list(_NUMBERS.finditer(event, report))
    if len(counts) > _MAX_COUNTS or (counts and counts[-1].end() - counts[0].start() > _MAX_REPORT):
        return [None]
    return [Slot(count.start(), count.end(), "count", b"%d" % (int(count[0]) + _ADDED)) for count in counts]


def _changed(format: TextFormat, json: Any, delta: TextEvent) -> object:
    """The JSON of an event after the substitution."""
    path = format.text_path(delta)
    value_at(json, path[:-1])[path[-1]] += "."
    if format.padding in json:
        json[format.padding] += "x"
    if format.counter in json:
        json[format.counter] += _ADDED
    if format.report in json:
        json[format.report] = _with_other_counts(json[format.report])
    return json


def _with_other_counts(value: object) -> object:
    """A report in which all counts that may vary are other ones."""
    match value:
        case dict():
            return {name: _with_other_counts(each) for name, each in value.items()}
        case list():
            return [_with_other_counts(each) for each in value]
        case int() if type(value) is int and _IS_COUNT.fullmatch(b"%d" % value):
            return value + _ADDED
    return value


def substitute_for(token: bytes) -> bytes:
    """Another token of the same kind."""
    return b'"%bx"' % token.strip(b'"') if token.startswith(b'"') else b"%d" % (int(token) + _ADDED)


def literals_of(event: bytes, slots: list[Slot]) -> list[bytes]:
    """The bytes before, between and after the slots."""
    starts = [0, *(slot.end for slot in slots)]
    ends = [*(slot.start for slot in slots), len(event)]
    return [event[start:end] for start, end in zip(starts, ends, strict=True)]


def alternating(literals: Iterable[bytes], values: list[bytes]) -> list[bytes]:
    """The literals, with the values between them."""
    joined = [b""] * (2 * len(values) + 1)
    joined[::2] = literals
    joined[1::2] = values
    return joined


def decoded(data: bytes) -> Any:
    """The JSON of the data; None if it is not JSON."""
    try:
        return _JSON.decode(data)
    except ValueError:
        return None
