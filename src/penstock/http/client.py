"""The client's side of HTTP/1.1: a connection to an upstream, and one answer after another on it.

1. A request is sent whole; its answer comes through the callbacks of a `Receiver`, as it arrives.
2. A connection serves one request at a time. It can serve another only when its request was sent whole,
   and its answer ended as HTTP says it must.
3. A connection that dies before the first byte of an answer, after it had been used before, was stale
   (`StaleConnectionError`). Only then is it safe to send the same request again.
4. However much an upstream sends at once, it is dealt with a little at a time, so that others have their turn.
5. Redirects are never followed.
"""

import asyncio
import fcntl
import socket
import termios
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, cast

import httptools

from penstock.error_codes import ErrorCode
from penstock.http.headers import Headers
from penstock.http.limits import UpstreamLimits

# A kept connection that was dead says so at once. One that ends later may well have seen the request.
_STALE_S = 0.5
# What is dealt with at a time. The worst that these bytes can be, a thousand tiny events, takes some 15 ms to read.
_TURN = 3_072
LONGEST_TURN = 16_384
"""The same for an answer that is recorded: reads of usual sizes stay whole, as captures are to show them."""
# Unless they hold more values and lines than this, by the bytes that begin or end one: about ninety usual events.
_MOST_RECORDED = 1_200
_NOT_STRUCTURAL = bytes(byte for byte in range(256) if byte not in b"{[,\r\n")
# How many hexadecimal digits the size of a chunk has; nearly all have three.
_LIKELY_DIGITS = (3, 2, 4, 5, 6, 1, 7)
LONGEST_READ = 262_144
"""No read of a socket has more bytes."""


class UpstreamError(Exception):
    """The upstream could not be asked, or broke off. `code` is a stable word for what went wrong.

    `retry_after` is for how many seconds to leave it alone, where that is known.
    """

    def __init__(self, code: ErrorCode, message: str, retry_after: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class StaleConnectionError(UpstreamError):
    """A pooled connection turned out to be dead before the answer began: ask again on a fresh one."""


class Receiver(Protocol):
    """Who takes an answer, as it arrives. After `on_end` or `on_error` nothing more comes."""

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer."""

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """A piece of its body; `last` if it is known that `on_end` follows at once."""

    def on_end(self) -> None:
        """The body is complete, as far as HTTP can tell."""

    def on_error(self, error: UpstreamError) -> None:
        """The answer broke off."""


def turn_size(data: bytes, *, recorded: bool) -> int:
    """How many of these bytes are dealt with at a time at most: the next ones of an answer that is recorded or not."""
    if recorded and len(data[:LONGEST_TURN].translate(None, _NOT_STRUCTURAL)) <= _MOST_RECORDED:
        return LONGEST_TURN
    return _TURN


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream."""

    on_chunk: Callable[[bytes, bytes], bool] | None = None
    """Called in place of the parser, with the payload and the framed bytes of each read that is exactly one chunk.

    It may be set while the answer stands between two chunks (`aligned_chunks`). A chunk that it takes, by returning
    True, the parser never sees: so the parser stays between two chunks. With the first chunk that it does not take, and
    with the first read that is not exactly one chunk, the parser reads on and this is None again.
    """
    kept_until = 0.0
    """When it has waited too long for another request, if it was kept for one."""
    _transport: asyncio.Transport | None = None
    _secured: socket.socket | None = None  # what lies under TLS, if there is any
    # The answer.
    _receiver: Receiver | None = None
    _head: Headers | None = None
    _read = b""  # what was parsed last
    _opening = False  # whether it holds the beginning of an answer
    _complete = _keep_alive = False
    _bare_bytes = 0  # of the answer, since the last piece of its body
    _rest = b""  # what has come, and is dealt with in its turn
    _recorded = False
    _turn: asyncio.Handle | None = None
    _paused = False
    _lost: tuple[Exception | None] | None = (
        None  # why the connection is gone, if what came before is not dealt with yet
    )

    def __init__(self, limits: UpstreamLimits, release: Callable[["UpstreamConnection"], None]) -> None:
        self._limits = limits
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self.retires = self._sent + limits.max_age_s
        """When it is too old for another request."""
        self._pieces: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}
        # What llhttp calls for each header, and for each piece of the body.
        self.on_header = self._fields.__setitem__
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)

    @property
    def alive(self) -> bool:
        """Whether it can still be used."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def aligned_chunks(self) -> Sequence[bytes]:
        """The payloads of this read, if it is nothing but whole HTTP chunks and the answer stands between two of them.

        It can be told while pieces of the answer are given. It does stand so after a read that is so many chunks, by
        its own bytes and by the parser's reading; and after one that holds the head and then such chunks. An empty line
        ends a head, wherever it is. And what follows it cannot be the body itself, not chunked: then all of it were one
        piece. (The rest of a chunk, with the size of the next one behind it, can look like a chunk too, if there is CR
        in it, or if it is one byte: those are left out.)
        """
        pieces = self._pieces
        if not pieces or self._complete or self._rest or len(pieces[0]) == 1:
            return ()
        chunks = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])
        read = self._read.partition(b"\r\n\r\n")[2] if self._opening else self._read
        return pieces if read == chunks and chunks.count(b"\r") == 2 * len(pieces) else ()

    def send(self, request: bytes, receiver: Receiver, *, recorded: bool = False) -> None:
        """Send a request; its answer goes to the receiver. `recorded`: reads are to stay as they came if they can."""
        self._recorded = recorded
        assert self._transport is not None
        assert self._receiver is None
        self._receiver = receiver
        self._sent = self._loop.time()
        self._transport.write(request)

    def pause(self) -> None:
        """Read no more until `resume`: whoever takes the answer is slow."""
        self._paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._paused = False
        self._read_on()

    def abandon(self, receiver: Receiver) -> None:
        """The receiver wants no more: close, if the answer that it waits for is still under way."""
        if self._receiver is receiver:
            self.close()

    def close(self) -> None:
        """Close at once; the receiver hears nothing more."""
        self._receiver = self.on_chunk = None
        self._rest = b""
        if self._transport is not None:
            self._transport.abort()
        elif self._lost is not None:
            self._lose(*self._lost)

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The upstream has accepted."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport = transport
        connected = transport.get_extra_info("socket")
        if transport.get_extra_info("sslcontext") is not None:
            self._secured = connected
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        on_chunk = self.on_chunk
        if on_chunk is not None:
            line, start = _size_line(len(data))
            if data.startswith(line) and data.endswith(b"\r\n") and on_chunk(data[start:-2], data):
                return
            self.on_chunk = None
        if self._rest or len(data) > _TURN:
            data = self._part(data)
            if not data:
                return
        self._read = data
        self._opening = False
        defect = ""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            defect = f"the answer is not valid HTTP/1.1: {error}"
        except httptools.HttpParserUpgrade:
            defect = "the answer switches protocols"
        if self._receiver is None:
            self.close()  # nobody asked, or nobody wants to hear it
            return
        if self._pieces:
            self._bare_bytes = 0
            # All of one read at once: that is one write to the client.
            self._receiver.on_data(b"".join(self._pieces), last=self._complete)
            self._pieces.clear()
        else:
            self._bare_bytes += len(data)
        if self._complete:
            if defect:
                self._keep_alive = False  # the answer is whole; what stands behind it is not ours
            self._finish()
        elif defect or self._bare_bytes or self._fields:
            self._check(defect)

    def _part(self, data: bytes) -> bytes:
        """The part that is dealt with now, of these bytes and what has come before them; nothing, if it must wait."""
        if data and self._transport is not None:
            self._transport.pause_reading()
        self._rest += data
        if self._paused or self._turn is not None:
            return b""
        size = turn_size(self._rest, recorded=self._recorded)
        part, self._rest = self._rest[:size], self._rest[size:]
        self._read_on()
        return part

    def _read_on(self) -> None:
        """Go on with what has come, once others have had their turn; or read more."""
        if self._paused or self._turn is not None:
            return
        if self._rest:
            self._turn = self._loop.call_soon(self._go_on)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _go_on(self) -> None:
        """Deal with the next part of what has come."""
        self._turn = None
        if self._rest:
            self.data_received(b"")
        else:
            self._read_on()
        if self._lost is not None and not self._rest:
            self._lose(*self._lost)

    def eof_received(self) -> bool:
        """The upstream has closed its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone. What came before is dealt with first, in turns as ever."""
        self._transport = None
        if self._rest and self._receiver is not None:
            self._lost = (exc,)
            self._read_on()
        else:
            self._lose(exc)

    def _lose(self, exc: Exception | None) -> None:
        self._lost = None
        self._parser = httptools.HttpResponseParser(None)  # the old one refers to this: no cycle may be left
        receiver = self._receiver
        if receiver is None:
            self._release(self)
            return
        if self._head is not None and exc is None and not _is_sized(self._head):
            # Only the content of the body can tell whether it was cut.
            self._receiver = None
            receiver.on_end()
        elif self._is_stale():
            self._receiver = None
            receiver.on_error(StaleConnectionError("upstream_stale", "the connection was closed while it was idle"))
        else:
            code: ErrorCode = "upstream_reset" if exc is not None else "upstream_truncated"
            self._fail(
                code, f"the connection was {'reset' if exc is not None else 'closed'} before the answer was complete"
            )
        self._release(self)

    def _is_stale(self) -> bool:
        """Whether the connection was dead when the request was sent."""
        begun = self._head is not None or self._bare_bytes
        return self.kept_until > 0 and not begun and self._loop.time() - self._sent < _STALE_S

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._complete:
            raise ValueError("a second answer to one request")
        self._opening = True

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if len(self._fields) > self._limits.max_headers:
            raise ValueError(f"more than {self._limits.max_headers} headers")
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._head = Headers(self._fields)
        self._fields.clear()
        self._keep_alive = self._parser.should_keep_alive()
        if self._receiver is not None:
            self._receiver.on_head(status, self._head)

    def on_message_complete(self) -> None:
        """The answer is whole, or was only a forerunner (100, 103)."""
        if self._head is not None:
            self._complete = True
        else:
            self._fields.clear()

    def _check(self, defect: str) -> None:
        """Fail if the answer has a defect, or a head or trailers without end."""
        if not defect and self._bare_bytes > self._limits.max_head:
            defect = f"more than {self._limits.max_head} bytes of the answer are head, or framing without a body"
        if not defect and self._fields:  # of its head, or behind its body
            headers = len(self._fields) + (len(self._head) if self._head is not None else 0)
            if headers > self._limits.max_headers:
                defect = f"more than {self._limits.max_headers} headers"
        if defect and self._receiver is not None:
            self._fail("upstream_bad_response", defect)

    def _finish(self) -> None:
        """The answer is whole. Forget it, so that there can be another; the parser stands behind its end."""
        receiver, self._receiver = self._receiver, None
        self._head = None
        if self._fields:
            self._fields.clear()
        self._read = b""
        self._bare_bytes = 0
        self._complete = False
        if self._rest:
            self._rest = b""
            self._keep_alive = False  # what stands behind the answer is not ours
        transport = self._transport
        if transport is not None and (
            not self._keep_alive
            or transport.get_write_buffer_size()
            or (self._secured is not None and _is_sending(self._secured))
        ):
            # What was not sent yet would hold up what follows it, perhaps for ever.
            transport.abort()
        if self._paused:
            self.resume()  # whoever was slow has all of it; the next answer must not wait, nor its end go unnoticed
        self._release(self)
        if receiver is not None:
            receiver.on_end()

    def _fail(self, code: ErrorCode, message: str) -> None:
        receiver, self._receiver = self._receiver, None
        self.on_chunk = None
        self._rest = b""
        if self._transport is not None:
            self._transport.abort()
        if receiver is not None:
            receiver.on_error(UpstreamError(code, message))


@lru_cache(maxsize=1_024)
def _size_line(length: int) -> tuple[bytes | tuple[()], int]:
    """How a read of so many bytes begins if it is exactly one chunk with a body, and how long that line is.

    There are lengths that no chunk has: nothing begins with the line of such a one.
    """
    for digits in _LIKELY_DIGITS:
        size = length - digits - len(b"\r\n\r\n")
        line = b"%x\r\n" % max(size, 0)
        if size > 0 and len(line) == digits + len(b"\r\n"):
            return line, len(line)
    return (), 0


def _is_sized(head: Headers) -> bool:
    """Whether the head says how its body ends. Else that ends where the connection does."""
    return "content-length" in head or "chunked" in head.get("transfer-encoding", "").lower()


def _is_sending(connected: socket.socket) -> bool:
    """Whether a part of the request has not left yet, although it was encrypted.

    Under TLS lies a second buffer, which nobody shows. While it holds something the kernel has something unsent too;
    and it has nothing once an answer has come to all that was sent.
    """
    try:
        return any(fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4)))
    except OSError:  # a system that does not tell
        return False
