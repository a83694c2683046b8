"""The fast path: forward a healthy stream by comparing bytes instead of parsing it, and still produce its events.

Nearly all events of a healthy stream are text deltas, and most of their bytes are the same in each event. A *template*
holds these bytes. An event that matches the template is recognised by two comparisons and one slice. Every other event
takes the slow path (`core/stream.py`): framing, JSON, the dialect's frame reader, the grammar. Both paths produce the
same events, the same completion and the same accounting. The rest of this text is the complete argument for that.

**What is learned.** A template is learned from an event that the slow path has read, found healthy, and turned into
exactly one `TextDelta` or `ReasoningDelta`. The event is one SSE event: one `data:` line, perhaps an `event:` line
before it, and no CR. `learn_template` cuts its bytes into literals and *slots*. One slot is the text. The dialect's
`PassThroughFormat` names the others. *Padding* is a string without meaning, which some providers add to hide the length
of the text from eavesdroppers. A *counter* is a number that grows by one with each event.
*Spaces* before the last bracket are what other providers add for the purpose of padding.

**How it is proved: by substitution.** `learn_template` puts another text, another padding and another number into the
slots, and decodes the result. The JSON must be that of the original event, changed at the paths of these members and
nowhere else. It follows that each slot is inside the JSON string (or is the JSON number) that it is taken for, and that
the literals determine everything else. The literals are ASCII. The values in slots are restricted:

- A text is not empty, is valid UTF-8 and printable (no control character, no U+2028), and has no quote or backslash.
  So it cannot end its JSON string, and all clients see the same lines.
- Padding is alphanumeric.
- A counter is the previous number plus one.
- Spaces are any number of spaces.

Hence an event that matches has the JSON of the learned event, except for the values in its slots. By supplying a
`PassThroughFormat`, the dialect promises that its frame reader makes one text delta of such JSON, and that reading a
text delta leaves the frame reader in a state in which it reads the next one in the same way. An event that could change
that state is not a text delta. So it does not match, and takes the slow path. The slow path then drops the template,
unless what it read was again healthy text.

**Why the HTTP parser may be skipped.** `http/upstream_connection.py` passes a read to the fast path only if its bytes
are exactly one whole HTTP chunk (size in plain hexadecimal, payload, CR LF), and only while the parser is between two
chunks. A parser that skips a whole chunk is still between two chunks. The payload is compared as above, and the chunk
is written to the client as it arrived. A read that is not one whole chunk, or does not match, goes to the parser. The
parser has then missed nothing but whole chunks. No event spans two payloads: a payload matches only if it begins and
ends as the template does.

**How the slow path catches up.** The slow path has not seen the events that the fast path read. It needs to know their
number, their bytes and lines (for the positions of later repairs), and that the choice has text. `take_progress`
returns these figures, before the slow path reads on. Padding that is kept as a field of the stream is written to the
dictionary that the frame reader uses. An opening of several events is read again from its bytes, and its events are
discarded: the slow path is then in the state in which it would be.

**Dialects that repeat the text** (`RepeatedText`). Some dialects send a text once more as a whole behind its deltas,
and number all events. There, three more things must hold.

1. *The frame reader knows the text.* It compares the whole with the deltas. `PassThrough` keeps the texts that it
   reads, and passes them on when the slow path catches up. They belong to the text of the last delta that the slow path
   read: after each read of the slow path, the template is dropped, unless that read ended with a delta whose JSON is
   the template's apart from text, padding and counters (`advance`).
2. *The writer knows the text*, because it writes the whole. It gets the text of each forwarded delta, and counts it.
3. *A delta is forwarded only if the writer would write the same*: the same members with the same values, in any order,
   apart from padding. `StreamWriter.compare` compares them once, after each read of the slow path. From then on each
   delta that matches the template is one number higher, and so is the writer's next number. They stay equal until the
   writer writes something. That is either an event of the slow path, after which they are compared again, or a
   heartbeat, which ends the agreement. Without agreement, deltas still take the fast path, and are written anew.

**Dialects that report usage with the text** (`ReportedUsage`). Each message has text and the usage so far. Such
dialects have templates of their own, in which the counts vary. `core/fast/reported_usage.py` has the argument for them.

**Openings.** The first events of two answers of one target differ only in an id, a time or counts, perhaps a
fingerprint, and padding. The text deltas of the two answers differ in the same values, or (`in_deltas` is False) not at
all. `OpeningTemplate` is learned from one answer whose first events were followed by text deltas only, by the same
proof for all these events. The values of its slots match narrow patterns (no quote, no backslash; digits only for a
time or a count). Spaces before the last bracket of an event are outside of all strings. Each target has its own, so
that the bytes of one provider are never compared with those of another.

**Trailers.** By rules 3 and 4 of `core/hub/grammar.py`, the grammar emits a finish and a usage report when the bytes
end. So reading them late changes nothing. A `StreamTrailer` accepts exactly this: one finish without content, for the
only choice, with a reason that needs no repair; perhaps one usage report, which needs neither repair nor merging; then
the sentinel. For that input the grammar yields `Finish`, `UsageReport`, `End`, and `StreamTrailer.events` returns the
same. If anything else arrives, the slow path reads the buffered bytes together with it, as if all had arrived at once.
A trailer may begin only where text is expected: one choice, no tool calls, no fault, no usage so far. In a dialect that
numbers blocks, it begins with the end of the only open block, and must have the finish in the same read: clients see
the end of a block at once. Where usage is reported before, the trailer merges it by the functions of the slow path, or
knows that the merged counts are the last ones that are not zero (`anthropic_messages/trailer.py`).

`tests/invariants.py` checks all of this for every stream that the property tests and the fuzzer produce, the corpus
tests for every recorded stream, and `tests/dialects/` for a second dialect.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from penstock.core.fast.format import (
    DeltaTemplate,
    FastFrameReader,
    Opening,
    PassThroughFormat,
    StreamTrailer,
    TemplateSlot,
    TextEvent,
    TrailerFormat,
)
from penstock.core.fast.reported_usage import ReportedText, learn_reported
from penstock.core.fast.templates import (
    OpeningTemplate,
    learn_opening,
    learn_template,
    members_of,
    plain_text,
    value_at,
)
from penstock.core.hub.events import Event
from penstock.core.hub.grammar import Grammar

_STRING = msgspec.json.Decoder(str)
# A template that matches no event is learned this many times in a row. After that, only one frame in some is learned.
_MAX_UNUSED = 4


class PassThrough:
    """The fast path of one stream. It has no template until the slow path has read healthy text, or an opening matches.

    The `StreamReader` that made it calls `read` and `read_opening`, which return events, and `feed_trailer`, which
    returns the trailer so far. The relay may call `feed`, `feed_opening` and `feed_trailer` instead, for payloads that
    it forwards as they are.
    """

    template: DeltaTemplate | None = None
    """The learned template of text deltas, or None."""
    trailer: StreamTrailer | None = None
    """The part of the usual ending that has arrived, or None."""
    opening: Opening | None = None
    """The opening, if the fast path read it and the slow path has not caught up."""
    forwardable = False
    """Whether the last bytes fed are whole, healthy events, so that they may be forwarded as they are."""
    finishes = False
    """Whether the last bytes fed are healthy text that finishes the answer, so that they may be forwarded as they are
    if no more bytes follow. Only dialects with `ReportedUsage` have such messages."""
    frame_reader: FastFrameReader | None = None
    """The frame reader of the slow path, or None before the slow path has read anything of this stream."""
    grammar: Grammar | None = None
    """The grammar of the slow path, or None as above."""
    reader: object = None
    """The frame reader of the slow path in dialects without a `FastFrameReader`, or None as above."""
    fields: dict[str, object]
    """The fields of the stream, with the padding."""
    agreed: bool | None = True
    """Whether the next text delta is what the writer would write next, so that it may be forwarded. None while that is
    unknown, which is only so in dialects with `RepeatedText`: `StreamWriter.compare` decides it."""
    _unused = 0  # how many templates in a row matched no event
    on_text: Callable[[str], int] = len
    """Called with the text of each event that `feed` accepts; returns its length."""
    frames = 0
    """The events that the fast path has read since the slow path caught up."""
    # Their bytes, and the bytes of the last of them.
    _size = _last = 0
    # The bytes that the next event begins with, and those that it ends with if its padding is unchanged. An empty tuple
    # never matches: `startswith` and `endswith` return False for it.
    _prefix: bytes | tuple[()] = ()
    _suffix: bytes | tuple[()] = ()
    _text_start = _text_end = 0
    _next_count: int | None = None  # of the next event; None without a counter
    _regular: "_RegularTemplate | None" = None
    _tail = b""  # of the next event, if the template is regular
    # The texts that the slow path has not seen; None in dialects whose frame reader does not need them.
    _texts: list[str] | None = None
    _reported: ReportedText | None = None  # the template, in dialects with `ReportedUsage`
    _last_event = b""  # the last event that matched it

    def __init__(self, format: PassThroughFormat, max_event: int, openings: OpeningTemplate | None) -> None:
        self.format = format
        self.max_event = max_event
        """The maximum size of one event, in bytes."""
        self._openings = openings if format.opening is not None else None
        if format.repeated is not None:
            self._texts = []
            self.agreed = None
        elif format.reported is not None:
            self._texts = []

    # Text deltas.

    def feed(self, payload: bytes) -> int:
        """Return the number of characters of an event's text, or 0 if it does not match and must take the slow path.

        This is the hottest code of the gateway: nearly every event passes through it, so it makes as few calls as
        possible. Most events end with the same bytes as the previous one. With counters or changing padding they do
        not, and `_feed_other_suffix` takes them.
        """
        if not payload.startswith(self._prefix):
            return 0
        if not payload.endswith(self._suffix):
            return self._feed_other_suffix(payload)
        try:
            text = payload[self._text_start : self._text_end].decode()
        except UnicodeDecodeError:
            return 0
        if not text or not text.isprintable() or "\\" in text or '"' in text:
            return 0
        self.frames += 1
        self._last = size = len(payload)
        self._size += size
        return self.on_text(text)

    def feed_numbered(self, payload: bytes) -> int:
        """As `feed`, in fewer steps if events are numbered and regular. The template may be any."""
        regular = self._regular
        if regular is None:
            return self.feed(payload)
        if not payload.startswith(self._prefix):
            return 0
        text = self._take_regular(payload, regular)
        return self.on_text(text) if text else 0

    def feed_reported(self, payload: bytes) -> int:
        """As `feed`, in fewer steps in dialects with `ReportedUsage`."""
        text = self._take_reported(payload)
        return self.on_text(text) if text else 0

    @property
    def feed_text(self) -> Callable[[bytes], int]:
        """The method that reads text deltas of this dialect in the fewest steps."""
        if self.format.reported is not None:
            return self.feed_reported
        return self.feed if self.format.repeated is None else self.feed_numbered

    def _feed_other_suffix(self, payload: bytes) -> int:
        """As `feed`, for an event with the expected prefix and another suffix than the previous event.

        Padding, or spaces, are nearly always the only slot. That is matched here; `_feed_slots` matches any other.
        """
        if self._regular is not None:
            return self.feed_numbered(payload)
        if self._reported is not None:
            return self.feed_reported(payload)
        template = self.template
        if (
            template is None
            or len(template.suffix_slots) != 1
            or self._next_count is not None
            or self._texts is not None
        ):
            return self._feed_slots(payload)
        ((slot, literal),) = template.suffix_slots
        start = self._text_start
        quote = payload.find(b'"', start)
        at, end = quote + len(template.suffix), len(payload) - len(literal)
        if quote < 0 or end < at or not payload.startswith(template.suffix, quote) or not payload.endswith(literal):
            return 0
        value = payload[at:end]
        text = plain_text(payload[start:quote])
        if not text or (value.strip(b" ") if slot.kind == "spaces" else not value.isalnum()):
            return 0
        if slot.kind == "padding":
            self.fields[slot.name] = value.decode()
        self._suffix = payload[quote:]
        self._last = size = len(payload)
        self._text_end = quote - size
        self.frames += 1
        self._size += size
        return self.on_text(text)

    def _feed_slots(self, payload: bytes) -> int:
        """As `_feed_other_suffix`, for any slots."""
        quote = payload.find(b'"', self._text_start)
        end, values = self._match_suffix(payload, quote)
        text = plain_text(payload[self._text_start : quote]) if end == len(payload) else ""
        if not text:
            return 0
        self._remember(payload[quote:], values)
        self.frames += 1
        self._last = end
        self._size += end
        self._expect_next()
        if self._texts is not None:
            self._texts.append(text)
        return self.on_text(text)

    def _take_regular(self, payload: bytes, regular: "_RegularTemplate") -> str:
        """The text of one event of a regular template, which is counted; an empty text if the event does not match.

        In dialects with counters nearly every event passes through this, so it does not use the general code below.
        """
        start, tail = self._text_start, self._tail
        if not payload.endswith(tail):
            return ""
        end = len(payload) - len(tail)
        if regular.padded:
            suffix = regular.suffix
            quote = payload.find(b'"', start)
            if not payload.startswith(suffix, quote) or not payload[quote + len(suffix) : end].isalnum():
                return ""
            end = quote
        try:
            text = payload[start:end].decode()
        except UnicodeDecodeError:
            return ""
        if not text or not text.isprintable() or "\\" in text or '"' in text:
            return ""
        self.frames += 1
        self._last = size = len(payload)
        self._size += size
        self._next_count = count = (self._next_count or 0) + 1
        if regular.counts_first:
            self._prefix = prefix = regular.counted % count
            self._text_start = len(prefix)
        else:
            self._tail = regular.counted % count
        if self._texts is not None:
            self._texts.append(text)
        return text

    def _take_reported(self, payload: bytes) -> str:
        """The text of one event with a report, which is counted; an empty text if the event does not match."""
        if self._reported is None:
            return ""
        prefix, suffix, counts, tail, _ = self._reported
        if not payload.startswith(prefix) or not payload.endswith(tail):
            return ""
        size = len(payload)
        raw, suffix, report = payload[len(prefix) : size - len(tail)].partition(suffix)
        if not suffix or counts.fullmatch(report) is None:
            return ""
        try:
            text = raw.decode()
            if not text or not text.isprintable():
                return ""
            if "\\" in text or '"' in text:  # it refuses a quote that is not escaped, and halves of surrogate pairs
                text = _STRING.decode(b'"%b"' % raw)
        except ValueError:
            return ""
        self.frames += 1
        self._last = size
        self._size += size
        self._last_event = payload
        if self._texts is not None:
            self._texts.append(text)
        return text

    def read(self, data: bytes) -> list[Event]:
        """Return the events of one read that consists of text deltas only; an empty list for any other read."""
        template = self.template
        if template is None or not data.startswith(self._prefix) or len(data) > self.max_event:
            return []
        if self._regular is not None or self._reported is not None:
            return self._read_each(data, template)
        if self._next_count is None:  # the common case: one event, the same padding
            quote = data.find(b'"', self._text_start)
            if data[quote:] == self._suffix and (text := plain_text(data[self._text_start : quote])):
                self.frames += 1
                self._size += len(data)
                self._last = len(data)
                return [template.make_event(text)]
        count = self._next_count
        events = self._read_all(data, template)
        if not events and count is not None:
            self._expect(template, count)
        return events

    def _read_each(self, data: bytes, template: DeltaTemplate) -> list[Event]:
        """As `read`, for a regular template or one with reports: no event that matches it has an empty line in it."""
        count, before = self._next_count, (self.frames, self._size, self._last, self._last_event)
        regular, reported = self._regular, self._reported
        blank = reported.end if reported is not None else b"\n\n"
        events: list[Event] = []
        start = 0
        while (end := data.find(blank, start)) >= 0 and data.startswith(self._prefix, start):
            end += len(blank)
            event = data[start:end]
            text = self._take_regular(event, regular) if regular is not None else self._take_reported(event)
            if not text:
                break
            events.append(template.make_event(text))
            if end == len(data):
                return events
            start = end
        self.frames, self._size, self._last, self._last_event = before
        if events:
            self._expect(template, count)
            if self._texts is not None:
                del self._texts[-len(events) :]
        return []

    def _read_all(self, data: bytes, template: DeltaTemplate) -> list[Event]:
        """As `read`, for any number of events with any padding."""
        events: list[Event] = []
        texts = []
        padding = {slot.name: self.fields.get(slot.name) for slot, _ in template.suffix_slots if slot.kind == "padding"}
        frames = start = 0
        while data.startswith(self._prefix, start):
            text_at = start + self._text_start
            quote = data.find(b'"', text_at)
            text = plain_text(data[text_at:quote])
            end, values = self._match_suffix(data, quote)
            if not text or not end:
                return []
            for (slot, _), value in zip(template.suffix_slots, values, strict=True):
                if slot.kind == "padding" and padding[slot.name] != value.decode():
                    padding[slot.name] = value.decode()
                    if self.format.padding_event is not None:
                        events.append(self.format.padding_event({slot.name: value.decode()}))
            events.append(template.make_event(text))
            texts.append(text)
            frames += 1
            whole = end == len(data)
            if whole:
                self._remember(data[quote:], values)
                self.frames += frames
                self._size += end
                self._last = end - start
                if self._texts is not None:
                    self._texts += texts
            self._expect_next()
            if whole:
                return events
            start = end
        return []

    def _match_suffix(self, data: bytes, at: int) -> tuple[int, list[bytes]]:
        """Match the bytes after a text, whose closing quote is at `at`: the end of the event, and its slots' values.

        The end is 0 if they do not match.
        """
        template = self.template
        if template is None or at < 0 or not data.startswith(template.suffix, at):
            return 0, []
        at += len(template.suffix)
        values = []
        for slot, literal in template.suffix_slots:
            end = data.find(literal, at)
            value = data[at:end]
            if end < 0 or not self._is_legal(value, slot):
                return 0, []
            values.append(value)
            at = end + len(literal)
        return at, values

    def _remember(self, suffix: bytes, values: list[bytes]) -> None:
        """Remember how the last event ended, and its padding, which is now the padding of the stream."""
        if self._texts is None:  # else every event takes the longer way, which keeps its text
            self._suffix = suffix
            self._text_end = -len(suffix)
        if values and self.template is not None:
            for (slot, _), value in zip(self.template.suffix_slots, values, strict=True):
                if slot.kind == "padding":
                    self.fields[slot.name] = value.decode()

    def _is_legal(self, value: bytes, slot: TemplateSlot) -> bool:
        """Whether a slot of the next event may have this value."""
        if slot.kind == "spaces":
            return not value.strip(b" ")
        return value.isalnum() if slot.kind == "padding" else value == b"%d" % (self._next_count or 0)

    def _expect_next(self) -> None:
        """Expect an event whose counter, if there is one, is greater by one."""
        if self._next_count is not None:
            assert self.template is not None
            self._expect(self.template, self._next_count + 1)

    def _expect(self, template: DeltaTemplate, count: int | None) -> None:
        """Expect an event with this counter, which may be none, and with any padding."""
        self._next_count = count
        number = b"%d" % count if count is not None else b""
        self._prefix = prefix = number.join(template.prefix)
        self._text_start = len(prefix)
        self._suffix = ()
        if self._regular is not None:
            self._tail = number.join(self._regular.tail)

    # The template.

    def use(self, template: DeltaTemplate, fields: dict[str, object], count: int | None) -> None:
        """Expect text deltas that match this template. `count` is the counter of the next one."""
        self.template = template
        self.fields = fields
        self._regular = _regular_template(template, self.format) if count is not None else None
        self._expect(template, count)

    def learn(self, event: bytes, delta: TextEvent, fields: dict[str, object]) -> None:
        """Learn the template of this event, which the slow path read as `delta`. Without a proof there is none."""
        self.drop()
        self._unused += 1
        if self.format.reported is not None:
            reported = learn_reported(self.format, event, delta)
            if reported is not None:
                self.use(reported[0], fields, None)
                self._reported = reported[1]
            return
        template = learn_template(self.format, event, delta)
        if template is not None:
            self.use(template[0], fields, template[1])

    def learn_opening(self, first: bytes, events: list[Event]) -> None:
        """Learn the opening of this stream, for later streams of the same target, if a template was learned."""
        openings, opening, template = self._openings, self.format.opening, self.template
        if openings is None or opening is None or template is None:
            return
        openings.learn(len(first) + template.size, partial(learn_opening, opening, first, events, template))

    @property
    def is_stale(self) -> bool:
        """Whether the template must be learned again after the slow path has read: it is missing or has counters.

        The slow path has read events that the counters do not include, so the next text delta could not match. In
        dialects with `ReportedUsage` a text delta that did not match has other members, and so will the next one.
        """
        changes = self._next_count is not None or self.format.reported is not None
        return self._unused < _MAX_UNUSED and (self.template is None or changes)

    def advance(self, value: object, delta: TextEvent) -> bool:
        """Keep the template after a text delta with this JSON, which the slow path read, and count it.

        This is for dialects that repeat the text, so that a text with an escape does not cost a proof. Returns False,
        without a template, if the delta differs from the template in more than its text, padding and counters. Then it
        may belong to another text.
        """
        template = self.template
        if self.format.repeated is None or template is None:
            return False
        counts = [value_at(value, slot.path) for slot in self.format.slots if slot.kind == "counter"]
        count = next((count + 1 for count in counts if type(count) is int and count >= 0), None)
        if (
            (count is None) != (self._next_count is None)
            or template.members != members_of(self.format, value, delta)
            or template.make_event(delta.text) != delta
        ):
            self.drop()
            return False
        self._expect(template, count)
        return True

    @property
    def next_delta(self) -> bytes:
        """The JSON of the next text delta, without text and padding and with sorted members."""
        assert self.template is not None
        counted = (slot.name for slot in self.format.slots if slot.kind == "counter")
        counts = dict.fromkeys(counted, self._next_count) if self._next_count is not None else {}
        return encode_delta({**self.template.members, **counts})

    def drop(self) -> None:
        """Forget the template."""
        self.template = self._reported = None
        self._prefix = self._suffix = ()

    def take_progress(self) -> tuple[int, int, int]:
        """Let the slow path catch up: return the number of events read here, their bytes, and the bytes of the last."""
        frames, size = self.frames, self._size
        self._unused = 0 if frames else self._unused
        self.frames = self._size = 0
        self._suffix = ()  # the padding may change
        return frames, size, self._last

    def take_text(self) -> tuple[str, int | None]:
        """The text that the fast path has read since the slow path caught up, and the counter of the next event."""
        text = "".join(self._texts or ())
        self._texts = []
        return text, self._next_count

    def take_deltas(self) -> tuple[str, bytes]:
        """The text that the slow path has not seen, and the JSON of the last event that matched.

        Only dialects with `ReportedUsage` use it."""
        text, last = "".join(self._texts or ()), self._last_event
        self._texts, self._last_event = [], b""
        return text, last.removeprefix(b"data: ")

    # The opening and the trailer.

    def feed_opening(self, first: bytes, text: bytes = b"") -> Opening | None:
        """Read the opening, and the text delta after it if that has arrived too; None if they do not match.

        `text` may also be the last part of the opening. Then the result has no characters.
        """
        if self._openings is None or len(first) + len(text) > self.max_event:
            return None
        data = first + text
        opening = self._openings.match(data)
        if opening is None:
            return None
        if opening.raw == data:
            text = b""
        elif len(opening.raw) != len(first):
            return None
        self._use_opening(opening)
        if text:
            opening.chars = self.feed(text)
            if not opening.chars:
                self.drop()
                return None
        self._openings.confirm()
        self.opening = opening
        self.forwardable = True
        return opening

    def read_opening(self, data: bytes) -> list[Event]:
        """Return the events of a first read: the known opening, perhaps with text deltas. Empty if it is another."""
        if self._openings is None or len(data) >= self.max_event:
            return []
        opening = self._openings.match(data)
        if opening is None:
            return []
        self._use_opening(opening)
        events, rest = opening.events, data[len(opening.raw) :]
        if rest:
            text = self.read(rest)
            if not text:
                self.drop()
                return []
            events = [*events, *text]
        self._openings.confirm()
        self.opening = opening
        return events

    def _use_opening(self, opening: Opening) -> None:
        """Expect text deltas that match the opening's template, with the prefix of this stream."""
        self.template = opening.template
        self.fields = opening.fields
        self._prefix = opening.prefix
        self._text_start = len(opening.prefix)
        if not opening.template.suffix_slots:
            self._suffix = opening.template.suffix
            self._text_end = -len(self._suffix)

    def feed_trailer(self, data: bytes) -> StreamTrailer | None:
        """Add whole frames to the trailer and return it; None if they are not part of one and must be read."""
        trailer, format = self.trailer, self.format.trailer
        if trailer is None and format is not None and format.mark.search(data) is not None:
            trailer = self._expected_trailer(format)
        if trailer is None or len(data) > self.max_event or not trailer.feed(data):
            return None
        self.trailer = trailer
        self._prefix = ()  # no text may follow
        return trailer

    def _expected_trailer(self, format: TrailerFormat) -> StreamTrailer | None:
        """An empty trailer, or None if the stream is not in a state in which a trailer may begin."""
        reader, grammar = self.frame_reader, self.grammar
        if self.opening is not None:
            return format.make(self.opening.events, self.fields)
        if format.after is not None and grammar is not None:
            return format.after(self.reader, grammar)
        return reader.trailer() if reader is not None and grammar is not None and grammar.expects_end else None


class _RegularTemplate(NamedTuple):
    """A template with a counter, of which the bytes behind the text are compared at once.

    With `padded`, the `suffix` and then padding are behind the text. The rest is the `tail`: one literal, or two with
    the counter between them. `counted` is a format string for the part with the counter: the prefix (`counts_first`) or
    the tail.
    """

    padded: bool
    suffix: bytes
    tail: tuple[bytes, ...]
    counts_first: bool
    counted: bytes


def _regular_template(template: DeltaTemplate, format: PassThroughFormat) -> _RegularTemplate | None:
    """The template in a form that is faster to match; None if its padding has events, or is behind the counter."""
    slots = template.suffix_slots
    padded = bool(slots) and slots[0][0].kind == "padding"
    if format.padding_event is not None or any(slot.kind != "counter" for slot, _ in slots[padded:]):
        return None
    tail = tuple(literal for _, literal in slots)
    tail = tail if padded else (template.suffix, *tail)
    counts_first = len(template.prefix) == 2
    literals = template.prefix if counts_first else tail
    counted = b"%d".join(literal.replace(b"%", b"%%") for literal in literals)
    return _RegularTemplate(padded, template.suffix, tail, counts_first, counted)


def encode_delta(members: Mapping[str, object]) -> bytes:
    """Members of a text delta as JSON that can be compared: sorted, and with numbers that differ from booleans."""
    return msgspec.json.encode(members, order="sorted")
