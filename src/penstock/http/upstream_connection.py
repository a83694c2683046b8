"""The client side of HTTP/1.1: a connection to an upstream, which carries one request after another (keep-alive).

1. A request is sent whole; a large one in pieces, one per iteration of the event loop. Its response is passed to the
   callbacks of a `Receiver` as it arrives.
2. A connection serves one request at a time. It is reused only if the request was sent completely and the response
   ended as HTTP requires.
3. A reused connection that dies before the first byte of a response, and within `_STALE_S` of the request, is regarded
   as stale: dead while it was idle (`StaleConnectionError`). Only then is the same request sent again. This is a
   heuristic: an upstream that reads the request and disconnects at once looks the same.
4. However much an upstream sends at once, it is processed in small parts, one per iteration of the event loop, so that
   other calls are not delayed.
5. Backpressure: `pause` stops reading from the socket, so that TCP slows the upstream down, until `resume`.
6. Redirects are never followed.
7. An exception of a receiver closes the connection and is reported to the receiver (`ReceiverError`).
"""

import asyncio
import fcntl
import socket
import termios
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias, cast

import httptools

from penstock.error_codes import ErrorCode
from penstock.http.headers import Headers
from penstock.http.limits import UpstreamLimits

# A connection that was dead while it was idle fails at once. If it fails later, the upstream may have seen the request.
_STALE_S = 0.5
# The bytes that are processed per turn (one iteration of the event loop), whatever they are, if they have at most
# `_MOST_LINES` lines; and if they have more. At worst each line is a broken event, which takes some 25 microseconds.
_TURN = 2_048
_SHORT_TURN = 1_024
_MOST_LINES = 256
LONGEST_TURN = 16_384
"""The bytes that are processed per turn if they have few values and lines: reads of usual sizes stay whole. A split
read costs system calls, and captures must show reads as they came."""
# The most values and lines in such a turn, counted by structural bytes: about ninety usual events.
_MOST_STRUCTURAL = 1_200
_NOT_STRUCTURAL = bytes(byte for byte in range(256) if byte not in b"{[,\r\n")
# The possible numbers of hexadecimal digits of a chunk's size, the most frequent first.
_LIKELY_DIGITS = (3, 2, 4, 5, 6, 1, 7)
# The bytes of a large request that are written at once: TLS encrypts them within the write.
_LONGEST_WRITE = 262_144
LONGEST_READ = 262_144
"""The most bytes that one read of a socket returns."""


class UpstreamError(Exception):
    """The request could not be sent, or the response broke off. `code` is a stable error code.

    `retry_after` is after how many seconds to try again, if it is known.
    """

    def __init__(self, code: ErrorCode, message: str, retry_after: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class StaleConnectionError(UpstreamError):
    """A reused connection was presumably dead when the request was sent: send it again on a new one."""


class ReceiverError(UpstreamError):
    """A callback of the receiver raised an exception, its `__cause__`: not the upstream has failed, but the gateway."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("internal_error", "the gateway failed")
        self.__cause__ = cause


class Receiver(Protocol):
    """The callbacks for a response, as it arrives. No callback is called after `on_end` or `on_error`.

    One exception: if a callback raises, `on_error` is called with a `ReceiverError`, so that every call ends.
    """

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Called with the head of the response."""

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """Called with a piece of the body; `last` if `on_end` is known to follow at once."""

    def on_end(self) -> None:
        """Called when the body is complete, as far as HTTP framing shows."""

    def on_error(self, error: UpstreamError) -> None:
        """Called when the response breaks off."""


RequestBytes: TypeAlias = bytes | tuple[bytes, bytes]
"""A whole request: in one piece, or as its head and its large body, which is not copied."""


def turn_size(data: bytes) -> int:
    """The most of these bytes to process in one turn."""
    if data.count(b"\n", 0, _TURN) + data.count(b"\r", 0, _TURN) > _MOST_LINES:
        return _SHORT_TURN
    if len(data) <= _TURN:
        return _TURN
    structural = len(data[:LONGEST_TURN].translate(None, _NOT_STRUCTURAL))
    return LONGEST_TURN if structural <= _MOST_STRUCTURAL else _TURN


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream."""

    on_chunk: Callable[[bytes, bytes], bool] | None = None
    """Called in place of the parser, with the payload and the framed bytes of each read that is exactly one chunk.

    It may be set only while the parser is between two chunks (`aligned_chunks`). By returning True it consumes a chunk,
    which the parser then never sees: so the parser stays between two chunks. With the first chunk that it does not
    consume, and with the first read that is not exactly one chunk, the parser continues and this becomes None.
    """
    idle_until = 0.0
    """The time until which the connection may stay idle; 0 until it is idle for the first time."""
    _transport: asyncio.Transport | None = None
    _tls_socket: socket.socket | None = None  # the socket below TLS, if there is TLS
    _unsent: memoryview | None = None  # the rest of a large request
    _writes_paused = False
    # The response.
    _receiver: Receiver | None = None
    _head: Headers | None = None
    _read = b""  # the bytes that were parsed last
    _starts_response = False  # whether they have the start of a response
    _complete = _keep_alive = False
    _framing_bytes = 0  # bytes of head or framing since the last piece of the body
    _rest = b""  # bytes that were read, and wait for the next turn
    _turn: asyncio.Handle | None = None
    _paused = False
    _lost: tuple[Exception | None] | None = (
        None  # why the connection was lost, while earlier bytes still wait for their turn
    )

    def __init__(self, limits: UpstreamLimits, release: Callable[["UpstreamConnection"], None]) -> None:
        self._limits = limits
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self.retires = self._sent_at + limits.max_age_s
        """The time after which the connection is too old for another request."""
        self._pieces: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}
        # The callbacks of llhttp for each header, and for each piece of the body.
        self.on_header = self._fields.__setitem__
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def aligned_chunks(self) -> Sequence[bytes]:
        r"""The payloads of this read, if it consists of whole HTTP chunks only and the parser is between two chunks.

        It is valid during `on_data`. The proof: the pieces that the parser has found, encoded again as chunks, are
        compared with the bytes of the read. If they are equal, and the parser was between two chunks before, it read
        exactly these chunks, because it can read the same bytes in one way only. The same holds for a read with the
        head and then such chunks: the first empty line ends the head, wherever it is, and the rest cannot be an
        unchunked body, because that would be one piece with different bytes. If the parser was in the line with the
        size of a chunk, the read has the end of that line, and the rest is the same. If it was in a chunk, the first
        piece is the rest of that chunk, with which the read begins, although equal bytes begin with the size of this
        piece. So two cases look like whole chunks and are excluded: the piece begins with its own size, as `4\r\n4` in
        the read `4\r\n4\r\n4\r\n`; or it is one byte, as `1` in the read `1\r\n1\r\n`.
        """
        pieces = self._pieces
        if not pieces or self._complete or self._rest or len(pieces[0]) == 1:
            return ()
        if pieces[0].startswith(b"%x\r\n" % len(pieces[0])):
            return ()
        chunks = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])
        read = self._read.partition(b"\r\n\r\n")[2] if self._starts_response else self._read
        return pieces if read == chunks else ()

    def send(self, request: RequestBytes, receiver: Receiver | None = None) -> None:
        """Send a request; the receiver gets the response. Without one, `redirect` must set it before the event loop
        goes on."""
        assert self._transport is not None
        assert self._receiver is None
        self._receiver = receiver
        self._sent_at = self._loop.time()
        if isinstance(request, tuple):
            head, body = request
            self._unsent = memoryview(body)
            self._transport.write(head)
            self._write_on()
        else:
            self._transport.write(request)

    def _write_on(self) -> None:
        """Write the next piece of a large request, if the transport takes it now."""
        if self._unsent is None or self._writes_paused or self._transport is None:
            return
        piece, rest = self._unsent[:_LONGEST_WRITE], self._unsent[_LONGEST_WRITE:]
        self._unsent = rest or None
        self._transport.write(piece)
        if self._unsent is not None and not self._writes_paused:
            self._loop.call_soon(self._write_on)

    def pause_writing(self) -> None:
        """Called when the write buffer is full (backpressure)."""
        self._writes_paused = True

    def resume_writing(self) -> None:
        """Called when the write buffer has drained."""
        self._writes_paused = False
        self._write_on()

    def pause(self) -> None:
        """Stop reading until `resume` (backpressure): the receiver cannot take more for now."""
        self._paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue to read."""
        self._paused = False
        self._read_on()

    def redirect(self, receiver: Receiver) -> None:
        """Deliver the rest of the response to this receiver."""
        self._receiver = receiver

    def abandon(self, receiver: Receiver) -> None:
        """Close the connection if this receiver's response is not complete yet."""
        if self._receiver is receiver:
            self.close()

    def close(self) -> None:
        """Close at once; the receiver is not called again."""
        self._receiver = self.on_chunk = self._unsent = None
        self._rest = b""
        if self._transport is not None:
            self._transport.abort()
        elif self._lost is not None:
            self._lose(*self._lost)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is established."""
        transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        self._transport = transport
        connected = transport.get_extra_info("socket")
        if transport.get_extra_info("sslcontext") is not None:
            self._tls_socket = connected
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Called with the bytes of a read, or with none to process those that wait."""
        receiver = self._receiver
        try:
            on_chunk = self.on_chunk
            if on_chunk is not None:
                line, start = _size_line(len(data))
                if data.startswith(line) and data.endswith(b"\r\n") and on_chunk(data[start:-2], data):
                    return
                self.on_chunk = None
            self._parse(data)
        except Exception as error:  # noqa: BLE001 - the call ends (rule 7)
            self._break(receiver, error)

    def _break(self, receiver: Receiver | None, error: Exception) -> None:
        """The receiver has raised an exception: close the connection unless its response is complete, and report it."""
        if receiver is None:
            raise error
        self.abandon(receiver)
        receiver.on_error(ReceiverError(error))

    def _parse(self, data: bytes) -> None:
        """Parse these bytes, and those that wait, and pass on what they contain."""
        if self._rest or len(data) > _SHORT_TURN:
            data = self._part(data)
            if not data:
                return
        self._read = data
        self._starts_response = False
        defect = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            defect = f"the answer is not valid HTTP/1.1: {error}"
        except httptools.HttpParserUpgrade:
            defect = "the answer switches protocols"
        if self._receiver is None:
            self.close()  # an unsolicited response, or the receiver has abandoned it
            return
        if self._pieces:
            self._framing_bytes = 0
            # All pieces of one read together, so that they become one write to the client.
            self._receiver.on_data(b"".join(self._pieces), last=self._complete)
            self._pieces.clear()
        else:
            self._framing_bytes += len(data)
        if self._complete:
            if defect:
                self._keep_alive = False  # the response is complete; the bytes after it are not part of it
            self._finish()
        elif defect or self._framing_bytes or self._fields:
            self._check(defect)

    def _part(self, data: bytes) -> bytes:
        """The bytes to process in this turn, from those that wait and these; none if they must wait longer."""
        if not self._rest and len(data) <= turn_size(data):
            return data
        if data and self._transport is not None:
            self._transport.pause_reading()
        self._rest += data
        if self._paused or self._turn is not None:
            return b""
        size = turn_size(self._rest)
        part, self._rest = self._rest[:size], self._rest[size:]
        self._read_on()
        return part

    def _read_on(self) -> None:
        """Process the waiting bytes in the next iteration of the loop, or read more."""
        if self._paused or self._turn is not None:
            return
        if self._rest:
            self._turn = self._loop.call_soon(self._next_turn)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _next_turn(self) -> None:
        """Process the next part of the waiting bytes."""
        self._turn = None
        if self._rest:
            self.data_received(b"")
        else:
            self._read_on()
        if self._lost is not None and not self._rest:
            self._lose(*self._lost)

    def eof_received(self) -> bool:
        """Called when the upstream has closed its side; the transport then closes too."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection is lost. Bytes that still wait are processed first, in turns as before."""
        self._transport = None
        if self._rest and self._receiver is not None:
            self._lost = (exc,)
            self._read_on()
        else:
            self._lose(exc)

    def _lose(self, exc: Exception | None) -> None:
        self._lost = self._unsent = None
        self._parser = httptools.HttpResponseParser(None)  # the old one refers to this object: break the cycle
        receiver = self._receiver
        if receiver is None:
            self._release(self)
            return
        try:
            self._end_with(receiver, exc)
        except Exception as error:  # noqa: BLE001 - the call ends (rule 7)
            self._break(receiver, error)
        self._release(self)

    def _end_with(self, receiver: Receiver, exc: Exception | None) -> None:
        """End the response, whose connection is lost."""
        if self._head is not None and exc is None and not _is_sized(self._head):
            # The body ends with the connection: only its content can show whether it was truncated.
            self._receiver = None
            receiver.on_end()
        elif self._is_stale():
            self._receiver = None
            receiver.on_error(StaleConnectionError("upstream_stale", "the connection was closed while it was idle"))
        else:
            code: ErrorCode = "upstream_reset" if exc is not None else "upstream_truncated"
            how = "reset" if exc is not None else "closed"
            self._fail(code, f"the connection was {how} before the answer was complete")

    def _is_stale(self) -> bool:
        """Whether the connection was presumably dead when the request was sent (rule 3)."""
        begun = self._head is not None or self._framing_bytes
        return self.idle_until > 0 and not begun and self._loop.time() - self._sent_at < _STALE_S

    # Called by llhttp.

    def on_message_begin(self) -> None:
        """Called at the start of a response."""
        if self._complete:
            raise ValueError("a second answer to one request")
        self._starts_response = True

    def on_headers_complete(self) -> None:
        """Called when the head is complete."""
        if len(self._fields) > self._limits.max_headers:
            raise ValueError(f"more than {self._limits.max_headers} headers")
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._head = Headers(self._fields)
        self._fields.clear()
        self._keep_alive = self._parser.should_keep_alive()
        if self._receiver is not None:
            try:
                self._receiver.on_head(status, self._head)
            except Exception as error:  # noqa: BLE001 - the parser would report it as a defect of the response
                self._break(self._receiver, error)

    def on_message_complete(self) -> None:
        """Called when a response is complete, final or informational (100, 103)."""
        if self._head is not None:
            self._complete = True
        else:
            self._fields.clear()

    def _check(self, defect: str) -> None:
        """Fail if the response has a defect, or if its head, its framing or its trailers exceed the limits."""
        if not defect and self._framing_bytes > self._limits.max_head:
            defect = f"more than {self._limits.max_head} bytes of the answer are head, or framing without a body"
        if not defect and self._fields:  # headers of an incomplete head, or trailers
            headers = len(self._fields) + (len(self._head) if self._head is not None else 0)
            if headers > self._limits.max_headers:
                defect = f"more than {self._limits.max_headers} headers"
        if defect and self._receiver is not None:
            self._fail("upstream_bad_response", defect)

    def _finish(self) -> None:
        """End a complete response, and reset the state for the next one; the parser is at the end of the response."""
        receiver, self._receiver = self._receiver, None
        self._head = None
        if self._fields:
            self._fields.clear()
        self._read = b""
        self._framing_bytes = 0
        self._complete = False
        if self._rest:
            self._rest = b""
            self._keep_alive = False  # the bytes after the response are not part of it
        transport = self._transport
        if transport is not None and (
            not self._keep_alive
            or self._unsent is not None
            or transport.get_write_buffer_size()
            or (self._tls_socket is not None and _has_unsent(self._tls_socket))
        ):
            # The connection cannot be reused: unsent bytes of this request would delay the next one, perhaps forever.
            self._unsent = None
            transport.abort()
        if self._paused:
            # The whole response has been handed over. The next one must not wait, nor a close go unnoticed.
            self.resume()
        self._release(self)
        if receiver is not None:
            receiver.on_end()

    def _fail(self, code: ErrorCode, message: str) -> None:
        receiver, self._receiver = self._receiver, None
        self.on_chunk = self._unsent = None
        self._rest = b""
        if self._transport is not None:
            self._transport.abort()
        if receiver is not None:
            receiver.on_error(UpstreamError(code, message))


@lru_cache(maxsize=1_024)
def _size_line(length: int) -> tuple[bytes | tuple[()], int]:
    """The size line of a read of this length if it is exactly one chunk with a body, and the length of that line.

    Some lengths are impossible for a chunk. For these it returns an empty tuple, with which no read starts.
    """
    for digits in _LIKELY_DIGITS:
        size = length - digits - len(b"\r\n\r\n")
        line = b"%x\r\n" % max(size, 0)
        if size > 0 and len(line) == digits + len(b"\r\n"):
            return line, len(line)
    return (), 0


def _is_sized(head: Headers) -> bool:
    """Whether the head defines the end of the body. Otherwise the body ends with the connection."""
    return "content-length" in head or "chunked" in head.get("transfer-encoding", "").lower()


def _has_unsent(connected: socket.socket) -> bool:
    """Whether a part of the encrypted request has not been sent yet.

    Below TLS there is a second write buffer, whose size asyncio does not report. While it has bytes, the kernel has
    unsent bytes too; and the kernel has none once the response to the whole request has arrived.
    """
    try:
        return any(fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4)))
    except OSError:  # the system does not report it
        return False
