"""StreamReader and StreamWriter: a provider's bytes → events, and events → a client's bytes."""

import re
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol, Self

import msgspec

from penstock.core.dialects.answer_extras import AnswerExtras
from penstock.core.dialects.dialect import AnswerFacts, AnswerWriter, FrameReader
from penstock.core.dialects.registry import answer_dialect, find_dialect, upstream_dialect
from penstock.core.fast.format import FastFrameReader, FastResult, StreamTrailer, TextEvent
from penstock.core.fast.passthrough import PassThrough, encode_delta
from penstock.core.fast.templates import OpeningTemplate, value_at
from penstock.core.hub.completion import Completion
from penstock.core.hub.events import (
    BlockEnd,
    BlockStart,
    ChoiceStart,
    Event,
    Finish,
    Repair,
    Start,
    TextDelta,
    UsageReport,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.grammar import Grammar
from penstock.core.hub.losses import Loss
from penstock.core.hub.sink import Sink
from penstock.core.hub.text import LINE_ENDS_TO_SOME
from penstock.core.hub.usage import Usage
from penstock.core.wire.complexity import SMALL, Outline, is_intricate, outline_of
from penstock.core.wire.frame import Frame, Framed
from penstock.core.wire.payload import MAX_DEPTH, TooComplexError, decode_leniently, is_too_deep
from penstock.core.wire.sniff import Sniffer
from penstock.errors import ClosedReaderError

_JSON = msgspec.json.Decoder()
# Far above any recorded event (the longest in thousands of streams has 12 KB), and far below what endangers memory.
MAX_EVENT = 1_000_000
# An unstreamed answer is one event to the reader, and may contain images or audio. So may an event that repeats the
# answer (`UpstreamDialect.large_events`).
MAX_BODY = 32_000_000
# After the typed decoders have refused this many frames in a row, they try only one frame in as many.
_MAX_MISSES = 16
# The length of the shortest chunk with all its fields. A sentinel is shorter, so no decoder tries it.
_LEAST_CHUNK = 60
# As an integer: `in` finds it five times as fast as b"\r", because it tries the operand as an integer first.
_CR = ord("\r")
# A template that does not match is learned again at one frame in this many.
_LEARN_EVERY = 8
# In dialects with `ReportedUsage`: what a message with text may also be read as, before its text; and a read of whole
# messages.
_BORDERS = frozenset((Start, ChoiceStart, BlockStart, BlockEnd))
_MESSAGES = re.compile(rb"(?:data: \{[^\r\n]*\}(?:\r\n\r\n|\n\n))+")
# Events of server-sent events that have data, and comments. Some clients fail on an event without data.
_EVENTS_WITH_DATA = re.compile(
    rb"(?>(?:[^d\n][^\n]*+\n)*+data:[^\n]*+\n(?:[^\n]++\n)*+\n|(?::[^\n]*+\n)++\n?)++"  # never backtracks
)
# The framings whose streams may have a marker of the end.
_MARKED = ("sse", "event-stream")
# What is no event. After a complete answer it belongs to nothing.
_GARBAGE = ("not-a-stream", "event-stream-damaged")


class Failed(NamedTuple):
    """The state of a stream when it failed: the number of its frames, and the usage reported in them."""

    frames: int
    usage: Usage | None


class EventReader(Protocol):
    """Reads events from bytes: a `StreamReader`, or a wrapper around one that changes or observes its events."""

    @property
    def done(self) -> bool:
        """Whether the provider has sent the end of the stream."""

    @property
    def frames(self) -> int:
        """The number of frames so far."""

    @property
    def failed(self) -> "Failed | None":
        """The state when the stream failed, or None if it has not."""

    @property
    def pending(self) -> int:
        """The number of events that are known and emitted at the end only: a finish for each choice, the usage."""

    def feed(self, data: bytes) -> list[Event]:
        """Read bytes; return the events that they complete."""

    def close(self) -> list[Event]:
        """End the stream: return the last events, with the `End`."""


class StreamReader:
    """Reads a provider's stream: bytes in, events out. No bytes of a provider make it raise an exception.

    `max_event` limits the bytes of one event, and so the memory of one stream. Events that
    repeat the whole answer may have `MAX_BODY` bytes.

    The slow path is the one that `docs/architecture.md` shows: framing, JSON, the dialect's frame reader, the grammar.
    A dialect may have a fast path for healthy text (`core/fast/passthrough.py`). Both produce the same events. The
    readers of all streams of one target share an `opening`, so that the usual first event takes the fast path too.
    """

    closed = False
    failed: Failed | None = None
    """The state when the stream failed, or None. Frames after the failure are still read, for their usage."""
    _has_read = False  # whether the slow path has read anything
    _idle = False  # whether the framer was between two events after the last read
    _framed = 0  # frames of the slow path
    _plain = 0  # those of them that were one healthy text delta and nothing else
    _first_plain = 0  # which frame was the first of them, in dialects without typed decoders
    _misses = 0  # frames in a row that the typed decoders refused
    _finishing = False  # whether the last frame was text that finishes the answer, in dialects with `ReportedUsage`
    _value: object = None  # the JSON of the last frame, if that was such a one; for dialects without typed decoders
    _usual = False  # whether the first frame was the usual opening
    _first = b""  # the bytes of that opening, if the slow path has read it
    _first_frames = 1  # the number of its frames
    _opened: list[Event]  # its events
    # The stages of the slow path, which are made when it is taken first.
    _ready = False
    _framer: Sniffer
    _seen: Sink
    _dialect: FrameReader
    _fast: FastFrameReader | None
    _grammar: Grammar
    _out: Sink

    def __init__(
        self,
        dialect: str = "openai_chat",
        *,
        max_event: int = MAX_EVENT,
        opening: OpeningTemplate | None = None,
        whole: bool = False,
    ) -> None:
        """`whole`: the answer is used only when it is complete. Then text that was lost on the way may be filled in."""
        self.dialect = dialect
        self._whole = whole
        known = find_dialect(dialect)
        self._json_lines = known.framing == "json-lines"
        self._upstream = known.upstream or upstream_dialect(dialect)  # raises the error if there is none
        self.max_event = max_event
        format = known.passthrough
        self.passthrough = PassThrough(format, max_event, opening) if format is not None else None
        """The fast path, which the relay may use in place of `feed`; None if the dialect has none."""

    @property
    def untouched(self) -> bool:
        """Whether the last read was only healthy text or the usual opening, so that it may be forwarded unchanged."""
        return self.passthrough is not None and self.passthrough.forwardable

    @property
    def trailer(self) -> StreamTrailer | None:
        """The part of the usual ending that has arrived, or None."""
        return self.passthrough.trailer if self.passthrough is not None else None

    @property
    def done(self) -> bool:
        """Whether the provider has sent the end of the stream."""
        fast = self.passthrough
        if fast is not None and fast.trailer is not None and fast.trailer.done:
            return True
        return self._ready and self._dialect.done

    @property
    def frames(self) -> int:
        """The number of frames so far."""
        fast = self.passthrough
        if fast is None:
            return self._framed
        opening = fast.opening.frames if fast.opening is not None else 0  # which the slow path has not counted
        return self._framed + opening + fast.frames + (fast.trailer.frames if fast.trailer is not None else 0)

    @property
    def pending(self) -> int:
        """The number of events that are known and emitted at the end only: a finish for each choice, the usage."""
        trailer = self.trailer
        return (self._grammar.pending if self._ready else 0) + (trailer.frames if trailer is not None else 0)

    @property
    def framing(self) -> str:
        """The framing of the stream (`sse`, `json-lines`, `json-array`, …); empty while it is unknown."""
        return self._framer.name if self._ready else "sse" if self.frames else ""

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Read bytes, however they are split; return the events that they complete."""
        if type(data) is not bytes:
            data = bytes(data)  # a bytearray or a memoryview
        fast = self.passthrough
        if fast is not None and fast.template is not None:
            if events := fast.read(data):
                fast.forwardable = fast.agreed is True
                return events
            if fast.feed_trailer(data) is not None:
                fast.forwardable = False
                return []
        if self.closed:
            raise ClosedReaderError("the stream was closed: make a new StreamReader for a new stream")
        if fast is None:
            if not self._ready:
                self._prepare()
            self._read(self._framer.feed(data))
            return self._out.take()
        if fast.trailer is not None:
            data = fast.trailer.raw + data
            fast.trailer = None
        if fast.template is not None:
            self._catch_up(fast)
        elif not self._ready:
            if events := fast.read_opening(data):
                fast.forwardable = fast.format.repeated is None
                return events
            self._prepare()
        return self._feed_slowly(fast, data)

    def _feed_slowly(self, fast: PassThrough, data: bytes) -> list[Event]:
        """Take the slow path, and decide whether the next events may take the fast one."""
        idle, plain, first = self._idle, self._plain, not self._has_read
        self._has_read = True
        self._finishing = fast.finishes = False
        self._value = None
        items = self._framer.feed(data)
        self._idle = self._framer.idle
        self._read(items)
        events = self._out.take()
        # Healthy: whole frames of text and nothing else; in the first read, the usual opening before them.
        text = 0 < len(items) == self._plain - plain
        if fast.format.reported is not None:  # the first message is a text delta too
            usage = self._grammar.usage
            correct = usage is None or usage.corrected() is usage  # else clients must get another report
            whole = self._idle and (idle or first) and correct and _MESSAGES.fullmatch(data) is not None
            healthy = text and whole
            forwardable = first or _BORDERS.isdisjoint(map(type, events))  # else the writer must know of the block
            forwardable = forwardable and not _has_odd_line_ends(data, crlf=True)
            fast.forwardable = healthy and forwardable
            last = self._finishing and len(items) == self._plain - plain + 1
            fast.finishes = whole and forwardable and last
        else:
            healthy = self._idle and (text if idle else self._is_opening(data, items, events))
            forwardable = fast.format.repeated is None and not _has_odd_line_ends(data, crlf=False)
            fast.forwardable = healthy and forwardable and _EVENTS_WITH_DATA.fullmatch(data) is not None
        if fast.format.repeated is not None:
            fast.agreed = None  # the writer has yet to write these events
            healthy = self._idle and self._value is not None  # the read is not forwarded, so only its end counts
        if not idle and self._fast is None:
            self._note_opening(fast, data, items, events)
        if not healthy:
            fast.drop()
        elif (
            isinstance(delta := events[-1], TextEvent)
            and not fast.advance(self._value, delta)
            and (fast.is_stale or self._framed % _LEARN_EVERY == 0)
        ):
            self._learn(fast, data, items[-1], delta)
        return events

    def close(self) -> list[Event]:
        """End the stream: return the last events, with the `End`."""
        if self.closed:
            return []
        fast, trailer = self.passthrough, self.trailer
        if trailer is not None and trailer.done:
            self.closed = True
            return trailer.events()
        if trailer is not None:
            return [*self.feed(b""), *self.close()]
        self.closed = True
        if fast is not None and fast.template is not None:
            self._catch_up(fast)
            fast.drop()
        elif not self._ready:
            self._prepare()
        self._read(self._framer.close())
        self._dialect.close()
        self._grammar.order(self._seen.take(), self._out)
        cut = self._framer.cut
        if cut and self.done:
            self._out.repair("data-after-done", "the bytes stop in the middle of an event")
        if self.done or (self._dialect.finish_is_last and self._grammar.whole):
            cut = False  # the answer is complete
        if not cut and not self.done and self._dialect.marks_end and self.framing in _MARKED and self._grammar.whole:
            self._out.repair("no-done")
        self._grammar.close(self._out, cut=cut, unread=self._dialect.unread)
        return self._out.take()

    def _is_opening(self, data: bytes, items: list[Framed], events: list[Event]) -> bool:
        """Whether this is the first read, and is the usual opening, perhaps with text after it, and nothing else."""
        if not self._usual or not self._framed == len(items) == self._plain + 1 or Repair in map(type, events):
            return False
        frames = [b"data:%b\n" % item.data for item in items if isinstance(item, Frame)]
        if b"".join(frames) != data:
            return False
        self._first = frames[0]
        return True

    def _note_opening(self, fast: PassThrough, data: bytes, items: list[Framed], events: list[Event]) -> None:
        """Note the opening in the first read, without the text after it, for a dialect that has no typed decoders."""
        count = len(items) - self._plain
        opened = events[: len(events) - self._plain]
        if fast.format.opening is None or self._framed != len(items) or not opened:
            return
        if self._plain and self._first_plain != count + 1:
            return  # something follows the text
        frames = [_frame_bytes(item) for item in items if isinstance(item, Frame)]
        if b"".join(frames) == data and Repair not in map(type, events):
            self._first = b"".join(frames[:count])
            self._first_frames = count
            self._opened = opened

    def _prepare(self) -> None:
        """Make the stages of the slow path, and set them to the state after an opening that the fast path read."""
        self._ready = True
        largest = max(self.max_event, MAX_BODY) if self._upstream.large_events else self.max_event
        self._framer = Sniffer(largest, json_lines=self._json_lines)
        self._seen = Sink(whole=self._whole)
        self._dialect = self._upstream.frame_reader(self._seen)
        self._sentinel = self._dialect.sentinel.encode()
        self._grammar = Grammar(self._dialect.envelope)
        self._out = Sink()
        self._fast = None
        fast = self.passthrough
        if fast is None:
            return
        if fast.format.frames is not None:
            self._fast = fast.frame_reader = fast.format.frames(self._dialect)
        else:
            fast.reader = self._dialect
        fast.grammar = self._grammar
        opening, fast.opening = fast.opening, None
        if opening is not None and self._fast is not None:
            self._framer.skip(1, len(opening.raw), 2)
            self._framed = 1
            self._idle = True
            self._fast.resume(opening)
            self._opens(opening.events)
        elif opening is not None:
            self._read(self._framer.feed(opening.raw))
            self._idle = True
            self._out.take()  # the fast path has returned these events

    def _catch_up(self, fast: PassThrough) -> None:
        """Set the slow path to the state after the events that the fast path read."""
        if not self._ready:
            self._prepare()
        frames, size, last = fast.take_progress()
        template = fast.template
        if frames and template is not None:
            if self._fast is not None:
                self._fast.note_text(template.make_event(""))
            elif fast.format.repeated is not None:
                fast.format.repeated.reader(self._dialect).note_text(*fast.take_text())
            offset, line = self._framer.skip(frames, size, template.lines)
            self._seen.offset = self._out.offset = offset - last
            self._seen.line = self._out.line = line - template.lines
            self._framed += frames
            if fast.format.reported is not None:
                fast.format.reported.reader(self._dialect).note_deltas(*fast.take_deltas())
                self._grammar.order(self._seen.take(), self._out)

    def _learn(self, fast: PassThrough, data: bytes, item: Framed, delta: TextEvent) -> None:
        """Learn the template of the last event of a healthy read."""
        if not isinstance(item, Frame):
            return
        event = _frame_bytes(item)
        if fast.format.reported is not None and data.endswith(b"\r\n"):
            event = event.removesuffix(b"\n\n") + b"\r\n\r\n"
        if not data.endswith(event):
            return
        fast.learn(event, delta, self._fast.fields if self._fast is not None else {})
        if self._first and self._framed == self._plain + self._first_frames:
            fast.learn_opening(self._first, self._opened)

    def _read(self, items: list[Framed]) -> None:
        seen, out = self._seen, self._out
        for item in items:
            self._value = None
            seen.offset = out.offset = item.offset
            seen.line = out.line = item.line
            if isinstance(item, Frame):
                self._framed += 1
                outline = outline_of(item.data) if len(item.data) > SMALL else None
                taken: FastResult | Literal["complex"] = "complex"
                value: object = None
                if len(item.data) > self.max_event and self._is_too_large(item.data):
                    self._dialect.flush()
                    seen.fault("event-too-large", f"an event exceeds {self.max_event} bytes")
                elif outline is not None and outline.is_costly():
                    self._refuse_complex()
                else:
                    taken = self._read_fast(item)
                if taken == "text":
                    out.events += seen.events  # legal without the grammar
                else:
                    if taken == "refused" and (self._framed > 1 or not self._read_opening(item)):
                        value = self._read_frame(item, outline)
                    if self._framed == 1 and self._usual and self._opens(seen.events):
                        out.events += seen.events
                        self._opened = seen.events
                    else:
                        before = len(out.events)
                        self._grammar.order(seen.events, out)
                        if self._grammar.fault is not None:
                            self._note_failure()
                        elif self._fast is None and self._is_one_delta(seen.events, out.events[before:]):
                            self._plain += self._is_plain(out.events[-1], item, value)
                        else:
                            self._finishing = self._is_last(seen.events, out.events[before:], value)
                seen.events = []
            elif isinstance(item, Repair):
                out.events.append(item)  # legal everywhere
            elif self.done and item.code in _GARBAGE:
                out.repair("data-after-done", item.message[:80])  # garbage after a complete answer
            else:
                self._dialect.flush()
                self._grammar.order([*seen.take(), item], out)
                if self._grammar.fault is not None:
                    self._note_failure()

    def _note_failure(self) -> None:
        if self.failed is None:
            self.failed = Failed(self._framed, self._grammar.usage)

    def _read_fast(self, frame: Frame) -> FastResult:
        """Try the typed decoders."""
        fast = self._fast
        if fast is None:
            return "refused"
        if self._misses > _MAX_MISSES and self._framed % _MAX_MISSES:
            return "refused"  # the chunks of this stream have other members; try again now and then
        if not self._grammar.expects_text or not fast.expects_text or frame.event:
            return "refused"
        if len(frame.data) < _LEAST_CHUNK:
            return "refused"
        taken = fast.read_fast(frame.data)
        if taken == "refused":
            self._misses += 1
        else:
            self._misses = 0
            self._plain += taken == "text"
        return taken

    def _read_opening(self, frame: Frame) -> bool:
        """Try the typed decoder of the first frame."""
        self._usual = self._fast is not None and not frame.event and self._fast.read_opening(frame.data)
        return self._usual

    def _opens(self, events: list[Event]) -> bool:
        """Whether the grammar accepts the events of the usual opening without any repair."""
        start, choice = events[0], events[-1]
        return (
            isinstance(start, Start) and isinstance(choice, ChoiceStart) and self._grammar.begin(start, choice.choice)
        )

    def _is_one_delta(self, seen: list[Event], ordered: list[Event]) -> bool:
        """Whether a frame that was read as `seen`, of which the grammar made `ordered`, is one delta without defects.

        In dialects with `ReportedUsage` it may also begin the answer or a block, and report usage.
        """
        fast = self.passthrough
        if fast is None or fast.format.reported is None:
            return len(seen) == 1 and seen == ordered
        report = len(seen) > 1 and isinstance(seen[-1], UsageReport)
        return seen[: len(seen) - report] == ordered and _BORDERS.issuperset(map(type, ordered[:-1])) and bool(ordered)

    def _is_last(self, seen: list[Event], ordered: list[Event], value: object) -> bool:
        """Whether a frame is one delta, as above, that finishes the answer with all of the usage so far."""
        fast, grammar = self.passthrough, self._grammar
        if fast is None or fast.format.reported is None or len(seen) < 3 or type(seen[-2]) is not Finish:
            return False
        report = value_at(value, fast.format.reported.path)
        return (
            self._is_one_delta([*seen[:-2], seen[-1]], ordered)
            and isinstance(ordered[-1], TextDelta)
            and grammar.whole
            and grammar.expects_finish
            and grammar.usage is not None
            and grammar.usage.raw == report
        )

    def _is_plain(self, event: Event, frame: Frame, value: object) -> bool:
        """Whether a frame with this JSON, which produced only this event, is a text delta that may be forwarded."""
        fast = self.passthrough
        if fast is None or value is None or not isinstance(event, TextEvent):
            return False
        format = fast.format
        if format.name_path is not None and frame.event != value_at(value, format.name_path):
            return False
        if value_at(value, format.text_path(event)) != event.text:
            return False  # the event includes text that was held back before
        if self._grammar.has_open_call(event.choice):
            return False
        path = format.block_path
        if path is not None and not self._grammar.has_block(event.choice, value_at(value, path)):
            return False
        if not self._first_plain:
            self._first_plain = self._framed
        self._value = value
        return True

    def _read_frame(self, frame: Frame, outline: Outline | None) -> object:
        """Take the slow path; returns the frame's JSON, or None if it is defective."""
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
        self._dialect.read(value, event=frame.event)
        return value

    def _is_intricate(self, values: list[object]) -> bool:
        return is_intricate(values, pieces=not self._dialect.limits_pieces)

    def _is_too_large(self, data: bytes) -> bool:
        """Whether an event beyond the limit is not one that may repeat the answer."""
        large = self._upstream.large_events
        return large is None or large.search(data) is None

    def _refuse_complex(self) -> None:
        self._dialect.flush()
        self._seen.fault("event-too-complex", "an event holds more values, or more pieces of an answer, than are read")

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
            self._dialect.read(value, event=frame.event, surrogates=payload.surrogates)


class StreamWriter:
    """Writes events as a correct stream in a client's dialect.

    `source` is the dialect that the events were read from. If it is the client's own, the writer also writes what only
    this dialect has: the usage as the provider reported it, and fields without an event of their own.
    `id`, `model` and `created` are defaults for what the provider did not send. With `include_usage` the client gets
    the usage, as from OpenAI when the client requests it with `stream_options`.
    """

    _made: AnswerWriter | None = None
    _extras: AnswerExtras | None = None
    _noted: tuple[Iterable[Event], ...] = ()  # events to observe, until `_made` exists

    def __init__(
        self,
        dialect: str = "openai_chat",
        *,
        source: str = "",
        include_usage: bool = False,
        id: str = "chatcmpl-penstock",
        model: str = "",
        created: int = 0,
    ) -> None:
        self.dialect = dialect
        answer_dialect(dialect)  # raises the error if there is none
        self._facts = AnswerFacts(
            call_id="",
            id=id,
            model=model,
            created=created,
            include_usage=include_usage,
            same_dialect=source == dialect,
        )

    @classmethod
    def for_call(cls, dialect: str, facts: AnswerFacts) -> Self:
        """A writer for one call of the gateway, with all facts about it."""
        writer = cls.__new__(cls)
        writer.dialect = dialect
        writer._facts = facts
        return writer

    @property
    def _writer(self) -> AnswerWriter:
        """The dialect's own writer, made on first use: most answers are forwarded unchanged and need none."""
        if self._made is None:
            self._made = answer_dialect(self.dialect).writer(self._facts)
            for events in self._noted:
                self._made.note(events)
        return self._made

    @property
    def rewrites(self) -> bool:
        """Whether the answer differs from the provider's, even if both are of one dialect."""
        return bool(self._facts.overrides)

    @property
    def reframes(self) -> bool:
        """Whether the client gets no server-sent events, but the same messages in another framing."""
        return bool(self._facts.stream_type)

    @property
    def losses(self) -> list[Loss]:
        """What the client's dialect cannot express of the events written so far."""
        return self._made.losses if self._made is not None else []

    def heartbeat(self) -> bytes:
        """Bytes that keep the connection alive; may be empty."""
        return self._writer.heartbeat()

    def fail(self, failure: Failure) -> bytes:
        """The last bytes of a stream that has begun and cannot be completed because of this failure."""
        return self._writer.fail(failure)

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes of these events, as whole frames that can be sent at once."""
        return self._writer.write(self.passed_on(events))

    def passed_on(self, events: Iterable[Event]) -> Iterable[Event]:
        """The events for the client's dialect; what only the provider's dialect has is noted as losses.

        An answer that is not streamed passes it before it is folded for `write_body`.
        """
        if self._facts.same_dialect:
            return events
        if self._extras is None:
            self._extras = AnswerExtras(self._writer.losses, find_dialect(self.dialect).carried)
        return self._extras.pass_on(events)

    def write_body(self, completion: Completion) -> bytes:
        """The body of the same answer without streaming."""
        return answer_dialect(self.dialect).write_body(completion, self._facts, self._writer.losses)

    def write_end(self, trailer: StreamTrailer | None, events: Iterable[Event]) -> bytes:
        """The bytes of the last events; the provider's own if the trailer can be forwarded."""
        return (self.forward(trailer) if trailer is not None else b"") or self.write(events)

    def forward(self, trailer: StreamTrailer) -> bytes:
        """The provider's bytes of the trailer; empty if the client must get something else."""
        return trailer.write(include_usage=self._facts.include_usage)

    def compare(self, fast: PassThrough) -> bool:
        """Decide whether the fast path's next text delta is what this writer would write next (`PassThrough.agreed`).

        The events of all reads so far must have been written, or noted.
        """
        repeated = fast.format.repeated
        if fast.agreed is None and repeated is not None and fast.template is not None:
            delta = repeated.writer(self._writer).next_delta()
            fast.agreed = encode_delta(delta) == fast.next_delta if delta is not None else None
        return fast.agreed is True

    def text_follower(self, fast: PassThrough) -> Callable[[str], int] | None:
        """The function that must be called with the text of each forwarded delta; None if the writer needs none."""
        repeated = fast.format.repeated
        return repeated.writer(self._writer).note_text if repeated is not None else None

    def follow(self, fast: PassThrough, events: Iterable[Event]) -> None:
        """Observe forwarded text deltas that are not the first ones, if the writer needs their text."""
        if fast.format.repeated is not None:
            self.note(events)

    def note(self, events: Iterable[Event]) -> None:
        """Observe events whose bytes are forwarded unchanged (`StreamReader.untouched`): later chunks must match."""
        if self._made is None:
            self._noted = (*self._noted, events)
        else:
            self._made.note(events)


def _frame_bytes(frame: Frame) -> bytes:
    """The bytes of a frame, if its lines are in the usual form."""
    name = b"event: %b\n" % frame.event.encode() if frame.event else b""
    return b"%bdata:%b\n" % (name, frame.data)


def _has_odd_line_ends(data: bytes, *, crlf: bool) -> bool:
    """Whether the data contains line ends that clients treat differently: CR, U+2028, U+2029, U+0085.

    With `crlf`, the clients of the dialect read lines that end with CRLF.
    """
    odd_cr = _CR in (data.replace(b"\r\n", b"") if crlf else data)
    return odd_cr or (not data.isascii() and any(end in data for end in LINE_ENDS_TO_SOME))
