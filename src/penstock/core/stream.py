"""StreamReader: a provider's bytes → events.

A stream is in one of five modes. Every change goes through `StreamReader._enter`.

| mode | the next read |
|---|---|
| `start` | is the first, and may begin with the opening that earlier answers had, which is recognised by its bytes |
| `slow` | takes the slow path |
| `fast` | may be text, which a matcher takes by its bytes, or the beginning of the usual ending |
| `trailer` | may continue the usual ending, which is buffered until it is complete |
| `closed` | is a mistake of the caller |

A read that is not what the mode expects takes the slow path, as if all bytes before it had done so. After a read of the
slow path that ends with healthy text, a matcher is learned for the next reads, and the mode is `fast`.
`core/fast/__init__.py` has the argument why the events are the same on both paths.
"""

from typing import Literal, Protocol, TypeAlias

from penstock.core.dialects.registry import find_dialect, upstream_dialect
from penstock.core.fast.format import Forwardable, SlowRead, StreamTrailer, TextEvent, TextFormat
from penstock.core.fast.matcher import TextMatcher, matcher_of
from penstock.core.fast.openings import FirstEvents, Opening, OpeningTemplate, first_events, frame_bytes
from penstock.core.fast.templates import learn_template
from penstock.core.hub.events import Event
from penstock.core.slow_path import FailedStream, SlowPath
from penstock.core.wire.frame import Frame
from penstock.errors import ClosedReaderError

# Far above any recorded event (the longest in thousands of streams has 12 KB), and far below what endangers memory.
MAX_EVENT = 1_000_000
# A template that matches no event is learned this many times in a row. After that, only one read in some is learned.
_MAX_UNUSED = 4
_LEARN_EVERY = 8

Mode: TypeAlias = Literal["start", "slow", "fast", "trailer", "closed"]
NEXT: dict[Mode, frozenset[Mode]] = {
    "start": frozenset({"slow", "fast", "closed"}),  # the first bytes decide
    "slow": frozenset({"fast", "closed"}),  # a text delta proves a template
    "fast": frozenset({"slow", "trailer", "closed"}),  # a read that does not match, or the usual ending
    "trailer": frozenset({"slow", "closed"}),  # something else than the usual ending
    "closed": frozenset(),
}


class EventReader(Protocol):
    """Reads events from bytes: a `StreamReader`, or a wrapper around one that changes or observes its events."""

    @property
    def done(self) -> bool:
        """Whether the provider has sent the end of the stream."""

    @property
    def frames(self) -> int:
        """The number of frames so far."""

    @property
    def failed(self) -> FailedStream | None:
        """The state when the stream failed, or None if it has not."""

    @property
    def withheld(self) -> int:
        """The number of events that are known and emitted at the end only: a finish for each choice, the usage."""

    def feed(self, data: bytes) -> list[Event]:
        """Read bytes; return the events that they complete."""

    def release(self) -> list[Event]:
        """Return the events that are held, as they came: the answer ends here."""

    def close(self) -> list[Event]:
        """End the stream: return the last events, with the `End`."""


class StreamReader:
    """Reads a provider's stream: bytes in, events out. No bytes of a provider make it raise an exception.

    `max_event` limits the bytes of one event, and so the memory of one stream. Events that repeat the whole answer may
    have `MAX_BODY` bytes.

    The readers of all streams of one target share an `opening_template`, so that the usual first events take the fast
    path too.
    A relay that forwards bytes may use `matcher.take` and `take_trailer` in place of `feed`, in mode `fast`.
    """

    mode: Mode = "start"
    forwardable: Forwardable = "no"
    """Whether the last bytes fed are whole, healthy events, so that they may be forwarded as they are."""
    matcher: TextMatcher | None = None
    """Takes the next text deltas, in the modes `fast` and `trailer`."""
    unseen_opening: Opening | None = None
    """The opening, if the fast path has recognised it and the slow path has not seen it yet."""
    trailer: StreamTrailer | None = None
    """The part of the usual ending that has arrived, in mode `trailer`; after `close` the whole, if it was complete."""
    _slow: SlowPath | None = None  # made when it is taken first
    _learnable: FirstEvents | None = None  # the opening that the slow path has read, while only text has followed it
    _unused_templates = 0  # in a row, which matched no event
    _skipped_reads = 0  # in a row, from which nothing was learned because of that

    def __init__(
        self,
        dialect: str = "openai_chat",
        *,
        max_event: int = MAX_EVENT,
        opening_template: OpeningTemplate | None = None,
        whole: bool = False,
    ) -> None:
        """`whole`: the answer is used only when it is complete. Then text that was lost on the way may be filled in."""
        self.dialect = dialect
        self.max_event = max_event
        self._known_dialect = find_dialect(dialect)
        self._upstream = self._known_dialect.upstream or upstream_dialect(dialect)  # raises the error if there is none
        self.format = self._known_dialect.text_format
        """The format of its fast path; None if it has none."""
        self._whole = whole
        self._opening_template = (
            opening_template if self.format is not None and self.format.opening is not None else None
        )

    @property
    def done(self) -> bool:
        """Whether the provider has sent the end of the stream."""
        if self.trailer is not None and self.trailer.done:
            return True
        return self._slow is not None and self._slow.done

    @property
    def frames(self) -> int:
        """The number of frames so far."""
        frames = self._slow.frames if self._slow is not None else 0
        if self.unseen_opening is not None:
            frames += self.unseen_opening.frames
        if self.matcher is not None:
            frames += self.matcher.frames
        return frames + self.trailer.frames if self.trailer is not None else frames

    @property
    def failed(self) -> FailedStream | None:
        """The state when the stream failed, or None. Frames after the failure are still read, for their usage."""
        return self._slow.failed if self._slow is not None else None

    @property
    def withheld(self) -> int:
        """The number of events that are known and emitted at the end only: a finish for each choice, the usage."""
        withheld = self._slow.withheld if self._slow is not None else 0
        return withheld + self.trailer.frames if self.trailer is not None else withheld

    @property
    def framing(self) -> str:
        """The framing of the stream (`sse`, `json-lines`, `json-array`, …); empty while it is unknown."""
        if self._slow is not None:
            return self._slow.framing
        return "sse" if self.frames else ""

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Read bytes, however they are split; return the events that they complete."""
        if type(data) is not bytes:
            data = bytes(data)  # a bytearray or a memoryview
        mode = self.mode
        if mode == "fast":
            if events := self._take_deltas(data):
                return events
            if self.take_trailer(data) is not None:
                return []
        elif mode == "start":
            if events := self._take_opening(data):
                return events
            if ending := self._ending_to_learn(data):
                events = self._read_slowly(data[:ending]) + self.feed(data[ending:])  # as if it came in two reads
                self.forwardable = "no"
                return events
        elif mode == "trailer":
            if self.take_trailer(data) is not None:
                return []
            assert self.trailer is not None
            data, self.trailer = self.trailer.raw + data, None
        elif mode == "closed":
            raise ClosedReaderError("the stream was closed: make a new StreamReader for a new stream")
        return self._read_slowly(data)

    def release(self) -> list[Event]:
        """Return nothing: no event is held."""
        return []

    def close(self) -> list[Event]:
        """End the stream: return the last events, with the `End`."""
        if self.mode == "closed":
            return []
        events: list[Event] = []
        if self.trailer is not None:
            if self.trailer.done:
                self._enter("closed")
                return self.trailer.events()
            events = self.feed(b"")
        slow = self._caught_up()
        self.matcher = None
        self._enter("closed")
        return [*events, *slow.close()]

    def _enter(self, mode: Mode) -> None:
        """Change the mode."""
        assert mode in NEXT[self.mode], f"no stream goes from {self.mode} to {mode}"
        self.mode = mode

    # The slow path.

    def _read_slowly(self, data: bytes) -> list[Event]:
        """Take the slow path, and decide whether the next events may take the fast one."""
        slow, matcher = self._slow, None
        if slow is None or self.matcher is not None:
            slow = self._caught_up()
        read = slow.feed(data)
        if self.format is not None:
            self.forwardable = self.format.forwardable(read)
            if self._opening_template is not None:
                self._note_opening(read)
            if read.last == "text":
                matcher = self._learn_matcher(self.format, slow, read)
        self.matcher = matcher
        mode: Mode = "slow" if matcher is None else "fast"
        if mode != self.mode:
            self._enter(mode)
        return read.events

    def _caught_up(self) -> SlowPath:
        """The slow path, in the state after all events so far."""
        slow = self._slow
        if slow is None:
            slow = SlowPath(self._known_dialect, self._upstream, self.max_event, self.format, whole=self._whole)
            self._slow = slow
            if self.unseen_opening is not None:
                slow.skip_opening(self.unseen_opening.raw)
                self.unseen_opening = None
        if self.matcher is not None and self.matcher.frames:
            self._unused_templates = 0
            slow.skip(self.matcher)
        return slow

    def _learn_matcher(self, format: TextFormat, slow: SlowPath, read: SlowRead) -> TextMatcher | None:
        """A matcher that is learned from the last event of a read, which is healthy text."""
        if self._unused_templates >= _MAX_UNUSED:
            self._skipped_reads = (self._skipped_reads + 1) % _LEARN_EVERY
            if self._skipped_reads:
                return None
        item, delta = read.items[-1], read.events[-1]
        if not isinstance(item, Frame) or not isinstance(delta, TextEvent):
            return None  # the arguments of a tool call are not learned
        self._unused_templates += 1
        event = frame_bytes(item)
        if not read.data.endswith(event):
            event = event.replace(b"\n", b"\r\n")
        template = learn_template(format, event, delta) if read.data.endswith(event) else None
        if template is None:
            return None
        opening, first, self._learnable = format.opening, self._learnable, None
        if (
            first is not None
            and opening is not None
            and self._opening_template is not None
            and slow.trailer() is not None
        ):
            self._opening_template.learn(opening, first, template)
        return matcher_of(template)

    def _note_opening(self, read: SlowRead) -> None:
        """Remember the opening in a first read, until something else than text follows it."""
        if read.first:
            self._learnable = first_events(read)
        elif not read.is_text:
            self._learnable = None

    # The fast path.

    def _take_deltas(self, data: bytes) -> list[Event]:
        """The events of a read of text deltas, perhaps with the usual ending behind them; none for any other read.

        The event of a text delta is its text, and before it the padding, if that has changed.
        """
        matcher, format = self.matcher, self.format
        if matcher is None or format is None or len(data) > self.max_event:
            return []
        template, value, mark, at, size = matcher.template, matcher.value, matcher.mark(), 0, len(data)
        events: list[Event] = []
        while at < size:
            behind = data.find(template.end, at) + len(template.end)
            text = matcher.take(data[at:behind])
            if not text:
                break
            if matcher.value != value:
                value = matcher.value
                if (padding := format.padding_event(value.decode())) is not None:
                    events.append(padding)
            events.append(template.make_event(text))
            at = behind
        if not events:
            return []
        self.forwardable = "yes"
        if at == size:
            return events
        rest = data[at:]
        if self.take_trailer(rest) is not None:
            self.forwardable = "yes"
        elif matcher.frames:
            matcher.undo(mark)
            return []
        else:  # the slow path has caught up with these texts, for a trailer that did not fit
            events += self._read_slowly(rest)
            self.forwardable = "no"
        return events

    def before_trailer(self, data: bytes) -> bytes:
        """The bytes of the last read, which had text, without those of the usual ending that began in it."""
        return data if self.trailer is None else data[: -len(self.trailer.raw)]

    def _take_opening(self, data: bytes) -> list[Event]:
        """The events of a first read: the known opening, perhaps with text deltas; none if it is another."""
        if self._opening_template is None or len(data) >= self.max_event:
            return []
        opening = self._opening_template.match(data)
        if opening is None:
            return []
        self._enter("fast")
        self.unseen_opening, self.matcher, self.forwardable = opening, opening.matcher, "yes"
        events, rest = opening.events, data[len(opening.raw) :]
        if rest:
            texts = self._take_deltas(rest)
            if not texts:
                self.unseen_opening = self.matcher = None
                return []
            events = [*events, *texts]
        self._opening_template.confirm()
        return events

    def _ending_to_learn(self, data: bytes) -> int:
        """Where the usual ending begins in a first read, if its opening is to be learned; else 0."""
        format, openings = self.format, self._opening_template
        if openings is None or format is None or format.trailer_mark is None:
            return 0
        mark = format.trailer_mark.search(data)
        if mark is None or openings.skips():
            return 0
        before, end, _ = data[: mark.start()].rpartition(b"\n\n")
        return len(before) + len(end)

    def take_trailer(self, data: bytes) -> StreamTrailer | None:
        """Add whole frames to the trailer and return it; None if they are not part of one and must be read."""
        trailer = self.trailer or self._expected_trailer(data)
        if trailer is None or len(data) > self.max_event or not trailer.feed(data):
            return None
        if self.mode != "trailer":
            self.trailer = trailer
            self.forwardable = "no"
            self._enter("trailer")
        return trailer

    def _expected_trailer(self, data: bytes) -> StreamTrailer | None:
        """An empty trailer, if it may begin with this data; None if the stream cannot have the usual ending."""
        format, matcher = self.format, self.matcher
        if format is None or format.trailer_mark is None or format.trailer_mark.search(data) is None:
            return None
        if self.unseen_opening is not None and format.opening is not None and matcher is not None:
            return format.opening.trailer(self.unseen_opening.events, matcher.last_json)
        return self._caught_up().trailer()
