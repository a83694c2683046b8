"""The fast path: forward a healthy stream by comparing bytes, without a parser, and still know what it says.

Nearly all events of a healthy stream are text deltas: the same bytes but for a few words. A *template* holds those
bytes. An event that matches it is recognised by two comparisons and one slice. Everything else takes the slow path:
framing, JSON, the dialect's frame reader, the grammar (`core/stream.py`). Both paths give the same events, the same
completion and the same accounting. This page is the whole argument why.

**What is learned.** The slow path has read an event, found it healthy, and it says one thing: a `TextDelta` or a
`ReasoningDelta`. Its bytes are one SSE event: one `data:` line, perhaps an `event:` line before it, no CR.
`learn_template` cuts them into literals and *slots*. One slot is the text. The dialect's description
(`PassThroughFormat`) names the others: *padding*, which some providers add against eavesdroppers and which means
nothing, and *counters*, which grow by one with each event.

**How it is proved: by substitution.** Another text, another padding and another number are put into the slots. The JSON
of the result must be the JSON of the original, changed at the paths of those members and nowhere else. So each slot
lies inside the JSON string (or is the JSON number) that it is taken for, and the literals say everything else. The
literals are ASCII. What may stand in a slot is restricted so that it cannot end its JSON string, and so that all
clients see the same lines: a text is not empty, is valid UTF-8 and printable (no control character, no U+2028), and has
neither quote nor backslash; padding is alphanumeric; a counter is the number before it plus one. Hence an event that
matches has the JSON of the learned one but for its slots. The dialect promises, by having a description, that its frame
reader makes one text delta of such JSON, and that reading a text delta leaves the reader in a state in which the next
one is read in the same way. Anything that could change that state is not text, so it does not match, and takes the slow
path; the slow path drops the template unless it found healthy text again.

**Why the HTTP parser may be skipped.** `http/client.py` hands over a read only if its bytes are exactly one whole chunk
(size in plain hexadecimal, payload, CR LF), and only while the parser stands between two chunks. To skip a whole chunk
leaves the parser where it is: between two chunks. The payload is compared as above; the framed bytes are written to the
client as they came. A read that is not one whole chunk, or not taken here, goes to the parser, which has missed nothing
but whole chunks. No event spans two payloads: a payload matches only if it begins and ends as the template does.

**How the slow path catches up.** It is behind by the events that were read here. What it must know of them: how many
there were, their bytes and lines (for the places of later repairs), and that the choice has said text. `take_counts`
tells it that, before it reads on. Padding that is remembered as a field of the stream is written to the same dictionary
that the frame reader uses.

**Openings.** The first event of an answer is that of the answer before, of the same target, but for an id, a time,
perhaps a fingerprint and padding; and so are the literals of its text deltas. `OpeningTemplate` is learned from one
answer by the same proof, for both events. Its slots have narrow patterns (no quote, no backslash, digits only). It
belongs to a target, so that one provider's bytes are never compared with another's.

**Trailers.** By rules 3 and 4 of `core/grammar.py` a finish and a usage report are told when the bytes end, so reading
them late changes nothing. A `StreamTrailer` accepts exactly: one finish without content, for the only choice, with a
reason that needs no repair; perhaps one usage report, of which nothing has to be repaired or merged; then the sentinel.
For that input the grammar yields `Finish`, `UsageReport`, `End`, and `StreamTrailer.events` the same. If anything else
comes, the bytes held are read by the slow path together with it, as if they had come at once. A trailer may begin only
where text is expected: one choice, no tool calls, no fault, no usage so far.

`tests/invariants.py` checks all of this for every stream that the properties and the fuzzer produce, the tests of the
corpus for every recorded stream, and `tests/dialects/` for a second dialect.
"""

from collections.abc import Callable, Mapping

from penstock.core.events import Event
from penstock.core.grammar import Grammar
from penstock.core.passthrough_format import (
    DeltaTemplate,
    FastFrameReader,
    Opening,
    PassThroughFormat,
    Slot,
    StreamTrailer,
    TextEvent,
    TrailerFormat,
)
from penstock.core.templates import OpeningTemplate, alternating, learn_template, plain_text


class PassThrough:
    """The fast path of one stream. It has no template until the slow path has read healthy text, or an opening fits.

    Either the reader that made it uses it (`StreamReader.feed`), or the relay does, for payloads that need no parser.
    """

    template: DeltaTemplate | None = None
    """The template of the next event; None while there is none."""
    trailer: StreamTrailer | None = None
    """The usual ending, as far as it has come; None before, and where it is another one."""
    opening: Opening | None = None
    """The opening, if it was read here and the slow path does not know of it yet."""
    forwardable = False
    """Whether the bytes that were fed last are healthy and whole events: they may be forwarded as they are."""
    frame_reader: FastFrameReader | None = None
    grammar: Grammar | None = None
    """Those of the slow path, once it has read something of this stream."""
    fields: dict[str, object]
    """The fields of the stream, padding among them."""

    def __init__(self, format: PassThroughFormat, max_event: int, openings: OpeningTemplate | None) -> None:
        self.format = format
        self.max_event = max_event
        """How many bytes one event may have."""
        self._openings = openings if format.opening is not None else None
        # What `feed` needs; an attribute of the instance is found faster than one of the class.
        self.on_text: Callable[[str], int] = len
        """Given the text of each event that `feed` takes; returns its length."""
        self.frames = self._size = self._last = 0
        """Events read here of which the slow path does not know yet; their bytes, and those of the last one."""
        # What the next event begins with, and what it ends with if its padding is the same. Nothing starts or ends with
        # an empty tuple.
        self._before: bytes | tuple[()] = ()
        self._behind: bytes | tuple[()] = ()
        self._text_at = self._text_end = 0
        self._counts: Mapping[str, int] | None = None  # the counters of the next event, if it has such

    # Text deltas.

    def feed(self, payload: bytes) -> int:
        """How many characters of text an event says; 0 if it does not match, and has to take the slow path.

        Nearly every event comes here: hence its form. Most end as the one before; where there are counters, none does.
        """
        if not payload.startswith(self._before):
            return 0
        if not payload.endswith(self._behind):
            return self._feed_changed(payload)
        try:
            text = payload[self._text_at : self._text_end].decode()
        except UnicodeDecodeError:
            return 0
        if not text or not text.isprintable() or "\\" in text or '"' in text:
            return 0
        self.frames += 1
        self._last = size = len(payload)
        self._size += size
        return self.on_text(text)

    def _feed_changed(self, payload: bytes) -> int:
        """The same, of an event that begins as it should and does not end as the one before."""
        quote = payload.find(b'"', self._text_at)
        end, values = self._match_behind(payload, quote)
        text = plain_text(payload[self._text_at : quote]) if end == len(payload) else ""
        if not text:
            return 0
        self._remember(payload[quote:], values)
        self.frames += 1
        self._last = end
        self._size += end
        if self._counts is not None:
            self._count_on(self._counts)
        return self.on_text(text)

    def read(self, data: bytes) -> list[Event]:
        """What the text deltas of one read say; nothing if there is anything else in it."""
        template = self.template
        if template is None or not data.startswith(self._before) or len(data) > self.max_event:
            return []
        if self._counts is None:  # the common case: one event, the same padding
            quote = data.find(b'"', self._text_at)
            if data[quote:] == self._behind and (text := plain_text(data[self._text_at : quote])):
                self.frames += 1
                self._size += len(data)
                self._last = len(data)
                return [template.make_event(text)]
        counts = self._counts
        events = self._read_all(data, template)
        if not events and counts is not None:
            self._expect(template, counts)
        return events

    def _read_all(self, data: bytes, template: DeltaTemplate) -> list[Event]:
        """The same, of any number of events with any padding."""
        events: list[Event] = []
        padding = {slot.name: self.fields.get(slot.name) for slot, _ in template.slots if slot.kind == "padding"}
        frames = start = 0
        while data.startswith(self._before, start):
            opening = start + self._text_at
            quote = data.find(b'"', opening)
            text = plain_text(data[opening:quote])
            end, values = self._match_behind(data, quote)
            if not text or not end:
                return []
            for (slot, _), value in zip(template.slots, values, strict=True):
                if slot.kind == "padding" and padding[slot.name] != value.decode():
                    padding[slot.name] = value.decode()
                    if self.format.tell_padding is not None:
                        events.append(self.format.tell_padding({slot.name: value.decode()}))
            events.append(template.make_event(text))
            frames += 1
            whole = end == len(data)
            if whole:
                self._remember(data[quote:], values)
                self.frames += frames
                self._size += end
                self._last = end - start
            if self._counts is not None:
                self._count_on(self._counts)
            if whole:
                return events
            start = end
        return []

    def _match_behind(self, data: bytes, at: int) -> tuple[int, list[bytes]]:
        """Where an event ends whose text ends here, and what is in the slots behind the text; 0 if it differs."""
        template = self.template
        if template is None or at < 0 or not data.startswith(template.behind, at):
            return 0, []
        at += len(template.behind)
        values = []
        for slot, literal in template.slots:
            end = data.find(literal, at)
            value = data[at:end]
            if end < 0 or not (value.isalnum() if slot.kind == "padding" else value == self._number(slot)):
                return 0, []
            values.append(value)
            at = end + len(literal)
        return at, values

    def _remember(self, behind: bytes, values: list[bytes]) -> None:
        """So the last event ended, with these values. Its padding is the padding of the stream now."""
        self._behind = behind
        self._text_end = -len(behind)
        if values and self.template is not None:
            for (slot, _), value in zip(self.template.slots, values, strict=True):
                if slot.kind == "padding":
                    self.fields[slot.name] = value.decode()

    def _number(self, counter: Slot) -> bytes:
        return b"%d" % self._counts[counter.name] if self._counts is not None else b""

    def _count_on(self, counts: Mapping[str, int]) -> None:
        """Expect the next numbers."""
        assert self.template is not None
        self._expect(self.template, {name: count + 1 for name, count in counts.items()})

    def _expect(self, template: DeltaTemplate, counts: Mapping[str, int]) -> None:
        """Expect an event with these numbers, if there are such, and with any padding."""
        self._counts = counts or None
        numbers = [self._number(slot) for slot in template.counters]
        self._before = before = b"".join(alternating(template.before, numbers))
        self._text_at = len(before)
        self._behind = ()

    # The template.

    def use(self, template: DeltaTemplate, fields: dict[str, object], counts: dict[str, int]) -> None:
        """Expect text deltas of this template. `counts` are the counters of the next one."""
        self.template = template
        self.fields = fields
        self._expect(template, counts)

    def learn(self, event: bytes, delta: TextEvent, fields: dict[str, object]) -> None:
        """Learn the template of this event, which the slow path has read; no template if it cannot be proved."""
        self.drop()
        template = learn_template(self.format, event, delta)
        if template is not None:
            self.use(template[0], fields, template[1])

    def learn_opening(self, first: bytes, events: list[Event]) -> None:
        """Remember for later streams how this one was opened, with this event, if its template is that of its text."""
        openings, opening, template = self._openings, self.format.opening, self.template
        if openings is not None and opening is not None and template is not None and self._counts is None:
            openings.learn(opening, first, events, template)

    @property
    def is_stale(self) -> bool:
        """When the slow path has read on: whether the next text delta cannot match, because the counters have moved."""
        return self.template is None or self._counts is not None

    def drop(self) -> None:
        """Have no template any more."""
        self.template = None
        self._before = self._behind = ()

    def take_counts(self) -> tuple[int, int, int]:
        """The slow path reads on: how many events were read here, their bytes, and the bytes of the last one."""
        frames, size = self.frames, self._size
        self.frames = self._size = 0
        self._behind = ()  # the padding may change
        return frames, size, self._last

    # The opening and the trailer.

    def feed_opening(self, first: bytes, text: bytes = b"") -> Opening | None:
        """Take in the first event, and the one behind it if that has come too; None if they are not the usual ones."""
        if self._openings is None or len(first) + len(text) > self.max_event:
            return None
        opening = self._openings.match(first)
        if opening is None or opening.size != len(first):
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
        """What a first read says, if it is the usual opening and perhaps text behind it; otherwise nothing."""
        if self._openings is None or len(data) >= self.max_event:
            return []
        opening = self._openings.match(data)
        if opening is None:
            return []
        self._use_opening(opening)
        events, rest = opening.events, data[opening.size :]
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
        """Expect text deltas of the opening's template, which begin with what belongs to this stream."""
        self.template = opening.template
        self.fields = opening.fields
        self._before = opening.before
        self._text_at = len(opening.before)
        if not opening.template.slots:
            self._behind = opening.template.behind
            self._text_end = -len(self._behind)

    def feed_trailer(self, data: bytes) -> StreamTrailer | None:
        """Take in whole frames if they are of the usual ending, which is returned then. They must be fed if not."""
        trailer, format = self.trailer, self.format.trailer
        if trailer is None and format is not None and format.mark.search(data) is not None:
            trailer = self._expected_trailer(format)
        if trailer is None or len(data) > self.max_event or not trailer.feed(data):
            return None
        self.trailer = trailer
        self._before = ()  # no text may follow
        return trailer

    def _expected_trailer(self, format: TrailerFormat) -> StreamTrailer | None:
        """What takes the usual ending, if there can be one."""
        if self.opening is not None:
            return format.make(self.opening.events, self.fields)
        reader, grammar = self.frame_reader, self.grammar
        return reader.trailer() if reader is not None and grammar is not None and grammar.expects_end else None
