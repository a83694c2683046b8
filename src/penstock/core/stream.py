"""StreamReader and StreamWriter: the two ends of the hub. Bytes → events, events → bytes."""

import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol, Self

import msgspec

from penstock.core.completion import Completion
from penstock.core.dialects.dialect import AnswerFacts, FrameReader
from penstock.core.dialects.openai_chat.habit import Beginning, Habit
from penstock.core.dialects.openai_chat.mould import Mould
from penstock.core.dialects.openai_chat.plain import Taken
from penstock.core.dialects.openai_chat.reader import OpenAIChatReader
from penstock.core.dialects.openai_chat.tail import Tail
from penstock.core.dialects.registry import surface_dialect, upstream_dialect
from penstock.core.events import ChoiceStart, Event, Fault, ReasoningDelta, Repair, Start, TextDelta
from penstock.core.grammar import Grammar
from penstock.core.sink import Sink
from penstock.core.text import LINE_ENDS_TO_SOME
from penstock.core.usage import Usage
from penstock.core.wire.complexity import SMALL, Outline, is_intricate, outline_of
from penstock.core.wire.frame import Frame, Framed
from penstock.core.wire.payload import MAX_DEPTH, TooComplexError, decode, is_too_deep
from penstock.core.wire.sniff import Sniffer
from penstock.errors import ClosedReaderError

_JSON = msgspec.json.Decoder()
# Above any chunk seen (the longest of thousands of recorded streams is 12 KB), far below what hurts.
MAX_EVENT = 1_000_000
# After so many frames that are not plain in a row, the fast lane looks at one in so many only.
_MAX_MISSES = 16
# No chunk with all its fields is shorter; `[DONE]` is.
_LEAST_PLAIN = 60
# What steady events say; arguments of calls are full of escapes, and no mould would fit the next ones.
_MOULDED = frozenset((TextDelta, ReasoningDelta))
# As a number, which is found five times as fast as b"\r": bytes are tried as a number first.
_CR = ord("\r")
# What a usual ending begins with has it, and text that was cast in no mould, for an escape in it, has not.
_FINISHED = re.compile(rb'"finish_reason": ?"')
# A mould that does not fit is made anew at one frame in so many.
_NEW_MOULD = 8


class Failed(NamedTuple):
    """How far a stream had come when it failed: its frames up to that, and the usage that was reported in them."""

    frames: int
    usage: Usage | None


class Reader(Protocol):
    """Whoever makes events of bytes: a `StreamReader`, or one that stands before it."""

    @property
    def untouched(self) -> bool:
        """Whether the bytes that were fed last may be sent on as they are."""

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""

    @property
    def frames(self) -> int:
        """How many frames there were so far."""

    @property
    def failed(self) -> "Failed | None":
        """How far it had come when it failed, if it has."""

    @property
    def mould(self) -> Mould | None:
        """The mould of the next event, if there is one. Who has it may let it take events, in place of `feed`."""

    @property
    def tail(self) -> Tail | None:
        """The usual ending of the answer, as far as it has come; None before, and where it is another one."""

    @property
    def held(self) -> int:
        """How much is known that is told at the end only: a finish for each choice, the usage."""

    @property
    def max_event(self) -> int:
        """How many bytes one event may have."""

    def feed(self, data: bytes) -> list[Event]:
        """Take in bytes; return the events that they complete."""

    def begin(self, first: bytes, words: bytes) -> Beginning | None:
        """Take in the first event, and the HTTP chunk with the next one if that has come too, in place of `feed`, where
        they are the usual beginning and the first words; None if they are not."""

    def hold(self, data: bytes) -> Tail | None:
        """Take in whole frames, in place of `feed`, where there is a mould and they are of the usual ending; which is
        returned then."""

    def close(self) -> list[Event]:
        """The bytes are over: return the last events, the `End` among them."""


class StreamReader:
    """Reads a provider's stream: feed it bytes as they come, get events; never raises on what a provider sends.

    `max_event` caps the bytes that one event may have, and so the memory that one stream may hold.

    There are five lanes. Frames of nothing but text, in a healthy stream, are recognised by a typed decoder, and those
    that are cast in the same mould as one before, by their bytes; the usual ending behind them is held as a whole; all
    others go the way that `docs/architecture.md` shows. Who reads many streams of one kind gives them all one `habit`:
    then the usual beginning is recognised by its bytes, too. All give the same events.
    """

    closed = False
    untouched = False
    """Whether what was fed last is healthy text or the usual beginning, and nothing else: it may go on as it is."""
    mould: Mould | None = None
    """The mould of the next event, if all is well. Who has it may let it take events, in place of `feed`."""
    tail: Tail | None = None
    """The usual ending, as far as it has come; None before, and where it is another one."""
    failed: Failed | None = None
    """How far the stream had come when it failed, if it has. What stands behind that is read all the same."""
    _idle = False  # whether the framer stood between two events when it was asked last
    # How many frames the framer gave; how many of them the typed decoder took, and how many in a row it did not.
    _framed = 0
    _plain = 0
    _misses = 0
    _usual = False  # whether the first one was the usual beginning
    _beginning: Beginning | None = None  # if it was read by its bytes, and the long way knows nothing of it yet
    _first = b""  # that beginning, as it came, if the long way has read it
    # The parts of the long way, which are made when it is gone first.
    _ready = False
    _framer: Sniffer
    _seen: Sink
    _dialect: FrameReader
    _fast: OpenAIChatReader | None  # the same, where it has a fast path
    _grammar: Grammar
    _out: Sink

    def __init__(self, dialect: str = "openai_chat", *, max_event: int = MAX_EVENT, habit: Habit | None = None) -> None:
        self.dialect = dialect
        self.max_event = max_event
        self._upstream = upstream_dialect(dialect)
        self._habit = habit

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""
        return (self._ready and self._dialect.done) or (self.tail is not None and self.tail.done)

    @property
    def frames(self) -> int:
        """How many frames there were so far."""
        return self._framed + (self.mould.frames if self.mould else 0) + (self.tail.frames if self.tail else 0)

    @property
    def held(self) -> int:
        """How much is known that is told at the end only: a finish for each choice, the usage."""
        return (self._grammar.held if self._ready else 0) + (self.tail.frames if self.tail else 0)

    @property
    def framing(self) -> str:
        """How the stream is framed (`sse`, `json-lines`, `json-array`, …); empty while too little was seen."""
        return self._framer.name if self._ready else "sse" if self._framed else ""

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take in bytes, however they were split; return the events that they complete."""
        if type(data) is not bytes:
            data = bytes(data)  # a bytearray or a memoryview
        mould, tail = self.mould, self.tail
        if mould is not None:
            if tail is None and len(data) <= self.max_event and (events := mould.read(data)):
                self.untouched = True
                return events
            if self.hold(data) is not None:
                self.untouched = False
                return []
        if self.closed:
            raise ClosedReaderError("the stream was closed: make a new StreamReader for a new stream")
        if tail is not None:
            data = tail.held + data
            self.tail = None
        if mould is not None:
            self._catch_up(mould)
        elif not self._ready:
            events = self._begin(data)
            if events:
                self.untouched = True
                return events
            self._prepare()
        idle, plain = self._idle, self._plain
        items = self._framer.feed(data)
        self._idle = self._framer.idle
        self._read(items)
        events = self._out.take()
        # Nothing but healthy text, whole frames of it; at first, the usual beginning before it.
        text = 0 < len(items) == self._plain - plain
        healthy = self._idle and (text if idle else self._is_beginning(data, items, events))
        self.untouched = healthy and not _has_odd_line_ends(data)
        if not healthy:
            self.mould = None
        elif type(events[-1]) in _MOULDED and (self.mould is None or self._framed % _NEW_MOULD == 0):
            self._make_mould(data, items[-1], events[-1])
        return events

    def begin(self, first: bytes, words: bytes) -> Beginning | None:
        """Take in the beginning that the habit knows, in place of `feed`, if nothing came before it; it is returned.

        `words` is the HTTP chunk of the event behind it, or empty.
        """
        habit = self._habit
        if habit is None or self._framed or self._ready or len(first) + len(words) > self.max_event:
            return None
        beginning = habit.read(first, words)
        if beginning is None or beginning.size != len(first):
            return None
        self._beginning = beginning
        self.mould = beginning.mould
        self._framed = 1
        self._idle = self.untouched = True
        return beginning

    def hold(self, data: bytes) -> Tail | None:
        """Take in whole frames, in place of `feed`, if they are of the usual ending of a steady stream; it is returned.

        A stream is steady while there is a mould: then text is expected. What is refused is to be fed.
        """
        tail = self.tail
        if tail is None and _FINISHED.search(data) is not None:
            tail = self._ending()
        if tail is None or len(data) > self.max_event or not tail.take(data):
            return None
        self.tail = tail
        return tail

    def _ending(self) -> Tail | None:
        """What takes the usual ending, if there can be one."""
        begun = self._beginning
        if begun is not None:
            start = begun.start
            return Tail((start.id, start.model, start.created), begun.extras, begun.choice.choice)
        return self._fast.tail() if self._fast is not None and self._grammar.expects_end else None

    def close(self) -> list[Event]:
        """The bytes are over: return the last events, the `End` among them."""
        if self.closed:
            return []
        if self.tail is not None and self.tail.done:
            self.closed = True
            return self.tail.events()
        if self.tail is not None:
            return [*self.feed(b""), *self.close()]
        self.closed = True
        if self.mould is not None:
            self._catch_up(self.mould)
            self.mould = None
        elif not self._ready:
            self._prepare()
        self._read(self._framer.close())
        self._dialect.close()
        self._grammar.order(self._seen.take(), self._out)
        cut = self._framer.cut
        if cut and self.done:
            self._out.repair("data-after-done", "the bytes stop in the middle of an event")
            cut = False  # when all has been said
        if not cut and not self.done and self._dialect.sentinel and self.framing == "sse" and self._grammar.whole:
            self._out.repair("no-done")
        self._grammar.close(self._out, cut=cut, unread=self._dialect.unread)
        return self._out.take()

    def _is_beginning(self, data: bytes, items: list[Framed], events: list[Event]) -> bool:
        """Whether this is the first read: the usual beginning of an answer, text behind it perhaps, nothing else."""
        if not self._usual or not self._framed == len(items) == self._plain + 1 or Repair in map(type, events):
            return False
        frames = [b"data:%b\n" % item.data for item in items if isinstance(item, Frame)]
        if b"".join(frames) != data:
            return False
        self._first = frames[0]
        return True

    def _begin(self, data: bytes) -> list[Event]:
        """What the first read says, if it is the beginning that the habit knows, and perhaps words behind it."""
        beginning = self._habit.read(data) if self._habit is not None and len(data) < self.max_event else None
        if beginning is None:
            return []
        events, rest = beginning.events, data[beginning.size :]
        if rest:
            words = beginning.mould.read(rest)
            if not words:
                return []
            events = [*events, *words]
        self._beginning = beginning
        self.mould = beginning.mould
        self._framed = 1
        self._idle = True
        return events

    def _prepare(self) -> None:
        """Make what the long way needs, and tell it of the beginning that was read without it."""
        self._ready = True
        self._framer = Sniffer(self.max_event)
        self._seen = Sink()
        self._dialect = self._upstream.frame_reader(self._seen)
        self._fast = self._dialect if isinstance(self._dialect, OpenAIChatReader) else None
        self._sentinel = self._dialect.sentinel.encode()
        self._grammar = Grammar()
        self._out = Sink()
        beginning, self._beginning = self._beginning, None
        if beginning is not None and self._fast is not None:
            self._framer.skip(1, beginning.size)
            self._fast.begin(beginning)
            self._begins(beginning.events)

    def _catch_up(self, mould: Mould) -> None:
        """Tell the long way of the events that were read without it."""
        if not self._ready:
            self._prepare()
        frames, size, last = mould.hand_over()
        if frames and self._fast is not None:
            self._fast.spoke(mould.said(""))
            offset, line = self._framer.skip(frames, size)
            self._seen.offset = self._out.offset = offset - last
            self._seen.line = self._out.line = line - 2
            self._framed += frames

    def _make_mould(self, data: bytes, item: Framed, said: Event) -> None:
        """Make the mould in which the last event of a healthy read was cast."""
        event = b"data:%b\n" % item.data if isinstance(item, Frame) else b""
        if event and data.endswith(event) and self._fast is not None:
            self.mould = self._fast.mould(event, said)
        if self._first and self._habit is not None and self.mould is not None and self._framed == self._plain + 1:
            self._habit.learn(self._first, self.mould)

    def _read(self, items: list[Framed]) -> None:
        seen, out = self._seen, self._out
        for item in items:
            seen.offset = out.offset = item.offset
            seen.line = out.line = item.line
            if isinstance(item, Frame):
                self._framed += 1
                outline = outline_of(item.data) if len(item.data) > SMALL else None
                if outline is not None and outline.is_costly():
                    self._refuse_complex()
                    taken = Taken.REFUSED
                else:
                    taken = self._read_plain(item)
                if taken is Taken.AS_TEXT:
                    out.events += seen.events  # legal as they stand
                else:
                    if taken is Taken.NOT and (self._framed > 1 or not self._read_head(item)):
                        self._read_frame(item, outline)
                    if self._framed == 1 and self._usual and self._begins(seen.events):
                        out.events += seen.events
                    else:
                        self._grammar.order(seen.events, out)
                        if self._grammar.fault is not None:
                            self._note_failure()
                seen.events = []
            elif isinstance(item, Fault) and self.done and item.code == "not-a-stream":
                out.repair("data-after-done", item.message[:80])  # rubbish, when all has been said
            else:
                if isinstance(item, Fault):
                    self._dialect.flush()
                self._grammar.order([*seen.take(), item], out)
                if self._grammar.fault is not None:
                    self._note_failure()

    def _note_failure(self) -> None:
        if self.failed is None:
            self.failed = Failed(self._framed, self._grammar.usage)

    def _read_plain(self, frame: Frame) -> Taken:
        """The fast lane; returns whether it took the frame."""
        fast = self._fast
        if fast is None:
            return Taken.NOT
        if self._misses > _MAX_MISSES and self._framed % _MAX_MISSES:
            return Taken.NOT  # this stream has other things in its chunks; look again now and then
        if not self._grammar.expects_text or not fast.expects_text or frame.event:
            return Taken.NOT
        if len(frame.data) < _LEAST_PLAIN:
            return Taken.NOT
        taken = fast.read_plain(frame.data)
        if taken is Taken.NOT:
            self._misses += 1
        else:
            self._misses = 0
            self._plain += taken is Taken.AS_TEXT
        return taken

    def _read_head(self, frame: Frame) -> bool:
        """The fast lane for the first frame; returns whether it took it."""
        self._usual = self._fast is not None and not frame.event and self._fast.read_head(frame.data)
        return self._usual

    def _begins(self, events: list[Event]) -> bool:
        """Whether the grammar takes the events of the usual beginning as they stand."""
        start, begun = events[0], events[-1]
        return isinstance(start, Start) and isinstance(begun, ChoiceStart) and self._grammar.begin(start, begun.choice)

    def _read_frame(self, frame: Frame, outline: Outline | None) -> None:
        if self._sentinel and frame.data.strip() == self._sentinel:  # too common to be tried as JSON first
            self._dialect.read_undecodable(frame.data, frame.event)
            return
        if is_too_deep(frame.data, outline and outline.outside):
            self._seen.fault("bad-json", f"JSON nested more than {MAX_DEPTH} levels deep")
            return
        try:
            value = _JSON.decode(frame.data)
        except ValueError:
            self._read_leniently(frame, outline)
        else:
            if outline is not None and is_intricate([value]):
                self._refuse_complex()
            else:
                self._dialect.read(value, event=frame.event)

    def _refuse_complex(self) -> None:
        self._dialect.flush()
        self._seen.fault("event-too-complex", "an event holds more values, or more pieces of an answer, than are read")

    def _read_leniently(self, frame: Frame, outline: Outline | None) -> None:
        try:
            payload = decode(frame.data, self._dialect.sentinel, outline)
        except TooComplexError:
            self._refuse_complex()
            return
        if payload is None:
            self._dialect.read_undecodable(frame.data, frame.event)
            return
        if outline is not None and is_intricate(payload.values):
            self._refuse_complex()
            return
        for defect in payload.defects:
            self._seen.repair(defect)
        for value in payload.values:
            self._dialect.read(value, event=frame.event, surrogates=payload.surrogates)


class StreamWriter:
    """Writes events as a correct stream in a client's dialect.

    `id`, `model` and `created` stand in for what the provider did not send. With `include_usage` the client gets the
    usage, as it does from OpenAI when it asks for it with `stream_options`.
    """

    def __init__(
        self,
        dialect: str = "openai_chat",
        *,
        include_usage: bool = False,
        id: str = "chatcmpl-penstock",
        model: str = "",
        created: int = 0,
    ) -> None:
        facts = AnswerFacts(call_id="", id=id, model=model, created=created, include_usage=include_usage)
        self._use(dialect, facts)

    @classmethod
    def for_call(cls, dialect: str, facts: AnswerFacts) -> Self:
        """A writer that knows all about the call that it answers."""
        writer = cls.__new__(cls)
        writer._use(dialect, facts)
        return writer

    def _use(self, dialect: str, facts: AnswerFacts) -> None:
        self.dialect = dialect
        self._facts = facts
        self._include_usage = facts.include_usage
        self._writer = surface_dialect(dialect).writer(facts)
        self.losses = self._writer.losses
        """What the client's dialect cannot express of the events written so far."""
        self.heartbeat = self._writer.heartbeat
        """Bytes that keep a client waiting; may be empty."""
        self.fail = self._writer.fail
        """The last bytes of a stream that has begun and cannot be completed, by the failure that says why."""

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes that tell these events; whole, so that they can be sent at once."""
        return self._writer.write(events)

    def write_body(self, completion: Completion) -> bytes:
        """The body of the same answer, unstreamed."""
        return surface_dialect(self.dialect).write_body(completion, self._facts, self.losses)

    def write_end(self, tail: Tail | None, events: Iterable[Event]) -> bytes:
        """The bytes that tell the last events; those of a usual ending, where they came so and may go on so."""
        return (tail and self.pass_on(tail)) or self._writer.write(events)

    def pass_on(self, tail: Tail) -> bytes:
        """The bytes of a usual ending as it came; empty where they will not do."""
        return tail.write(include_usage=self._include_usage)

    def note(self, events: Iterable[Event]) -> None:
        """Take note of events that the client gets as the provider sent them (see `StreamReader.untouched`)."""
        self._writer.note(events)


def _has_odd_line_ends(data: bytes) -> bool:
    """Whether the data holds characters that are line ends to some clients only; CR LF is none to a few."""
    return _CR in data or (not data.isascii() and any(end in data for end in LINE_ENDS_TO_SOME))
