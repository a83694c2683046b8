"""TextStreams: server-sent events with the text of a call in progress, for readers who may see content.

A reader first receives the text so far, as far as the call's transcript has kept it, and the number of characters that
it has missed. Up to `_MAX_BUFFERED` bytes are buffered for a slow reader; then the reader is disconnected. A call never
waits for a reader.
"""

import asyncio

import msgspec

from penstock.core.hub.events import Event
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.gateway.record.transcript import TranscriptPart, part_of
from penstock.http.exchange import Exchange
from penstock.serve.responses import STREAM_HEADERS

# Bytes, per reader.
_MAX_BUFFERED = 262_144
_HEARTBEAT_S = 10.0
HEARTBEAT = b": penstock\n\n"


class TextStreams:
    """The readers of the calls of this process. Used by the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._readers: dict[str, list[_TextWatcher]] = {}
        self._heartbeat: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._readers.values()))

    def join(self, call: Call, exchange: Exchange, headers: dict[str, str]) -> None:
        """Stream the text of a call in progress to a new reader."""
        readers = self._readers.setdefault(call.id, [])
        reader = _TextWatcher(exchange)
        readers.append(reader)
        exchange.on_gone = lambda: self._leave(call, reader)
        exchange.on_resume = reader.resume
        exchange.start(200, STREAM_HEADERS | headers)
        attempt = call.progress.attempts[-1] if call.progress.attempts else None
        transcript = call.progress.control.transcript if call.progress.control is not None else None
        kept = transcript.parts() if transcript is not None else []
        missed = (attempt.output_chars if attempt is not None else 0) - sum(len(part.text) for part in kept)
        reader.send(frame("joined", {"missed": missed}) + _frames(kept))
        call.on_text = lambda events: self._on_text(call, events)
        if self._heartbeat is None:
            self._heartbeat = self._loop.call_later(_HEARTBEAT_S, self._send_heartbeats)

    def settled(self, call: Call, entry: Entry) -> None:
        """End the streams of a settled call."""
        if call.on_text is not None:
            call.on_text = None
            last = frame("over", {"outcome": entry.outcome, "code": entry.code or None})
            for reader in self._readers.pop(call.id, ()):
                reader.end(last)

    def close(self) -> None:
        """End all streams, because the process ends."""
        for readers in self._readers.values():
            for reader in readers:
                reader.end(b"")
        self._readers.clear()
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    def _on_text(self, call: Call, events: list[Event]) -> None:
        data = _frames([part for event in events if (part := part_of(event)) is not None])
        if data:
            for reader in list(self._readers.get(call.id, ())):
                if not reader.send(data):
                    self._leave(call, reader)

    def _leave(self, call: Call, reader: "_TextWatcher") -> None:
        readers = self._readers.get(call.id, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(call.id, None)
            call.on_text = None

    def _send_heartbeats(self) -> None:
        self._heartbeat = None
        for readers in list(self._readers.values()):
            for reader in readers:
                reader.send(HEARTBEAT)
        if self._readers:
            self._heartbeat = self._loop.call_later(_HEARTBEAT_S, self._send_heartbeats)


class _TextWatcher:
    """One reader of a call."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._buffer = b""

    def send(self, data: bytes) -> bool:
        """Send now, or buffer while the reader is slow. Returns False if the buffer is full: disconnects the reader."""
        if not self._exchange.paused:
            self._exchange.write(data)
            return True
        self._buffer += data
        if len(self._buffer) > _MAX_BUFFERED:
            self._exchange.forget()
            self._exchange.abort()
            return False
        return True

    def resume(self) -> None:
        """Send the buffer: the reader's socket is writable again."""
        buffered, self._buffer = self._buffer, b""
        self._exchange.write(buffered)

    def end(self, last: bytes) -> None:
        """End the stream with these bytes."""
        self._exchange.forget()
        self._exchange.end(self._buffer + last)


def _frames(parts: list[TranscriptPart]) -> bytes:
    """Encode parts as `text` events. Choices other than the first include their number."""
    frames = []
    for part in parts:
        if part.text:
            text = part.text.encode(errors="replace").decode()  # an unpaired surrogate is not valid UTF-8
            choice = {"choice": part.choice} if part.choice else {}
            frames.append(frame("text", {"text": text, "kind": part.kind} | choice))
    return b"".join(frames)


def frame(event: str, data: object) -> bytes:
    """Encode one server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))
