"""WebSocket (RFC 6455), the side of the server: messages of text over an exchange that was upgraded.

The sans-I/O layer of the package `websockets` reads and writes frames. This file has what it leaves open:

1. A message is passed on when it is complete and valid UTF-8. A larger one than `max_message` (close code 1009), a
   binary one (1003), one that takes too long to arrive (1008) and invalid UTF-8 (1007) close the connection.
2. Reading never stops (`server.py`, rule 3). Of the pings of a client that does not read, only the last is answered.
3. The server sends pings, so that no proxy closes a connection on which a model is thinking. A pong is not demanded:
   some clients read only while they wait for an answer. A client that reads nothing is disconnected, as any other.
4. A connection that is not `busy` closes after `idle_s` without a message. `on_old` is called for any one that is older
   than `max_age_s`.
5. A read with very many frames closes the connection (1008), because reading them would delay all other clients: no
   client sends hundreds of requests at once, and fragments are larger.
6. No compression is offered: it takes 300 KB for each connection, and the time of several events for each event.

The module is imported with the first offer of a client.
"""

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN, SERVER, Protocol
from websockets.server import ServerProtocol

from penstock.http.exchange import Exchange

# Reasons of a close frame have at most 123 bytes.
_MAX_REASON = 123
_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
# What is parsed at once, and how many frames one read may have.
_PIECE = 16_384
_MAX_FRAMES = 1_000
# How many times the shortest timeout is checked while it runs.
_CHECKS = 4


class WebSocketLimits(Struct, frozen=True, kw_only=True):
    """Bytes and seconds of one connection."""

    max_message: int = 20_000_000
    message_timeout_s: float = 30.0
    idle_s: float = 600.0
    max_age_s: float = 3_600.0
    ping_s: float = 20.0


def handshake(exchange: Exchange) -> bytes | str:
    """The head of the response that accepts an offer, or what is wrong with the offer."""
    headers = Headers(exchange.request.headers)
    protocol = ServerProtocol()
    response = protocol.accept(Request(exchange.request.path, headers))
    if response.status_code != 101:
        return str(protocol.handshake_exc)
    for name, _, value in (line.partition(": ") for line in exchange.request.fixed_headers.splitlines()):
        if name != "connection":
            response.headers[name] = value
    return response.serialize()


class WebSocket:
    """One connection. `on_message` gets each message. `on_closed` is called once, when no more can be sent; `on_old`
    when the connection has reached its age, and `on_closing` when the server accepts no more requests."""

    busy = False
    """Whether the client waits for something, so that the connection is not idle."""
    _pong = b""  # the answer to the last ping of a client that does not read
    _started_s = 0.0  # when the first bytes of the message that is arriving came; 0 if none is
    _reported_age = False

    def __init__(
        self,
        exchange: Exchange,
        limits: WebSocketLimits,
        on_message: Callable[[bytes], None],
        on_closed: Callable[[], None],
        on_old: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._limits = limits
        self._on_message, self._on_closed, self._on_old = on_message, on_closed, on_old
        self._protocol = Protocol(SERVER, state=OPEN, max_size=limits.max_message)
        self._pieces = bytearray()  # of a message in several frames
        self._is_text = True
        self._opened_s = self._used_s = self._pinged_s = self._loop.time()
        self._tick_s = min(limits.ping_s, limits.idle_s / _CHECKS, limits.message_timeout_s / _CHECKS, limits.max_age_s)
        self._timer: asyncio.TimerHandle | None = None

    def open(self, head: bytes) -> None:
        """Accept the offer with this head of a response."""
        exchange = self._exchange
        exchange.on_gone = self._end
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        if early := exchange.upgrade(head, self._receive):
            self._receive(early)

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._timer is None

    def send(self, messages: Iterable[bytes]) -> None:
        """Send messages."""
        if not self.closed:
            for message in messages:
                self._protocol.send_text(message)
            self._flush()

    def close(self, code: CloseCode, reason: str = "") -> None:
        """Close after what was sent."""
        if not self.closed:
            self._protocol.fail(code, reason.encode()[:_MAX_REASON].decode(errors="ignore"))
            self._flush()
            self._finish()

    def resumed(self) -> None:
        """The client reads again."""
        if self._pong:
            self._exchange.send(self._pong)
            self._pong = b""

    def _receive(self, data: bytes) -> None:
        count = 0
        for start in range(0, len(data), _PIECE):
            count += self._read(data[start : start + _PIECE])
            if self.closed:
                return
            if count > _MAX_FRAMES:
                self.close(CloseCode.POLICY_VIOLATION, "too many frames at once")
                return

    def _read(self, data: bytes) -> int:
        """Read a piece of what has arrived; returns the number of frames that it completes."""
        protocol = self._protocol
        protocol.receive_data(data)
        frames = protocol.events_received()
        if protocol.close_expected():
            self._flush()
            self._finish()
            return len(frames)
        if self._exchange.paused:
            self._pong = (protocol.data_to_send() or [self._pong])[-1]
        else:
            self._flush()
        for event in frames[:_MAX_FRAMES]:
            if isinstance(event, Frame) and event.opcode in _DATA and not self.closed:
                self._take(event)
        arriving = self._pieces or protocol.current_size is not None or protocol.reader.buffer
        self._started_s = (self._started_s or self._loop.time()) if arriving else 0.0
        return len(frames)

    def _take(self, frame: Frame) -> None:
        if frame.opcode != Opcode.CONT:
            self._is_text = frame.opcode == Opcode.TEXT
        if not self._is_text:
            self.close(CloseCode.UNSUPPORTED_DATA, "messages must be text")
        elif not frame.fin:
            self._pieces += frame.data
        else:
            message = bytes(frame.data)
            if self._pieces:
                message, self._pieces = bytes(self._pieces + message), bytearray()
            self._started_s = 0.0
            self._used_s = self._loop.time()
            try:
                str(message, "utf-8")
            except UnicodeDecodeError:
                self.close(CloseCode.INVALID_DATA, "a message is not valid UTF-8")
            else:
                self._on_message(message)

    def _flush(self) -> None:
        if written := b"".join(self._protocol.data_to_send()):
            self._exchange.send(written)

    def _tick(self) -> None:
        """Look at the time: this is often enough, and costs less than a timer for each limit."""
        now, limits = self._loop.time(), self._limits
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        if self.busy:
            self._used_s = now
        if self._started_s and now - self._started_s > limits.message_timeout_s:
            self.close(CloseCode.POLICY_VIOLATION, "a message took too long to arrive")
        elif now - self._used_s > limits.idle_s:
            self.close(CloseCode.NORMAL_CLOSURE, "the connection was idle")
        elif now - self._opened_s > limits.max_age_s and not self._reported_age:
            self._reported_age = True
            self._on_old()
        elif now - self._pinged_s >= limits.ping_s and not self._exchange.paused:
            self._pinged_s = now
            self._protocol.send_ping(b"")
            self._flush()

    def _finish(self) -> None:
        """The close frame is sent, if there is one: close the connection."""
        self._exchange.close()
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._exchange.forget()
            self._protocol.parser.close()  # this and the next refer to the protocol, and the callbacks to this object
            self._protocol.parser_exc = None
            closed, self._on_closed = self._on_closed, _do_nothing
            self._on_message, self._on_old = _drop, _do_nothing
            closed()


def _drop(_message: bytes) -> None:
    """Discard a message: the connection is closed."""


def _do_nothing() -> None:
    """The callback of a connection that is closed."""
