"""Templates of text deltas that report the usage so far (`ReportedUsage`): every count in the report may vary.

The counts are neither read nor compared: the slow path reads the whole report of the last delta when it catches up. The
argument why that is enough is at the top of `core/passthrough.py`.
"""

import re
from functools import partial
from typing import Any, NamedTuple

import msgspec

from penstock.core.passthrough_format import DeltaTemplate, PassThroughFormat, Path, TextEvent
from penstock.core.templates import MAX_LEARNED, alternating, value_at

_JSON = msgspec.json.Decoder()
_STRING = msgspec.json.Decoder(str)
# One SSE event with one `data:` line, in the only form that all clients read.
_EVENT = re.compile(rb"data: (\{[^\r\n]*\})(\r\n\r\n|\n\n)")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}]|[0-9.eE+-]+')
# What varies: an integer that is not zero, so that no report becomes a blank one; and below any absurd count.
_COUNT = rb"[1-9][0-9]{0,8}"
_IS_COUNT = re.compile(_COUNT)
# The largest report. Recorded ones have some 300 bytes, and each byte takes a microsecond to compile into a pattern.
_MAX_REPORT = 1_024
# Added to a count for the proof.
_ADDED = 1_000_003


class ReportedText(NamedTuple):
    """The bytes of a text delta with a report: `prefix`, text, `suffix`, from the first count to the last, `tail`.

    Without counts, the suffix is everything behind the text.
    """

    prefix: bytes
    suffix: bytes
    counts: re.Pattern[bytes]
    tail: bytes
    end: bytes
    """The line ends of the event."""

    def text_of(self, event: bytes) -> str:
        """The text of an event; empty if it does not match, or its text is empty or not printable."""
        tail = self.tail
        if not event.startswith(self.prefix) or not event.endswith(tail):
            return ""
        raw, suffix, counts = event[len(self.prefix) : len(event) - len(tail)].partition(self.suffix)
        if not suffix or self.counts.fullmatch(counts) is None:
            return ""
        try:
            text = raw.decode()
            if not text.isprintable():
                return ""
            # The decoder refuses a quote that is not escaped, and halves of surrogate pairs.
            return _STRING.decode(b'"%b"' % raw) if "\\" in text or '"' in text else text
        except ValueError:
            return ""


def learn_reported(
    format: PassThroughFormat, event: bytes, delta: TextEvent
) -> tuple[DeltaTemplate, ReportedText] | None:
    """The template of an event that was read as `delta`, and perhaps as a report; None if it cannot be proved."""
    reported, path = format.reported, format.text_path(delta)
    line = _EVENT.fullmatch(event) if len(event) <= MAX_LEARNED else None
    span = _text_span(event, str(path[-1]), delta.text)
    if reported is None or line is None or span is None:
        return None
    start, end = span
    literals, counts = _split(event, end, str(reported.path[-1]))
    others = [b"%d" % (int(count) + _ADDED) for count in counts]
    probe = _EVENT.fullmatch(event[:end] + b"." + b"".join(alternating(literals, others)))
    suffix, *between, tail = literals if counts else [*literals, b""]
    if probe is None or not (event[:start] + event[end:]).isascii():
        return None
    if sum(map(len, between)) > _MAX_REPORT or not _differs_in_values(line[1], probe[1], path, reported.path):
        return None
    pattern = _COUNT.join([b"", *map(re.escape, between), b""]) if counts else b""
    text = ReportedText(event[:start], suffix, re.compile(pattern), tail, line[2])
    make = partial(type(delta), delta.choice)
    return DeltaTemplate((text.prefix,), suffix, (), event.count(b"\n"), make, {}), text


def _text_span(event: bytes, name: str, text: str) -> tuple[int, int] | None:
    """Where a member of this name has this text, which may be escaped, between its quotes."""
    for member in re.finditer(rb'"%b": ?("[^"\\]*(?:\\.[^"\\]*)*")' % name.encode(), event):
        if _decoded(member[1]) == text:
            return member.start(1) + 1, member.end(1) - 1
    return None


def _split(event: bytes, start: int, name: str) -> tuple[list[bytes], list[bytes]]:
    """The literals of an event from `start` on, and the counts between them: those in the object of this name."""
    report = re.compile(rb'"%b": ?(?=\{)' % name.encode()).search(event, start)
    literals: list[bytes] = []
    counts: list[bytes] = []
    depth = 0
    for token in _TOKEN.finditer(event, report.end()) if report is not None else ():
        depth += {b"{": 1, b"}": -1}.get(token[0], 0)
        if not depth:
            break
        if _IS_COUNT.fullmatch(token[0]):
            literals.append(event[start : token.start()])
            counts.append(token[0])
            start = token.end()
    return [*literals, event[start:]], counts


def _differs_in_values(line: bytes, probe: bytes, text: Path, report: Path) -> bool:
    """Whether the JSON of the probe is that of the line, with a longer text and with other counts."""
    expected: Any = _decoded(line)
    holder = value_at(expected, text[:-1])
    holder[text[-1]] += "."
    holder = value_at(expected, report[:-1])
    if report[-1] in holder:
        holder[report[-1]] = _with_other_counts(holder[report[-1]])
    return bool(expected == _decoded(probe))


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


def _decoded(data: bytes) -> object:
    try:
        return _JSON.decode(data)
    except ValueError:
        return None
