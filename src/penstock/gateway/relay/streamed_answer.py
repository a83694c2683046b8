"""StreamedAnswer: what the client of one attempt gets as a stream, from events or from the provider's own bytes.

Until the commit point, bytes for the client are buffered (`_uncommitted`). There are four ways from the provider to the
client, each shorter than the one before:

| way | the client gets | if |
|---|---|---|
| `write` | what the writer makes of the events | always possible |
| `forward` | the bytes of a read as they came | they are healthy, and nothing rewrites the stream (`may_forward`) |
| `_on_chunk` | the text of an HTTP chunk, in a template of its own dialect | the chunk is one text delta |
| `_on_chunk` | an HTTP chunk as it came | it is one text delta, and nothing rewrites the stream |

`_on_chunk` gets the chunks in place of the HTTP parser and the reader (`bypass_parser`). The first chunk that does not
match goes to the parser, whose state is still right because it is between two chunks. `core/fast/__init__.py` has the
argument why the client gets the same. If something between reader and writer needs the events, there is only `write`.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from penstock.core.dialects.answer_writer import TextWriter
from penstock.core.fast.format import StreamTrailer, TextFormat
from penstock.core.hub.events import Event
from penstock.core.hub.failure import Failure
from penstock.core.stream import EventReader, StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.gateway.record.attempt import GAP_BOUNDS
from penstock.gateway.record.call import Call
from penstock.gateway.relay.answer_events import is_content, new_losses
from penstock.gateway.relay.ports import Client, Connection
from penstock.gateway.relay.watchdog import Watchdog
from penstock.http.upstream_connection import LONGEST_READ

# Before the first content come a role and some extras. With more bytes than this the answer is committed without
# content.
_MAX_UNCOMMITTED = 65_536


class StreamingRelay(Protocol):
    """The relay, as the answer uses it."""

    @property
    def committed(self) -> bool:
        """Whether the client gets an answer: it is past its commit point, and has not ended."""

    def commit(self) -> None:
        """The answer has reached its commit point."""

    def may_deliver(self, size: int, /) -> bool:
        """Count characters that are not written yet. False if the attempt has ended, because its limit is reached."""

    def note_withheld(self) -> None:
        """Count frames as progress whose events come later."""


class StreamedAnswer:
    """The answer of one attempt, for a client that is streamed to."""

    body_ends = False
    """Whether the end of the body is in the read that is processed: then what is sent waits for the last bytes."""
    forwarded_end = False
    """Whether the last message, with the finish and the usage, was forwarded as it came."""
    has_fast_path = False
    """Whether the reader recognises text by its bytes, and nothing between it and the writer needs the events."""
    forwards = False
    """Whether the client may get the provider's own bytes."""
    _uncommitted = b""
    # Those of the fast path, if there is one.
    _reader: StreamReader | None = None
    _format: TextFormat
    # The connection whose chunks may bypass the parser, if there is one.
    _connection: Connection | None = None
    # What `_on_chunk` does, in this order. `bypass_parser` sets it.
    _take_text: Callable[[bytes], str]
    """Returns the text of a payload; empty if the payload is no text delta."""
    _keep_text: Callable[[str], object] | None
    """Keeps the text for the operator, if that is allowed."""
    _follow_text: Callable[[str], object] | None
    """Notes the text in the writer, if the writer must know what is forwarded."""
    _write_text: TextWriter | None
    """Writes the text for a client of another dialect. Without it the chunk is forwarded."""
    _send_bytes: Callable[[bytes], None]

    def __init__(
        self,
        relay: StreamingRelay,
        call: Call,
        client: Client,
        reader: EventReader,
        writer: StreamWriter,
        watchdog: Watchdog,
    ) -> None:
        control = call.progress.control
        assert control is not None  # created with the attempt
        self.client = client
        self._relay = relay
        self._call = call
        self._attempt = call.progress.attempts[-1]
        self._control = control
        self._writer = writer
        self._watchdog = watchdog
        if isinstance(reader, StreamReader) and (format := reader.format) is not None:
            self.has_fast_path, self._reader, self._format = True, reader, format
            self.forwards = reader.dialect == writer.dialect and writer.forwards(format)

    # The connection.

    def attach(self, connection: Connection) -> None:
        """Set the connection whose chunks may bypass the parser."""
        if self._reader is not None and self._reader.max_event >= LONGEST_READ:
            self._connection = connection

    def detach(self) -> None:
        """No more chunks bypass the parser."""
        self.use_parser()
        self._connection = None

    def use_parser(self) -> None:
        """Let the next chunk take the parser, because something has changed that `_on_chunk` does not watch."""
        if self._connection is not None:
            self._connection.on_chunk = None

    # Events.

    def write(self, events: list[Event]) -> Failure | None:
        """Send events. Returns a failure if the call is strict and a loss changes the meaning."""
        data = self._writer.write(events)
        if not self.forwards:  # what is forwarded is never empty
            self._watchdog.note_sent(data)
        lost = new_losses(self._call, self._writer) if self._writer.losses else None
        if lost is None:
            self._send(data, events)
        elif self._relay.committed:
            self.client.write(data)  # the part that the client's dialect can express
        return lost

    def finish(self, events: list[Event]) -> bytes | Failure:
        """What is not sent yet, and the last events; a failure if the call is strict and a loss changes the meaning."""
        if self.forwarded_end:
            return b""
        data = self._uncommitted + self._writer.write_end(self.usual_ending(), events)
        return (new_losses(self._call, self._writer) if self._writer.losses else None) or data

    def end(self, data: bytes) -> None:
        """Send the last bytes, and the end of the body."""
        self.client.end(data)

    def _send(self, data: bytes, events: list[Event]) -> None:
        """Send the bytes of these events, or buffer them if the commit point is not reached."""
        if not self._relay.committed:
            self._uncommitted += data
            if len(self._uncommitted) <= _MAX_UNCOMMITTED and not is_content(events):
                return
            data, self._uncommitted = self._uncommitted, b""
            self._relay.commit()
        if self.body_ends:
            self.client.hold(data)
        else:
            self.client.write(data)

    # The bytes of a read.

    def may_forward(self, *, last: bool) -> bool:
        """Whether the bytes that the reader has read last may be forwarded as they are. `last`: the body ends there."""
        reader = self._reader
        if reader is None or not self.forwards:
            return False
        if reader.forwardable == "if last":
            self.forwarded_end = last and not self._call.reported  # the report is before the end
            return self.forwarded_end
        return reader.forwardable == "yes" and (not self._format.writer_follows or self._is_accepted(reader))

    def _is_accepted(self, reader: StreamReader) -> bool:
        """Whether the writer would write the text deltas of the reader's matcher as they are."""
        return reader.matcher is None or self._writer.accepts(self._format, reader.matcher)

    def forward(self, events: list[Event], data: bytes) -> None:
        """Send the bytes of a read as they came, which has these events, but for a part of the usual ending."""
        assert self._reader is not None
        if not self._relay.committed or self._format.writer_follows:
            self._writer.note(events)
        self._send(self._reader.before_trailer(data), events)

    @property
    def ending_begun(self) -> bool:
        """Whether a part of the usual ending has arrived, which is sent when it is complete."""
        return self._reader is not None and self._reader.trailer is not None

    def usual_ending(self) -> StreamTrailer | None:
        """The usual ending of the stream, if it is complete and may be forwarded."""
        trailer = self._reader.trailer if self.forwards and self._reader is not None else None
        return trailer if trailer is not None and trailer.done else None

    # HTTP chunks.

    def bypass_parser(self) -> None:
        """Let the next chunks bypass the parser, if this read was a number of whole chunks and ended with text.

        The answer must be committed, and all events so far written or noted."""
        connection, reader = self._connection, self._reader
        if connection is None or reader is None or reader.mode != "fast" or self._call.on_text is not None:
            return
        if (matcher := reader.matcher) is None or not connection.aligned_chunks:
            return
        follow_text = write_text = None
        if self.forwards and (not self._format.writer_follows or self._is_accepted(reader)):
            send_bytes, follow_text = self.client.chunk_writer(), self._writer.text_follower(self._format)
        else:
            write_text = self._writer.text_writer(matcher)
            send_bytes = self.client.write if write_text is not None else None
        if send_bytes is None:
            return
        transcript = self._control.transcript
        self._keep_text = transcript.writer(matcher.template.make_event("")) if transcript is not None else None
        self._take_text, self._follow_text, self._write_text = matcher.take, follow_text, write_text
        self._send_bytes = send_bytes
        connection.on_chunk = self._on_chunk

    def _on_chunk(self, payload: bytes, raw: bytes) -> bool:
        """Pass on a chunk of text, or buffer one of the usual ending. False if the chunk must be parsed: it is anything
        else, or `on_text` needs its events.

        Nearly every event takes this path, so `Watchdog.advance` is inlined.
        """
        if self._call.on_text is not None:
            return False
        text = self._take_text(payload)
        if not text:
            return self._on_ending(payload, raw)
        if self._keep_text is not None:
            self._keep_text(text)
        watchdog = self._watchdog
        now = watchdog.loop.time()
        gap = now - watchdog.last_event_at
        watchdog.last_event_at = now
        gaps = watchdog.gaps
        gaps.counts[bisect_left(GAP_BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - watchdog.started)
        attempt, chars = self._attempt, len(text)
        if attempt.output_chars + chars < self._control.check_at:
            attempt.output_chars += chars
        elif not self._relay.may_deliver(chars):
            return True
        if self._follow_text is not None:
            self._follow_text(text)
        write_text = self._write_text
        self._send_bytes(raw if write_text is None else write_text(text))
        return True

    def _on_ending(self, payload: bytes, _raw: bytes) -> bool:
        """Buffer a chunk of the usual ending. False if it is anything else."""
        assert self._reader is not None
        connection, trailer = self._connection, self._reader.take_trailer(payload)
        if connection is None or trailer is None:
            return False
        # No text may follow. `[DONE]` after the usage comes with the end of the body, which only the parser recognises.
        connection.on_chunk = self._on_ending if trailer.tokens is None else None
        self._relay.note_withheld()
        return True
