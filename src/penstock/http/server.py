"""The server side of HTTP/1.1: one `ServerConnection` per client, one `Exchange` (`exchange.py`) per request on it.

llhttp parses; this file enforces what a parser does not: size limits, timeouts, the order of responses, and
backpressure.

1. A request reaches the handler complete (head and body) and within the limits, or not at all.
2. One exchange at a time: pipelined requests are buffered until the response is complete. A client that pipelines too
   much gets this response, and then the connection closes.
3. Reading never stops, because only a read shows at once that a client has disconnected. A half-close counts as a
   disconnect.
4. Backpressure: `Exchange.write` never blocks. `on_pause` is called when the write buffer is full because the client is
   slow, and `on_resume` when it has drained.
5. Every response that was started is ended: if it cannot be completed, the connection closes without its last chunk.
6. A connection that the handler has upgraded to another protocol (`Exchange.upgrade`) has one exchange until it closes,
   which gets all bytes. Every other offer to upgrade is ignored.
"""

import asyncio
import re
import socket
import struct
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Protocol, cast

import httptools

from penstock.http.deadline import Deadline
from penstock.http.exchange import REASONS, Exchange, HttpRequest
from penstock.http.head_cache import CachedHead, cache_head
from penstock.http.limits import FrontLimits
from penstock.http.sockets import authority

_HOST = re.compile(r"[A-Za-z0-9._~\-\[\]:%]*\Z")
# Headers that say who asks, or from where. Keys of other kinds, such as Idempotency-Key, have one value, too.
_IDENTITY = re.compile(r"authorization|origin|(?:.+-)?key")
_MAX_PIPELINED = 65_536
# The pieces of a larger body are joined in a thread: 28 MB take 24 ms, most of it for new pages of memory.
_LARGE_BODY = 1_000_000
_LINGER_S = 2.0
# The headers with which a client offers another protocol.
_UPGRADE_HEADERS = frozenset(("upgrade", "connection", "http2-settings"))
# The `close` option in a Connection header, which may have other options too.
_CLOSE = re.compile(r"(?:^|,)\s*close\s*(?:,|\Z)", re.IGNORECASE)
# The bytes of a header besides its name and its value.
_HEADER_PUNCTUATION = len(": \r\n")
# The value of SO_LINGER with which closing resets the connection.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ErrorPage(Protocol):
    """Renders the response to a request that does not reach the handler: its headers and its body.

    `target` is the request's target (path and query) as far as it was received.
    """

    def __call__(self, status: int, message: str, target: bytes, /) -> tuple[dict[str, str], bytes]: ...


class ServerConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self,
        handler: Callable[[Exchange], None],
        error_page: ErrorPage,
        limits: FrontLimits,
        connections: set["ServerConnection"],
        max_body: Callable[[bytes, dict[str, str]], int] | None = None,
    ) -> None:
        """`max_body` returns the limit of the body for a target and its headers, if it is not the same for all."""
        self._handler = handler
        self._error_page = error_page
        self._limits = limits
        self._connections = connections
        self._max_body_for = max_body
        self._max_body = limits.max_body
        self._loop = asyncio.get_running_loop()
        self._deadline = Deadline(self._loop, self._expire)
        self._transport: asyncio.Transport | None = None
        self.write: Callable[[bytes], None] = _drop
        """Sends bytes, or buffers them until the client reads them. It is the transport's own method, because it is
        called for every event."""
        self._exchange: Exchange | None = None
        self._pipelined = b""
        self._ready: deque[Exchange] = deque()
        self.paused = False
        self._unsent = 0  # the size of the write buffer when progress was last checked
        self.closing = False
        self.peer = ""
        self._connected_at = self._loop.time()
        self._used = False  # whether it has sent a complete request
        # The head of the last request. It is dropped when bytes arrive that do not match it (`head_cache.py`, rule 3).
        self._cached_head: CachedHead | None = None
        self._partial = b""
        # The request that is being parsed.
        self._parser = httptools.HttpRequestParser(self)
        self._raw_request = b""  # its bytes so far, unless it is long
        self._expecting = "head"
        self._head_bytes = 0
        self._framing_bytes = 0
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._body_size = 0

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when a client has connected."""
        transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        self._transport = transport
        self.write = transport.write
        transport.set_write_buffer_limits(high=self._limits.write_buffer)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        if len(self._connections) >= self._limits.max_connections and not self._replace_unused():
            self._refuse(503, "there are too many connections")
            transport.close()
            return
        self._connections.add(self)
        self._deadline.set(self._limits.head_timeout_s)

    def _replace_unused(self) -> bool:
        """Close the oldest connection that has sent no complete request, if that is allowed and there is one."""
        unused = (each for each in self._connections if not each._used) if self._limits.replaces_unused else ()
        oldest = min(unused, key=lambda each: each._connected_at, default=None)
        if oldest is None:
            return False
        self._connections.discard(oldest)
        oldest.abort()
        return True

    def data_received(self, data: bytes) -> None:
        """Called with the bytes of a read."""
        cached = self._cached_head
        if cached is not None and self._exchange is None and not self.closing:
            if self._partial:
                self._continue_partial(cached, data)
                return
            body = cached.body_of(data)
            if body is not None:
                self._begin_exchange(Exchange(self, cached.request, body))
                return
            if cached.matches_start(data):
                self._keep_partial(data)
                self._deadline.set(self._limits.body_timeout_s)
                return
        if self._exchange is None:
            if self._ready or self._pipelined:
                self._pipelined += data  # earlier requests are processed first; that is already scheduled
            else:
                self._feed(data)
            return
        if self._exchange.on_data is not None:
            self._exchange.on_data(data)
            return
        self._cached_head = None  # these bytes come before the next request
        if len(self._pipelined) + len(data) <= _MAX_PIPELINED and not self.closing:
            self._pipelined += data
        else:
            self._pipelined = b""
            self.closing = True  # after this response; until then, bytes are read and dropped (rule 3)

    def eof_received(self) -> bool:
        """Called when the client has closed its side, which counts as a disconnect (rule 3)."""
        self.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Called when the connection is closed."""
        self._deadline.end()
        self._connections.discard(self)
        self._transport = self._cached_head = None
        self.write = _drop
        self._free()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.gone()

    def _free(self) -> None:
        """Free the buffers, and the parser, which refers to this connection: a cycle would wait for the collector."""
        self._parser = httptools.HttpRequestParser(None)
        self._pipelined = self._partial = self._raw_request = b""
        self._body = []
        self._ready.clear()

    def pause_writing(self) -> None:
        """Called when the write buffer is full (backpressure)."""
        self.paused = True
        self._await_progress()
        if self._exchange is not None and self._exchange.on_pause is not None:
            self._exchange.on_pause()

    def resume_writing(self) -> None:
        """Called when the write buffer has drained."""
        self.paused = False
        if self._exchange is None:
            self._deadline.set(self._limits.keep_alive_s)
            return
        self._deadline.clear()
        if self._exchange.on_resume is not None:
            self._exchange.on_resume()

    # Called by exchanges.

    def abort(self) -> None:
        """Close at once, and drop unsent bytes."""
        if self._transport is not None:
            self._transport.abort()

    def cut(self, *, reset: bool) -> None:
        """Close after the written bytes have been sent, or reset the connection."""
        if self._transport is None:
            return
        if reset:
            connected = self._transport.get_extra_info("socket")
            if connected is not None:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
        else:
            self._close()

    def finished(self, *, keep_alive: bool) -> None:
        """The response is complete: wait for the next request, or close."""
        self._exchange = None
        if self._transport is None:
            return
        if not keep_alive or self.closing:
            self._close()
            return
        if self.paused:
            self._await_progress()
        elif self._head_bytes and not self._ready:  # a part of the next request has already arrived
            limits = self._limits
            self._deadline.set(limits.head_timeout_s if self._expecting == "head" else limits.body_timeout_s)
        else:
            self._deadline.set(self._limits.keep_alive_s)
        if self._ready or self._pipelined:
            self._loop.call_soon(self._take_pipelined)

    def take_early(self) -> bytes:
        """The bytes that a client has sent behind its offer to upgrade."""
        early, self._pipelined = self._pipelined, b""
        return early

    def end_upgraded(self) -> None:
        """The other protocol has ended: close."""
        self._exchange = None
        if self._transport is not None and self._transport.can_write_eof():
            self._linger()
        else:  # TLS has no half-close, and the client waits for the end of the connection
            self._close()

    # Called by the server.

    def close_when_idle(self) -> None:
        """Accept no more requests: close now, or when the current response is complete."""
        self.closing = True
        if self._exchange is None:
            self._close()
        elif self._exchange.on_closing is not None:
            self._exchange.on_closing()

    # The current request.

    def _take_pipelined(self) -> None:
        """Process pipelined requests."""
        if self._exchange is not None or self._transport is None or self.closing:
            return
        if self._ready:
            self._begin_exchange(self._ready.popleft())
        elif self._pipelined:
            pipelined, self._pipelined = self._pipelined, b""
            self._feed(pipelined)

    def _begin_exchange(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._used = True
        if not self.paused:
            self._deadline.clear()
        if exchange.pieces:
            joined = self._loop.run_in_executor(None, exchange.join)
            # Unless the client has disconnected meanwhile.
            joined.add_done_callback(lambda _: None if exchange.over else self._handle(exchange))
        else:
            self._handle(exchange)

    def _handle(self, exchange: Exchange) -> None:
        self._handler(exchange)
        if self.paused and exchange.on_pause is not None and not exchange.over:
            exchange.on_pause()  # the previous response is still in the write buffer

    def _keep_partial(self, data: bytes) -> None:
        """Buffer an incomplete request with the cached head; empty when there is none."""
        self._partial = data
        self._expecting, self._head_bytes = ("body", len(data)) if data else ("head", 0)

    def _continue_partial(self, cached: CachedHead, data: bytes) -> None:
        data = self._partial + data
        body = cached.body_of(data)
        if body is None and cached.matches_start(data):
            self._keep_partial(data)
            return
        self._keep_partial(b"")
        if body is not None:
            self._begin_exchange(Exchange(self, cached.request, body))
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        if self._transport is None or self.closing:
            return
        expected = self._expecting if self._head_bytes else ""
        self._cached_head = None
        if not expected:
            self._raw_request = data
        elif self._raw_request:
            self._raw_request = self._raw_request + data if len(self._raw_request) < _MAX_PIPELINED else b""
        if self._expecting == "head":
            self._head_bytes += len(data)
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._ready and self._ready[-1].request.offers_websocket:
                self._parser = httptools.HttpRequestParser(self)  # unless it is accepted, another request follows
                self._pipelined = rest
                self._begin_exchange(self._ready.popleft())
            else:
                self._decline_upgrade(rest)
        except (httptools.HttpParserError, _RefusedError) as error:
            if self._ready:  # invalid bytes after a valid request do not affect its response
                self.closing = True
                self._begin_exchange(self._ready.popleft())
                return
            cause = error if isinstance(error, _RefusedError) else error.__context__
            if isinstance(cause, _RefusedError):
                self._refuse(cause.status, cause.message)
            else:
                self._refuse(400, f"not valid HTTP/1.1: {error}")
        else:
            if self._ready:
                exchange = self._ready.popleft()
                if self._max_body_for is None and not self._ready:
                    self._cached_head = cache_head(self._raw_request, exchange.request, self._limits)
                self._raw_request = b""
                self._begin_exchange(exchange)
            else:
                self._await_rest(expected)

    def _await_rest(self, expected: str) -> None:
        """Wait for the rest of a request, with a timeout; `expected` is what was awaited before these bytes."""
        limits = self._limits
        if self._expecting == "head" and self._head_bytes > limits.max_head:
            self._refuse(431, f"the headers exceed {limits.max_head} bytes")
        elif self._expecting == "body" and self._framing_bytes > limits.max_framing:
            self._refuse(400, f"more than {limits.max_framing} bytes of chunk framing without a body")
        elif self._expecting != expected:
            self._deadline.set(limits.head_timeout_s if self._expecting == "head" else limits.body_timeout_s)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Ignore the client's offer to upgrade to another protocol: parse the request again without the offer."""
        if self._parser.get_method() == b"CONNECT" or not self._ready:
            self._refuse(405, "there is nothing to connect to")
            return
        self._ready.pop()
        lines_kept = [
            f"{name}: {value}".encode("latin-1") for name, value in self._headers if name not in _UPGRADE_HEADERS
        ]
        if any(name == "connection" and _CLOSE.search(value) for name, value in self._headers):
            lines_kept.append(b"connection: close")
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._target, version), *lines_kept]
        self._parser = httptools.HttpRequestParser(self)
        self._feed(b"\r\n".join([*lines, b"", b""]) + rest)

    # Called by llhttp.

    def on_message_begin(self) -> None:
        """Called at the start of a request."""
        self._expecting = "head"
        self._head_bytes = self._head_bytes or 1  # after another request in the same read, no byte is counted yet
        self._target = b""
        self._headers = []
        self._body = []
        self._body_size = 0

    def on_url(self, target: bytes) -> None:
        """Called with a piece of the request target."""
        self._target += target
        if len(self._target) > self._limits.max_target:
            raise _RefusedError(414, f"the URL exceeds {self._limits.max_target} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called with one header. Their number and size are checked when all are here; `_feed` bounds the input."""
        if self._expecting == "head":  # otherwise it is a trailer, which is ignored
            self._headers.append((name.lower().decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Called when the head is complete."""
        self._check_sizes()
        headers = dict(self._headers)
        host = headers.get("host")
        if host is None:
            if self._parser.get_http_version() != "1.0":
                raise _RefusedError(400, "there must be exactly one Host header")
        elif not _HOST.match(host):
            raise _RefusedError(400, "the Host header is not a host")
        if len(headers) < len(self._headers):
            self._check_repeated(headers)
        if "transfer-encoding" in headers:
            self._check_transfer_encoding()
        if self._max_body_for is not None:
            self._max_body = self._max_body_for(self._target, headers)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body:
            raise _RefusedError(413, f"the body exceeds {self._max_body} bytes")
        self._expecting = "body"
        self._framing_bytes = 0
        if headers.get("expect", "").lower() == "100-continue" and not self._ready:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_repeated(self, headers: dict[str, str]) -> None:
        """Refuse a head of which a proxy in front may read another host or another identity."""
        if [name for name, _ in self._headers].count("host") > 1:
            raise _RefusedError(400, "there must be exactly one Host header")
        for name, value in self._headers:
            if value != headers[name] and _IDENTITY.fullmatch(name):
                raise _RefusedError(400, f"the header {name} has two values: send one")

    def _check_transfer_encoding(self) -> None:
        """Accept one `Transfer-Encoding: chunked` and nothing else.

        llhttp also reads lists that end in `chunked`. A proxy in front may read them differently, and take the end of
        this request for the beginning of the next one (request smuggling). Statuses: RFC 9112, section 6.1.
        """
        if self._parser.get_http_version() == "1.0":
            raise _RefusedError(400, "an HTTP/1.0 request cannot have a Transfer-Encoding")
        values = [value for name, value in self._headers if name == "transfer-encoding"]
        codings = [coding.strip(" \t").lower() for value in values for coding in value.split(",")]
        if codings == ["chunked"]:
            return
        if "" in codings or codings.count("chunked") != 1:
            raise _RefusedError(400, "the Transfer-Encoding must be `chunked`, once")
        raise _RefusedError(501, "no transfer coding but `chunked` is supported; send the body without the others")

    def _check_sizes(self) -> None:
        limits = self._limits
        headers = self._headers
        size = sum(map(len, chain.from_iterable(headers))) + _HEADER_PUNCTUATION * len(headers)
        if len(headers) > limits.max_headers:
            raise _RefusedError(431, f"there are more than {limits.max_headers} headers")
        if size > limits.max_head:
            raise _RefusedError(431, f"the headers exceed {limits.max_head} bytes")
        if size > limits.max_header < max(len(name) + len(value) + _HEADER_PUNCTUATION for name, value in headers):
            raise _RefusedError(431, f"a header exceeds {limits.max_header} bytes")

    def on_body(self, data: bytes) -> None:
        """Called with a piece of the body."""
        self._body_size += len(data)
        self._framing_bytes = 0
        if self._body_size > self._max_body:
            raise _RefusedError(413, f"the body exceeds {self._max_body} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Called when the request is complete."""
        self._expecting = "head"
        self._head_bytes = 0
        try:
            url = httptools.parse_url(self._target)
        except httptools.HttpParserInvalidURLError:
            raise _RefusedError(400, "the request target is not a path") from None
        headers = dict(self._headers)
        headers.pop("content-length", None)
        if url.host is not None:  # a target in absolute form overrides the Host header (RFC 9112, section 3.2.2)
            host = url.host.decode("latin-1")
            headers["host"] = authority(host, url.port) if url.port else f"[{host}]" if ":" in host else host
        is_http11 = self._parser.get_http_version() != "1.0"
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=(url.path or b"/").decode("latin-1"),
            query=(url.query or b"").decode("latin-1"),
            headers=headers,
            is_http11=is_http11,
            keep_alive=is_http11 and self._parser.should_keep_alive(),
        )
        if self._body_size > _LARGE_BODY:
            exchange = Exchange(self, request, b"", self._body)
        else:
            exchange = Exchange(self, request, b"".join(self._body))
        self._ready.append(exchange)
        self._body = []

    # Endings.

    def _refuse(self, status: int, message: str) -> None:
        """Reject a request with an error, and close: the framing of the bytes after it cannot be trusted."""
        if self._exchange is not None:
            self.abort()
            return
        headers, body = self._error_page(status, message, self._target)
        headers |= {"content-length": str(len(body)), "connection": "close"}
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, '')}", *(f"{name}: {headers[name]}" for name in headers)]
        self.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self._linger()

    def _linger(self) -> None:
        """Close gracefully: read and drop what the client still sends. Closing with unread bytes would send a TCP
        reset, which can destroy the response before the client has read it."""
        self.closing = True
        if self._transport is None:
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._deadline.set(_LINGER_S)

    def _await_progress(self) -> None:
        """Set the timeout of a client that reads nothing; `_expire` extends it while there is progress."""
        self._unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._deadline.set(self._limits.stalled_client_s)

    def _expire(self) -> None:
        if self._transport is not None and 0 < self._transport.get_write_buffer_size() < self._unsent:
            self._await_progress()  # the client is slow, but it reads
            return
        if self._exchange is not None or self.paused or self.closing:
            self.abort()  # the client reads nothing
        elif self._head_bytes:
            self._refuse(408, "the request took too long to arrive")
        else:
            self._close()

    def _close(self) -> None:
        self.closing = True
        if self._transport is not None:
            self._await_progress()
            self._transport.close()


def _drop(_data: bytes) -> None:
    """Discard bytes: the client has disconnected."""


class _RefusedError(Exception):
    """A request is rejected before it reaches the handler."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
