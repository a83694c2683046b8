"""StreamReader and StreamWriter: the two ends of the hub. Bytes → events, events → bytes."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from penstock.core.dialects.openai_chat import OpenAIChatReader
from penstock.core.dialects.openai_chat_mould import Mould
from penstock.core.dialects.openai_chat_writer import OpenAIChatWriter
from penstock.core.events import Event, Fault
from penstock.core.grammar import Grammar
from penstock.core.sink import Sink
from penstock.core.text import LINE_ENDS_TO_SOME
from penstock.core.wire.frame import Frame, Framed
from penstock.core.wire.payload import MAX_DEPTH, decode, is_too_deep
from penstock.core.wire.sniff import Sniffer
from penstock.errors import ClosedReaderError, UnknownDialectError

READERS = {"openai_chat": OpenAIChatReader}
WRITERS = {"openai_chat": OpenAIChatWriter}
# Above any chunk seen (the longest of thousands of recorded streams is 12 KB), far below what hurts.
MAX_EVENT = 1_000_000
# After so many frames that are not plain in a row, the fast lane looks at one in so many only.
_MAX_MISSES = 16
# A mould that does not fit is made anew at one frame in so many.
_NEW_MOULD = 8


class Reader(Protocol):
    """Whoever makes events of bytes: a `StreamReader`, or one that stands before it."""

    @property
    def untouched(self) -> bool:
        """Whether the bytes that were fed last may be sent on as they are."""

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""

    def feed(self, data: bytes) -> list[Event]:
        """Take in bytes; return the events that they complete."""

    def close(self) -> list[Event]:
        """The bytes are over: return the last events, the `End` among them."""


class StreamReader:
    """Reads a provider's stream: feed it bytes as they come, get events; never raises on what a provider sends.

    `max_event` caps the bytes that one event may have, and so the memory that one stream may hold.

    There are three lanes. Frames of nothing but text, in a healthy stream, are recognised by a typed decoder, and those
    that are cast in the same mould as one before, by their bytes; all others go the way that `docs/architecture.md`
    shows. All give the same events.
    """

    def __init__(self, dialect: str = "openai_chat", *, max_event: int = MAX_EVENT) -> None:
        _check(dialect)
        self.closed = False
        self.untouched = False
        """Whether what was fed last is healthy text and nothing else, so that its bytes may be sent on as they are."""
        self._max_event = max_event
        self._framer = Sniffer(max_event)
        self._decode = msgspec.json.Decoder().decode
        self._seen = Sink()
        self._dialect = READERS[dialect](self._seen)
        self._grammar = Grammar()
        self._out = Sink()
        # How many frames the framer gave; how many of them the typed decoder took, and how many in a row it did not.
        self._framed = 0
        self._plain = 0
        self._misses = 0
        self._mould: Mould | None = None  # of the next event, if all is well

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""
        return self._dialect.done

    @property
    def frames(self) -> int:
        """How many frames there were so far."""
        return self._framed + (self._mould.frames if self._mould else 0)

    @property
    def framing(self) -> str:
        """How the stream is framed (`sse`, `json-lines`, `json-array`, …); empty while too little was seen."""
        return self._framer.name

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take in bytes, however they were split; return the events that they complete."""
        if type(data) is not bytes:
            data = bytes(data)  # a bytearray or a memoryview
        if self._mould is not None and len(data) <= self._max_event:
            events = self._mould.read(data)
            if events:
                self.untouched = True
                return events
        if self.closed:
            raise ClosedReaderError("the stream was closed: make a new StreamReader for a new stream")
        self._catch_up()
        idle, plain = self._framer.idle, self._plain
        items = self._framer.feed(data)
        self._read(items)
        events = self._out.take()
        # Nothing but healthy text, whole frames of it, and no line end that is one only to some clients.
        healthy = idle and self._framer.idle and 0 < len(items) == self._plain - plain
        self.untouched = healthy and (data.isascii() or not any(end in data for end in LINE_ENDS_TO_SOME))
        if not healthy:
            self._mould = None
        elif self._mould is None or self._framed % _NEW_MOULD == 0:
            self._make_mould(data, items[-1], events[-1])
        return events

    def close(self) -> list[Event]:
        """The bytes are over: return the last events, the `End` among them."""
        if self.closed:
            return []
        self.closed = True
        self._catch_up()
        self._mould = None
        self._read(self._framer.close())
        self._dialect.close()
        self._grammar.order(self._seen.take(), self._out)
        cut = self._framer.cut
        if not cut and not self.done and self.framing == "sse" and self._grammar.whole:
            self._out.repair("no-done")
        self._grammar.close(self._out, cut=cut, unread=self._dialect.unread)
        return self._out.take()

    def _catch_up(self) -> None:
        """Tell the framer of the events that were read without it."""
        mould = self._mould
        if mould is not None and mould.frames:
            offset, line = self._framer.skip(mould.frames, mould.size)
            last = mould.last.removesuffix(b"\n\n").rpartition(b"\n\n")[2]
            self._seen.offset = self._out.offset = offset - len(last) - 2
            self._seen.line = self._out.line = line - 2
            self._framed += mould.frames
            mould.frames = mould.size = 0

    def _make_mould(self, data: bytes, item: Framed, said: Event) -> None:
        """Make the mould in which the last event of a healthy read was cast."""
        event = b"data:%b\n" % item.data if isinstance(item, Frame) else b""
        if event and data.endswith(event):
            self._mould = self._dialect.mould(event, said)

    def _read(self, items: list[Framed]) -> None:
        seen, out = self._seen, self._out
        for item in items:
            seen.offset = out.offset = item.offset
            seen.line = out.line = item.line
            if isinstance(item, Frame):
                self._framed += 1
                if self._read_plain(item):
                    out.events += seen.events
                else:
                    self._read_frame(item)
                    self._grammar.order(seen.events, out)
                seen.events = []
            elif isinstance(item, Fault) and self.done and item.code == "not-a-stream":
                out.repair("data-after-done", item.message[:80])  # rubbish, when all has been said
            else:
                if isinstance(item, Fault):
                    self._dialect.tell_held()
                self._grammar.order([*seen.take(), item], out)

    def _read_plain(self, frame: Frame) -> bool:
        """The fast lane; returns whether it took the frame."""
        if self._misses > _MAX_MISSES and self._framed % _MAX_MISSES:
            return False  # this stream has other things in its chunks; look again now and then
        if not self._grammar.expects_text or not self._dialect.expects_text or frame.event:
            return False
        if not self._dialect.read_plain(frame.data):
            self._misses += 1
            return False
        self._misses = 0
        self._plain += 1
        return True

    def _read_frame(self, frame: Frame) -> None:
        if is_too_deep(frame.data):
            self._seen.fault("bad-json", f"JSON nested more than {MAX_DEPTH} levels deep")
            return
        try:
            value = self._decode(frame.data)
        except ValueError:
            self._read_leniently(frame)
        else:
            self._dialect.read(value, event=frame.event)

    def _read_leniently(self, frame: Frame) -> None:
        payload = decode(frame.data, self._dialect.sentinel)
        if payload is None:
            self._dialect.read_undecodable(frame.data, frame.event)
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
        _check(dialect)
        self._writer = WRITERS[dialect](id=id, model=model, created=created, include_usage=include_usage)

    def write(self, events: Iterable[Event]) -> bytes:
        """The bytes that tell these events; whole, so that they can be sent at once."""
        return self._writer.write(events)


def _check(dialect: str) -> None:
    if dialect not in READERS:
        raise UnknownDialectError(f"there is no dialect {dialect!r}; choose one of {', '.join(READERS)}")
