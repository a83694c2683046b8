"""SlowPath: a provider's bytes → events, by all stages: framing, JSON, the dialect's frame reader, the grammar.

It reads any bytes, however they are split. The fast path (`core/fast/__init__.py`) recognises some events by their
bytes alone, and `skip` tells the slow path of them. To decide about that, `feed` also returns which of the frames that
it has read were healthy text (`SlowRead`).
"""

from typing import NamedTuple

import msgspec

from penstock.core.dialects.dialect import Dialect, UpstreamDialect
from penstock.core.fast.format import FrameKind, SlowRead, StreamTrailer, TextFormat
from penstock.core.fast.matcher import TextMatcher
from penstock.core.hub.events import Event, Fault, Repair
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.sink import Sink
from penstock.core.hub.usage import Usage
from penstock.core.wire.complexity import SMALL, Outline, is_intricate, outline_of
from penstock.core.wire.frame import Frame
from penstock.core.wire.payload import MAX_DEPTH, TooComplexError, decode_leniently, is_too_deep
from penstock.core.wire.sniff import Sniffer

_JSON = msgspec.json.Decoder()
# An unstreamed answer is one event to the reader, and may contain images or audio. So may an event that repeats the
# answer (`UpstreamDialect.large_events`).
MAX_BODY = 32_000_000
# After the typed decoders have refused this many frames in a row, they try only one frame in as many.
_MAX_MISSES = 16
# The length of the shortest chunk with all its fields. A sentinel is shorter, so no decoder tries it.
_LEAST_CHUNK = 60
# The framings whose streams may have a marker of the end.
_MARKED = ("sse", "event-stream")
# What is no event. After a complete answer it belongs to nothing.
_GARBAGE = ("not-a-stream", "event-stream-damaged")


class FailedStream(NamedTuple):
    """The state of a stream when it failed: the number of its frames, and the usage reported in them."""

    frames: int
    usage: Usage | None


class SlowPath:
    """The stages of one stream. `format` is that of its fast path, or None if it has none."""

    frames = 0
    """The number of frames so far, with those that were skipped."""
    failed: FailedStream | None = None
    """The state when the stream failed, or None. Frames after the failure are still read, for their usage."""
    _first = True  # whether nothing has been read
    _idle = False  # whether the framer was between two events after the last read
    _misses = 0  # frames in a row that the typed decoders refused

    def __init__(
        self, dialect: Dialect, upstream: UpstreamDialect, max_event: int, format: TextFormat | None, *, whole: bool
    ) -> None:
        self._max_event = max_event
        self._format = format
        self._large_events = upstream.large_events
        largest = max(max_event, MAX_BODY) if upstream.large_events else max_event
        self._framer = Sniffer(largest, json_lines=dialect.framing == "json-lines")
        self._seen = Sink(whole=whole)  # events as read
        self._dialect = upstream.frame_reader(self._seen)
        self._sentinel = self._dialect.sentinel.encode()
        self._grammar = Grammar(self._dialect.envelope)
        self._out = Sink()  # events in legal order

    @property
    def done(self) -> bool:
        """Whether the provider has sent the end of the stream."""
        return self._dialect.done

    @property
    def withheld(self) -> int:
        """The number of events that are known and emitted at the end only."""
        return self._grammar.withheld

    @property
    def framing(self) -> str:
        """The framing of the stream; empty while it is unknown."""
        return self._framer.name

    def feed(self, data: bytes) -> SlowRead:
        """Read bytes; return the events that they complete."""
        first, idle = self._first, self._idle
        self._first = False
        items = self._framer.feed(data)
        self._idle = self._framer.idle
        texts, opened = 0, (0, 0)
        kind: FrameKind = "other"
        for place, item in enumerate(items):
            if first and not texts:
                opened = place, len(self._out.events)
            kind = self._read_frame(item) if isinstance(item, Frame) else self._read_defect(item)
            texts += kind == "text"
        events = self._out.take()
        return SlowRead(
            data=data,
            events=events,
            items=items,
            first=first,
            whole=self._idle and (idle or first),
            texts=texts,
            opened=opened if texts else (len(items), len(events)),
            last=kind if self._idle else "other",
        )

    def skip_opening(self, data: bytes) -> None:
        """Continue after an opening that the fast path has read: its events are not emitted again."""
        self.feed(data)

    def skip(self, matcher: TextMatcher) -> None:
        """Continue after the text deltas that a matcher has taken since this was called last."""
        frames, size, last, text = matcher.take_all()
        if not frames:
            return
        template, seen, out = matcher.template, self._seen, self._out
        offset, line = self._framer.skip(frames, size, template.lines)
        seen.offset = out.offset = offset - len(last)
        seen.line = out.line = line - template.lines
        self.frames += frames
        self._dialect.follow_text(template.make_event(text), last[template.json_start :])
        self._grammar.order(seen.take(), out)

    def trailer(self) -> StreamTrailer | None:
        """An empty trailer, if text is expected and the stream can have the usual ending; else None."""
        return self._dialect.trailer(self._grammar)

    def close(self) -> list[Event]:
        """End the stream: return the last events, with the `End`."""
        out, dialect, grammar = self._out, self._dialect, self._grammar
        for item in self._framer.close():
            if isinstance(item, Frame):
                self._read_frame(item)
            else:
                self._read_defect(item)
        dialect.close()
        grammar.order(self._seen.take(), out)
        cut = self._framer.cut
        if cut and dialect.done:
            out.repair("data-after-done", "the bytes stop in the middle of an event")
        if dialect.done or (dialect.finish_is_last and grammar.whole):
            cut = False  # the answer is complete
        if not cut and not dialect.done and dialect.marks_end and self.framing in _MARKED and grammar.whole:
            out.repair("no-done")
        grammar.close(out, cut=cut, unread=dialect.unread)
        return out.take()

    def _read_defect(self, item: Repair | Fault) -> FrameKind:
        """Take a defect of the framing."""
        seen, out = self._seen, self._out
        seen.offset = out.offset = item.offset
        seen.line = out.line = item.line
        if isinstance(item, Repair):
            out.events.append(item)  # legal everywhere
        elif self.done and item.code in _GARBAGE:
            out.repair("data-after-done", item.message[:80])  # garbage after a complete answer
        else:
            self._dialect.flush()
            self._grammar.order([*seen.take(), item], out)
            self._note_failure()
        return "other"

    def _read_frame(self, frame: Frame) -> FrameKind:
        self.frames += 1
        seen, out, format, grammar = self._seen, self._out, self._format, self._grammar
        seen.offset = out.offset = frame.offset
        seen.line = out.line = frame.line
        outline = outline_of(frame.data) if len(frame.data) > SMALL else None
        value: object = None
        if len(frame.data) > self._max_event and self._is_too_large(frame.data):
            self._dialect.flush()
            seen.fault("event-too-large", f"an event exceeds {self._max_event} bytes")
        elif outline is not None and outline.is_costly():
            self._refuse_complex()
        elif format is not None and format.typed and self._is_usual(frame):
            out.events += seen.events  # legal without the grammar
            seen.events = []
            return "text"
        else:
            value = self._read_json(frame, outline)
        before, events, seen.events = len(out.events), seen.events, []
        grammar.order(events, out)
        if grammar.fault is not None:
            self._note_failure()
        elif format is not None and not format.typed:
            return format.kind_of(frame, value, events, out.events[before:], grammar)
        return "other"

    def _note_failure(self) -> None:
        if self.failed is None and self._grammar.fault is not None:
            self.failed = FailedStream(self.frames, self._grammar.usage)

    def _is_usual(self, frame: Frame) -> bool:
        """Try the dialect's typed decoders, which read healthy text in less time. Return whether they did."""
        if self._misses > _MAX_MISSES and self.frames % _MAX_MISSES:
            return False  # the frames of this stream have other members; try again now and then
        if not self._grammar.expects_text or frame.event or len(frame.data) < _LEAST_CHUNK:
            return False
        usual = self._dialect.read_usual(frame.data)
        self._misses = 0 if usual else self._misses + 1
        return usual

    def _read_json(self, frame: Frame, outline: Outline | None) -> object:
        """Read any frame; returns its JSON, or None if it is defective."""
        if self._sentinel and frame.data.strip() == self._sentinel:  # in every stream, so not tried as JSON first
            self._dialect.read_undecodable(frame.data, frame.event)
            return None
        if is_too_deep(frame.data, outline and outline.outside):
            self._seen.fault("bad-json", f"JSON nested more than {MAX_DEPTH} levels deep")
            return None
        try:
            value: object = _JSON.decode(frame.data)
        except ValueError:
            self._read_leniently(frame, outline)
            return None
        if outline is not None and self._is_intricate([value]):
            self._refuse_complex()
            return None
        if type(value) is dict:
            self._dialect.read(value, frame.event)
        else:
            self._dialect.read_odd(value, frame.event)
        return value

    def _read_leniently(self, frame: Frame, outline: Outline | None) -> None:
        try:
            payload = decode_leniently(frame.data, self._dialect.sentinel, outline)
        except TooComplexError:
            self._refuse_complex()
            return
        if payload is None:
            self._dialect.read_undecodable(frame.data, frame.event)
            return
        if outline is not None and self._is_intricate(payload.values):
            self._refuse_complex()
            return
        for defect in payload.defects:
            self._seen.repair(defect)
        for value in payload.values:
            self._dialect.read_odd(value, frame.event, surrogates=payload.surrogates)

    def _is_intricate(self, values: list[object]) -> bool:
        return is_intricate(values, pieces=not self._dialect.limits_pieces)

    def _is_too_large(self, data: bytes) -> bool:
        """Whether an event beyond the limit is not one that may repeat the answer."""
        return self._large_events is None or self._large_events.search(data) is None

    def _refuse_complex(self) -> None:
        self._dialect.flush()
        self._seen.fault("event-too-complex", "an event holds more values, or more pieces of an answer, than are read")
