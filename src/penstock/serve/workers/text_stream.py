"""TextStreams: whoever may see content reads along with a call of this process.

They are told first what was said before, as far as its transcript has it, and how many characters it has not. A reader
who is slow is waited for, up to a point, and then dropped: a call never waits for them.
"""

import asyncio

import msgspec

from penstock.core.events import Event
from penstock.gateway.billing.entry import Entry
from penstock.gateway.calls.call import Call
from penstock.gateway.relay.transcript import TranscriptPart, piece_of
from penstock.http.exchange import Exchange
from penstock.serve.responses import STREAM_HEADERS

# What may wait for a reader.
_MOST_WAITING = 262_144
_HEARTBEAT_S = 10.0
HEARTBEAT = b": penstock\n\n"


class TextStreams:
    """Those who read along with calls of this process. Belongs to the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._readers: dict[str, list[_TextFollower]] = {}
        self._beating: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._readers.values()))

    def join(self, call: Call, exchange: Exchange, headers: dict[str, str]) -> None:
        """Let somebody read along with a call that is under way."""
        readers = self._readers.setdefault(call.id, [])
        reader = _TextFollower(exchange)
        readers.append(reader)
        exchange.on_gone = lambda: self._leave(call, reader)
        exchange.on_resume = reader.go_on
        exchange.start(200, STREAM_HEADERS | headers)
        attempt = call.attempts[-1] if call.attempts else None
        transcript = call.control.transcript if call.control is not None else None
        kept = transcript.told() if transcript is not None else []
        missed = (attempt.said if attempt is not None else 0) - sum(len(piece.text) for piece in kept)
        reader.send(frame("joined", {"missed": missed}) + _frames(kept))
        call.on_text = lambda events: self._say(call, events)
        if self._beating is None:
            self._beating = self._loop.call_later(_HEARTBEAT_S, self._beat)

    def settled(self, call: Call, entry: Entry) -> None:
        """A call is over."""
        if call.on_text is not None:
            call.on_text = None
            last = frame("over", {"outcome": entry.outcome, "code": entry.code or None})
            for reader in self._readers.pop(call.id, ()):
                reader.end(last)

    def close(self) -> None:
        """The process ends: nobody reads any more."""
        for readers in self._readers.values():
            for reader in readers:
                reader.end(b"")
        self._readers.clear()
        if self._beating is not None:
            self._beating.cancel()

    def _say(self, call: Call, events: list[Event]) -> None:
        data = _frames([piece for event in events if (piece := piece_of(event)) is not None])
        if data:
            for reader in list(self._readers.get(call.id, ())):
                if not reader.send(data):
                    self._leave(call, reader)

    def _leave(self, call: Call, reader: "_TextFollower") -> None:
        readers = self._readers.get(call.id, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(call.id, None)
            call.on_text = None

    def _beat(self) -> None:
        self._beating = None
        for readers in list(self._readers.values()):
            for reader in readers:
                reader.send(HEARTBEAT)
        if self._readers:
            self._beating = self._loop.call_later(_HEARTBEAT_S, self._beat)


class _TextFollower:
    """One who reads along."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._waiting = b""

    def send(self, data: bytes) -> bool:
        """Tell them, now or when they have caught up; False if they are too slow, and dropped."""
        if not self._exchange.paused:
            self._exchange.write(data)
            return True
        self._waiting += data
        if len(self._waiting) > _MOST_WAITING:
            self._exchange.forget()
            self._exchange.abort()
            return False
        return True

    def go_on(self) -> None:
        """They have caught up."""
        waiting, self._waiting = self._waiting, b""
        self._exchange.write(waiting)

    def end(self, last: bytes) -> None:
        """There is no more."""
        self._exchange.forget()
        self._exchange.end(self._waiting + last)


def _frames(pieces: list[TranscriptPart]) -> bytes:
    """These pieces, as they are told; of a choice beside the first, with its number."""
    told = []
    for piece in pieces:
        if piece.text:
            text = piece.text.encode(errors="replace").decode()  # halves of characters are no text
            choice = {"choice": piece.choice} if piece.choice else {}
            told.append(frame("text", {"text": text, "kind": piece.kind} | choice))
    return b"".join(told)


def frame(event: str, data: object) -> bytes:
    """One event of an event stream."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))
