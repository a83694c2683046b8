"""LogReader: one client that reads the log of a stream, from its position on, at its own pace."""

from typing import Protocol

from penstock.gateway.streams.stream_log import StreamLog
from penstock.http.exchange import Exchange

# Bytes that are sent at once to a reader that is behind.
_MAX_READ = 65_536


class Readers(Protocol):
    """The readers of one stream, as one of them uses it."""

    def on_progress(self) -> None:
        """A slow reader has read on."""

    def on_left(self, reader: "LogReader", /) -> None:
        """A reader has got the end of its response, or has disconnected."""


class LogReader:
    """Sends the events after `position`, then those that come, then the end. `head` are the lines of the response."""

    def __init__(self, log: StreamLog, readers: Readers, exchange: Exchange, position: int, head: str) -> None:
        self._log = log
        self._readers = readers
        self._exchange = exchange
        self.head = head
        self.position = position
        self.sent = log.written - log.bytes_after(position)
        """How many bytes of all events are before the position."""
        exchange.on_gone, exchange.on_resume = self._on_gone, self._on_resume

    def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """There is no stream: send this response."""
        self._exchange.forget()
        self._exchange.respond(status, headers, body)

    def beat(self, heartbeat: bytes) -> None:
        """Send a heartbeat, if the client has every event so far."""
        exchange = self._exchange
        if exchange.begun and self.position == self._log.last and not exchange.paused:
            exchange.write(heartbeat)
            exchange.flush()

    def advance(self) -> None:
        """Send what the log has after the position, as far as the client takes it."""
        log, exchange = self._log, self._exchange
        if log.state == "waiting":
            return
        if not exchange.begun:
            exchange.begin(self.head)
        while self.position < log.last and not exchange.paused:
            if self.position < log.first:  # it was slower than the log keeps events
                self._end(whole=False)
                return
            events = log.events(self.position, _MAX_READ)
            self.position += len(events)
            data = b"".join(events)
            self.sent += len(data)
            if log.state == "ended" and self.position == log.last:
                self._end(data)
                return
            exchange.write(data)
        if log.over and self.position == log.last:
            self._end(whole=log.state == "ended")

    def close(self) -> None:
        """End the response between two events. The client may come back."""
        self._end(whole=self._exchange.begun)

    def _end(self, data: bytes = b"", *, whole: bool = True) -> None:
        self._exchange.forget()
        if whole:
            self._exchange.end(data)
        else:
            self._exchange.abort()
        self._readers.on_left(self)

    def _on_gone(self) -> None:
        self._exchange.forget()
        self._readers.on_left(self)

    def _on_resume(self) -> None:
        self.advance()
        self._readers.on_progress()
