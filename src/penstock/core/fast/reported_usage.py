"""Text deltas that report the usage so far (`ReportedUsage`): their templates, and why these may replace the parser.

In such a dialect every message has the form of a whole answer, and nearly every one has a cumulative report, whose
counts change. This is the part of the argument in `core/fast/passthrough.py` that concerns only these dialects.

**What varies.** A template has two slots: the text, and what is between the first count of the report and the last one.
A *count* is an integer from 1 to 999,999,999 in the report. `learn_reported` proves it by substitution: with another
text and with other counts everywhere, the JSON must be the original one with exactly these changes. Zero, other
numbers, names and strings in the report are literals. So every message that matches has a report with the same members
as the learned one, of the same types.

**The text may have escapes.** Here most texts are sentences with line ends and quotes. A text between the quotes must
be printable as it was sent; if it has a backslash or a quote, the strict decoder of the slow path must accept it as one
JSON string. It refuses quotes that are not escaped and lone halves of surrogate pairs.

**Only the last report counts.** The frame reader merges reports member by member, the later value wins, and so does the
grammar. All messages that the fast path reads in a row have the members of one that the slow path read before. So the
last of them alone leaves both in the same state as all of them. A report of a message that matches is never blank, and
never needs a repair, because that depends on zeros and types only, which are literals. `PassThrough` keeps the bytes of
the last message; when the slow path catches up, the frame reader reads the report in it, at its position
(`note_deltas`). It also gets the texts, because citations refer to positions in the whole text.

**What may be learned.** A message that the grammar made one text delta of, perhaps after the beginning of the answer or
of a block: these do not happen again for the same JSON. Any other event, a repair included, prevents it.

**What may be forwarded.** Lines may end with CRLF. A read is forwarded only if it consists of `data: ` lines with JSON
and of blank lines, because some clients accept nothing else. A message that begins a block, unless it is the first of
the answer, is written anew, so that the writer knows of the block.

**The last message** mostly has text, too. The slow path reads it. If the body ends with the same read, the relay may
forward it (`PassThrough.finishes`): it is one text delta as above, and the finish of the only choice, after which the
grammar calls the answer completed; and its report has all that was reported before. Otherwise its text is written at
once, and the finish when the bytes end.
"""

import re
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec

from penstock.core.fast.format import DeltaTemplate, PassThroughFormat, Path, TextEvent
from penstock.core.fast.templates import MAX_LEARNED, alternating, value_at

_JSON = msgspec.json.Decoder()
# One SSE event with one `data:` line, in the only form that all clients read.
_EVENT = re.compile(rb"data: (\{[^\r\n]*\})(\r\n\r\n|\n\n)")
# What varies: an integer that is not zero, so that no report becomes a blank one; and below any absurd count.
_COUNT = rb"[1-9][0-9]{0,8}"
_IS_COUNT = re.compile(_COUNT)
# Counts between punctuation. Digits in a string are so rarely among them that the proof may fail then.
_NUMBERS = re.compile(rb"(?<=[:, \[])(%b)(?=[,}\] ])" % _COUNT)
_NO_COUNTS = re.compile(b"")
# The largest report, and the most counts in it. Recorded ones have some 300 bytes with up to ten counts. To compile a
# pattern takes a microsecond for each byte and some ten for each count.
_MAX_REPORT = 1_024
_MAX_COUNTS = 40
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


def learn_reported(
    format: PassThroughFormat, event: bytes, delta: TextEvent
) -> tuple[DeltaTemplate, ReportedText] | None:
    """The template of an event that was read as `delta`, and perhaps as a report; None if it cannot be proved."""
    reported, path = format.reported, format.text_path(delta)
    line = _EVENT.fullmatch(event) if len(event) <= MAX_LEARNED else None
    span = _text_span(event, str(path[-1]), delta.text) if line is not None else None
    if reported is None or line is None or span is None:
        return None
    start, end = span
    literals, counts = _split(event, end, str(reported.path[-1]))
    others = [b"%d" % (int(count) + _ADDED) for count in counts]
    probe = _EVENT.fullmatch(event[:end] + b"." + b"".join(alternating(literals, others)))
    suffix, *between, tail = literals if counts else [*literals, b""]
    if len(counts) > _MAX_COUNTS or sum(map(len, between)) > _MAX_REPORT:
        return None
    if probe is None or not (event[:start] + event[end:]).isascii():
        return None
    if not _differs_in_values(line[1], probe[1], path, reported.path):
        return None
    pattern = _pattern(tuple(between)) if counts else _NO_COUNTS
    text = ReportedText(event[:start], suffix, pattern, tail, line[2])
    make = partial(type(delta), delta.choice)
    return DeltaTemplate((text.prefix,), suffix, (), event.count(b"\n"), make, {}), text


def _text_span(event: bytes, name: str, text: str) -> tuple[int, int] | None:
    """Where a member of this name has this text, which may be escaped, between its quotes."""
    for member in re.finditer(rb'"%b": ?("[^"\\]*(?:\\.[^"\\]*)*")' % name.encode(), event):
        if _decoded(member[1]) == text:
            return member.start(1) + 1, member.end(1) - 1
    return None


def _split(event: bytes, start: int, name: str) -> tuple[list[bytes], list[bytes]]:
    """The literals of an event from `start` on, and the counts between them: those in or behind the member `name`."""
    report = event.find(b'"%b":' % name.encode(), start)
    if report < 0:
        return [event[start:]], []
    first, *others = _NUMBERS.split(event[report:])
    return [event[start:report] + first, *others[1::2]], others[::2]


@lru_cache(maxsize=64)
def _pattern(between: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """The pattern of counts with these literals between them. Nearly all streams of a provider have the same."""
    return re.compile(_COUNT.join([b"", *map(re.escape, between), b""]))


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
