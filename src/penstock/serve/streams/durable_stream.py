"""DurableStream: the log of one call, its readers, and the exchange through which the call writes it.

To the surface of an API, `DurableExchange` is the client, and this client takes everything at once: what it gets is in
the log first. The client that made the call is the first reader. Others come later, or it comes back.

The provider is paused while the fastest reader is `_MAX_AHEAD` bytes behind, as for any slow client. Without a reader
it is not paused: how long a call goes on without readers is decided by `on_alone`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.core.wire.event_blocks import EventBlocks
from penstock.gateway.streams.stream_log import StreamLog
from penstock.gateway.streams.stream_store import StreamHeader, StreamRecord
from penstock.http.exchange import Exchange
from penstock.serve.streams.log_reader import LogReader

_MAX_AHEAD = 1_048_576
# A comment without a blank line: some SDKs read a blank line after an `id:` as an event without data.
_HEARTBEAT = b": penstock\n"


class Reader(Protocol):
    """A reader of a log, as the stream uses it."""

    head: str
    """The lines of its response; empty until the answer begins."""
    sent: int
    """How many bytes of all events it has got."""

    def advance(self) -> None:
        """The log has changed: read on."""

    def beat(self, heartbeat: bytes, /) -> None:
        """The provider is silent."""

    def respond(self, status: int, headers: dict[str, str], body: bytes, /) -> None:
        """There is no stream, but this response."""

    def close(self) -> None:
        """End the response between two events."""


class DurableStream:
    """One stream. `on_alone` is called when its last reader has left before its end, `on_over` at its end."""

    def __init__(
        self,
        log: StreamLog,
        header: StreamHeader,
        record: StreamRecord | None,
        on_alone: "Callable[[DurableStream], None]",
        on_over: "Callable[[DurableStream], None]",
    ) -> None:
        self.log = log
        self.header = header
        self.record = record
        """What the store has of it; None if it is in memory only."""
        self.lingering: asyncio.TimerHandle | None = None
        """Ends the call unless a reader returns."""
        self.head = ""
        """The lines of the response's head."""
        self.outcome = ""
        """How the call ended, once it is settled."""
        self.whole: tuple[int, dict[str, str], bytes] | None = None
        """The response in place of a stream, if there is none: an error, or an answer that is not streamed."""
        self.readers: dict[Reader, None] = {}
        self.writer: DurableExchange | None = None
        self._blocks = EventBlocks()
        self._on_alone = on_alone
        self._on_over = on_over
        log.on_change = self._on_change
        if record is not None:
            log.on_append = record.append

    # Readers.

    def join(self, exchange: Exchange, position: int, head: str = "") -> None:
        """Add a reader."""
        self.await_no_more()
        reader = LogReader(self.log, self, exchange, position, head or self.head)
        self.readers[reader] = None
        reader.advance()

    def on_left(self, reader: "Reader") -> None:
        """A reader has got the end of its response, or has disconnected."""
        self.readers.pop(reader, None)
        if not self.readers and not self.log.over:
            self._on_alone(self)
        self.on_progress()

    def await_no_more(self) -> None:
        """A reader has returned, or none will."""
        if self.lingering is not None:
            self.lingering.cancel()
            self.lingering = None

    def close_readers(self) -> None:
        """End the responses of all readers between two events."""
        for reader in list(self.readers):
            reader.close()

    # Backpressure.

    @property
    def ahead(self) -> bool:
        """Whether the log is far ahead of its fastest reader."""
        readers = self.readers
        return bool(readers) and self.log.written - max(reader.sent for reader in readers) > _MAX_AHEAD

    def on_progress(self) -> None:
        """A reader has read on, or left."""
        if self.writer is not None:
            self.writer.update_pace()

    # The call.

    def begin(self, head: str) -> None:
        """The answer begins."""
        self.head = head
        for reader in self.readers:
            reader.head = reader.head or head
        if self.record is not None:
            self.record.begin(head)
        self.log.move("open")

    def write(self, data: bytes) -> None:
        """Append what the client gets."""
        if events := self._blocks.feed(data):
            self.log.append(events)
        elif data.startswith(b":"):
            for reader in self.readers:
                reader.beat(_HEARTBEAT if self.log.numbered else data)

    def end(self, data: bytes) -> None:
        """Append the last bytes, and end the log."""
        self.writer = None
        self.log.append(self._blocks.feed(data) + self._blocks.close(), last=True)
        self._on_over(self)

    def settle(self, outcome: str) -> None:
        """The call is settled."""
        self.outcome = outcome
        if self.record is not None:
            self.record.settle(outcome)

    def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """There is no stream, but this response."""
        readers, self.readers = self.readers, {}
        self.writer, self.whole = None, (status, headers, body)
        if status == 200:
            self.log.size += len(body)
            self.log.move("answered")
        else:
            self.log.move("refused")
        for reader in readers:
            reader.respond(status, headers, body)
        self._on_over(self)

    def break_off(self) -> None:
        """The answer stopped without an end."""
        if not self.log.over:
            self.writer = None
            self.log.move("broken")
            self._on_over(self)

    def _on_change(self) -> None:
        for reader in list(self.readers):
            reader.advance()


class DurableExchange(Exchange, eq=False, kw_only=True):
    """The client of a call whose stream is durable."""

    stream: DurableStream
    listed: bool = True
    """Whether clients find the stream by its id."""
    call_paused: bool = False
    """Whether the call was paused, because the log is far ahead of its readers."""

    @property
    def paused(self) -> bool:
        """Whether all readers are slow."""
        return self.stream.ahead

    def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send a whole response: the call was refused, or its answer is not streamed."""
        if self._state == "new":
            self._state = "over"
            self.stream.respond(status, headers, body)

    def begin(self, lines: str) -> None:
        """Start the stream."""
        if self._state == "new":
            self._state = "streaming"
            located = f"location: /v1/streams/{self.stream.log.id}\r\n" if self.listed else ""
            self.stream.begin(lines + located)

    def write(self, data: bytes, /) -> None:
        """Append bytes."""
        if self._state == "streaming" and data:
            unsent, self._unsent = self._unsent, b""
            self.stream.write(unsent + data)
            self.update_pace()

    def hold(self, data: bytes, /) -> None:
        """Append bytes together with what follows."""
        if self._state == "streaming":
            self._unsent += data

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """The log has no HTTP chunks."""
        return None

    def flush(self) -> None:
        """Append what is held."""
        if self._state == "streaming" and self._unsent:
            unsent, self._unsent = self._unsent, b""
            self.stream.write(unsent)

    def end(self, data: bytes = b"") -> None:
        """Append the last bytes, and end the stream."""
        if self._state == "streaming":
            self._state = "over"
            self.stream.end(self._unsent + data)

    def abort(self) -> None:
        """Break the stream off."""
        self.cut(reset=True)

    def cut(self, *, reset: bool) -> None:  # noqa: ARG002 - every reader's connection ends
        """Break the stream off."""
        if self._state != "over":
            self._state = "over"
            self.stream.break_off()

    def update_pace(self) -> None:
        """Pause or resume the call."""
        if self._state == "over" or self.call_paused == self.paused:
            return
        self.call_paused = not self.call_paused
        callback = self.on_pause if self.call_paused else self.on_resume
        if callback is not None:
            callback()
