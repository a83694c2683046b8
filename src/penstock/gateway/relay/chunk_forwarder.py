"""ChunkForwarder: healthy text takes the shortest way from the provider to the client.

A relay has one if its reader has a fast path, and nothing between reader and writer needs the events.

1. While each text delta arrives in an HTTP chunk of its own, the chunks skip the HTTP parser and the reader: the
   reader's matcher takes the payload (`skip_parser`). The client gets the chunk as it came, if it speaks the dialect of
   the provider and nothing rewrites the stream; else the text in a template of the client's dialect. The first chunk
   that does not match goes to the HTTP parser, whose state is still right because it is between two chunks.
2. Healthy bytes that the reader has read are forwarded to a client of the same dialect as they came, instead of what
   the writer would make of them (`may_forward`).

`core/fast/__init__.py` explains why this is correct.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from penstock.core.dialects.answer_writer import TextWriter
from penstock.core.fast.format import StreamTrailer
from penstock.core.hub.events import Event
from penstock.core.stream import StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.gateway.record.call import Call
from penstock.gateway.record.event_gaps import BOUNDS
from penstock.gateway.relay.ports import Client, Connection
from penstock.gateway.relay.watchdog import Watchdog
from penstock.http.upstream_connection import LONGEST_READ


class ForwardingRelay(Protocol):
    """The relay, as its forwarder uses it."""

    def may_deliver(self, size: int, /) -> bool:
        """Count characters that are not written yet. False if the attempt has ended, because its limit is reached."""

    def check_pending(self) -> None:
        """Count frames of the trailer as progress."""


class ChunkForwarder:
    """The fast path of one attempt."""

    forwarded_end = False
    """Whether the last message, with the finish and the usage, is forwarded as it came."""
    # The connection whose chunks may skip the parser, if there is one.
    _connection: Connection | None = None
    # What takes the payload of a chunk, what keeps its text for the operator, what must know a text that is delivered,
    # what writes the text for a client of another dialect (without it the client gets the framed chunk), and what sends
    # the result.
    _take: Callable[[bytes], str]
    _keep: Callable[[str], object] | None
    _follow: Callable[[str], object] | None
    _translate: TextWriter | None
    _write: Callable[[bytes], None]

    def __init__(
        self, relay: ForwardingRelay, call: Call, reader: StreamReader, writer: StreamWriter, watchdog: Watchdog
    ) -> None:
        control = call.progress.control
        assert control is not None
        assert reader.format is not None
        self._relay = relay
        self._call = call
        self._attempt = call.progress.attempts[-1]
        self._control = control
        self._reader = reader
        self._format = format = reader.format
        self._writer = writer
        self._watchdog = watchdog
        self.forwards = reader.dialect == writer.dialect and writer.forwards(format)
        """Whether the client may get the provider's bytes."""

    @property
    def trailer(self) -> StreamTrailer | None:
        """The usual trailer, if it is complete and may be forwarded."""
        trailer = self._reader.trailer
        return trailer if self.forwards and trailer is not None and trailer.done else None

    def attach(self, connection: Connection) -> None:
        """Set the connection whose chunks may skip the parser."""
        if self._reader.max_event >= LONGEST_READ:
            self._connection = connection

    def detach(self) -> None:
        """The attempt has ended, or its client is gone: no more chunks skip the parser."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.on_chunk = None

    def use_parser(self) -> None:
        """Let the next chunk take the parser, because something has changed that this class does not watch."""
        if self._connection is not None:
            self._connection.on_chunk = None

    def may_forward(self, *, last: bool) -> bool:
        """Whether the bytes that the reader has read last may be forwarded as they are. `last`: the body ends there."""
        forwardable = self._reader.forwardable if self.forwards else "no"
        if forwardable == "if last":
            self.forwarded_end = last and not self._call.reported  # the report is before the end
            return self.forwarded_end
        return forwardable == "yes" and (not self._format.writer_follows or self._is_accepted())

    def _is_accepted(self) -> bool:
        matcher, format = self._reader.matcher, self._format
        return not format.writer_follows or matcher is None or self._writer.accepts(format, matcher)

    def text_of(self, data: bytes) -> bytes:
        """The bytes of the last read that are forwarded now: the usual ending is forwarded when it is complete."""
        return self._reader.before_trailer(data)

    def follow(self, events: list[Event]) -> None:
        """Tell the writer of text deltas that were forwarded, if it needs their text."""
        if self._format.writer_follows:
            self._writer.note(events)

    def skip_parser(self, client: Client) -> None:
        """Let the next chunks of text skip the parser, if this read was a number of whole chunks and ended with text.

        The answer must be committed, and all events so far written or noted."""
        connection, matcher = self._connection, self._reader.matcher
        if connection is None or matcher is None or self._reader.mode != "fast" or self._call.on_text is not None:
            return
        if not connection.aligned_chunks:
            return
        follow = translate = None
        if self.forwards and self._is_accepted():
            write, follow = client.chunk_writer(), self._writer.text_follower(self._format)
        else:
            translate = self._writer.text_writer(matcher)
            write = client.write if translate is not None else None
        if write is None:
            return
        transcript = self._control.transcript
        keep = transcript.writer(matcher.template.make_event("")) if transcript is not None else None
        self._keep, self._follow = keep, follow
        self._take, self._translate, self._write = matcher.take, translate, write
        connection.on_chunk = self._on_chunk

    def _on_chunk(self, payload: bytes, raw: bytes) -> bool:
        """Pass on a chunk of text, or buffer one of the trailer. False if the chunk must be read: it is anything else,
        or `on_text` needs its events.

        Nearly every event takes this path, so `Watchdog.advance` is inlined.
        """
        if self._call.on_text is not None:
            return False
        text = self._take(payload)
        if not text:
            return self._on_trailer_chunk(payload, raw)
        if self._keep is not None:
            self._keep(text)
        watchdog = self._watchdog
        now = watchdog.loop.time()
        gap = now - watchdog.last_event_at
        watchdog.last_event_at = now
        gaps = watchdog.gaps
        gaps.counts[bisect_left(BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - watchdog.started)
        attempt, chars = self._attempt, len(text)
        if attempt.output_chars + chars < self._control.check_at:
            attempt.output_chars += chars
        elif not self._relay.may_deliver(chars):
            return True
        if self._follow is not None:
            self._follow(text)
        translate = self._translate
        self._write(raw if translate is None else translate(text))
        return True

    def _on_trailer_chunk(self, payload: bytes, _raw: bytes) -> bool:
        """Buffer a chunk of the usual trailer. False if it is anything else."""
        connection, trailer = self._connection, self._reader.take_trailer(payload)
        if connection is None or trailer is None:
            return False
        # No text may follow. `[DONE]` after the usage comes with the end of the body, which only the parser recognises.
        connection.on_chunk = self._on_trailer_chunk if trailer.tokens is None else None
        self._relay.check_pending()
        return True
