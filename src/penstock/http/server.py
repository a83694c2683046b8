"""The server's side of HTTP/1.1: one `ServerConnection` per client, one `Exchange` (`exchange.py`) per request on it.

llhttp parses; this file keeps what no parser keeps: sizes, seconds, order and flow.

1. A request reaches the handler whole (head and body), within the limits, or not at all.
2. One exchange at a time: what a client sends ahead is held until the answer is complete; who sends too much of it gets
   this answer and no other.
3. Reading never stops: only so is it noticed at once that a client has left. Half-closing is leaving.
4. `Exchange.write` never blocks. When the client is slow `on_pause` is called, and `on_resume` when it has caught up.
5. Whatever was begun is ended: an answer that cannot be completed closes the connection without its last chunk.
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
_MAX_AHEAD = 65_536
_LINGER_S = 2.0
# The headers by which a client offers to speak another protocol.
_OFFERS = frozenset(("upgrade", "connection", "http2-settings"))
# The option by which a client says, among others, that it wants no second answer.
_CLOSE = re.compile(r"(?:^|,)\s*close\s*(?:,|\Z)", re.IGNORECASE)
# What a header has beside its name and its value.
_MARKS = len(": \r\n")
# Of SO_LINGER: closing resets the connection.
_NO_FAREWELL = struct.pack("ii", 1, 0)


class ErrorPage(Protocol):
    """Renders the answer to a request that never reached the handler: its headers and its body."""

    def __call__(self, status: int, message: str, /) -> tuple[dict[str, str], bytes]: ...


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
        """`max_body` says what a request with this target and these headers may carry, where that is not the same."""
        self._handler = handler
        self._error_page = error_page
        self._limits = limits
        self._connections = connections
        self._ask_max_body = max_body
        self._max_body = limits.max_body
        self._loop = asyncio.get_running_loop()
        self._deadline = Deadline(self._loop, self._expire)
        self._transport: asyncio.Transport | None = None
        self.write: Callable[[bytes], None] = _drop
        """Sends bytes, or keeps them until the client takes them. The transport's own: it is called for every event."""
        self._exchange: Exchange | None = None
        self._ahead = b""
        self._ready: deque[Exchange] = deque()
        self.paused = False
        self._unsent = 0  # what the client had not taken when it was last looked at
        self.closing = False
        self.peer = ""
        # Of the last request, while nothing came behind it but the part of one that has the same head.
        self._known: CachedHead | None = None
        self._held = b""
        # The request that is being parsed.
        self._parser = httptools.HttpRequestParser(self)
        self._seen = b""  # all of it so far, unless it is long
        self._waiting = "head"
        self._head_bytes = 0
        self._framing_bytes = 0
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._body_size = 0

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport = transport
        self.write = transport.write
        transport.set_write_buffer_limits(high=self._limits.write_buffer)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        if len(self._connections) >= self._limits.max_connections:
            self._refuse(503, "there are too many connections")
            transport.close()
            return
        self._connections.add(self)
        self._deadline.set(self._limits.head_timeout_s)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        known = self._known
        if known is not None and self._exchange is None and not self.closing:
            if self._held:
                self._take_rest(known, data)
                return
            body = known.body_of(data)
            if body is not None:
                self._begin_exchange(Exchange(self, known.request, body))
                return
            if known.begins(data):
                self._hold(data)
                self._deadline.set(self._limits.body_timeout_s)
                return
        if self._exchange is None:
            if self._ready or self._ahead:
                self._ahead += data  # what came before is taken up first, which is to happen now
            else:
                self._feed(data)
            return
        self._known = None  # this comes first
        if len(self._ahead) + len(data) <= _MAX_AHEAD and not self.closing:
            self._ahead += data
        else:
            self._ahead = b""
            self.closing = True  # after this answer; what comes until then is read and dropped (rule 3)

    def eof_received(self) -> bool:
        """The client has closed its side, which means that it does not wait for an answer."""
        self.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The connection is gone."""
        self._deadline.end()
        self._connections.discard(self)
        self._transport = self._known = None
        self.write = _drop
        self._let_go()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.gone()

    def _let_go(self) -> None:
        """Free what came, and the parser, which refers to this connection: a cycle would wait for the collector."""
        self._parser = httptools.HttpRequestParser(None)
        self._ahead = self._held = self._seen = b""
        self._body = []
        self._ready.clear()

    def pause_writing(self) -> None:
        """The client is slower than what is written to it."""
        self.paused = True
        self._await_progress()
        if self._exchange is not None and self._exchange.on_pause is not None:
            self._exchange.on_pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.paused = False
        if self._exchange is None:
            self._deadline.set(self._limits.keep_alive_s)
            return
        self._deadline.clear()
        if self._exchange.on_resume is not None:
            self._exchange.on_resume()

    # What exchanges call.

    def abort(self) -> None:
        """Close at once, whatever is still to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def cut(self, *, reset: bool) -> None:
        """Close once what was written has been sent, or reset."""
        if self._transport is None:
            return
        if reset:
            connected = self._transport.get_extra_info("socket")
            if connected is not None:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_FAREWELL)
            self._transport.abort()
        else:
            self._close()

    def finished(self, *, keep_alive: bool) -> None:
        """The answer is complete: wait for the next request, or close."""
        self._exchange = None
        if self._transport is None:
            return
        if not keep_alive or self.closing:
            self._close()
            return
        if self.paused:
            self._await_progress()
        elif self._head_bytes and not self._ready:  # a part of the next request came with this one
            limits = self._limits
            self._deadline.set(limits.head_timeout_s if self._waiting == "head" else limits.body_timeout_s)
        else:
            self._deadline.set(self._limits.keep_alive_s)
        if self._ready or self._ahead:
            self._loop.call_soon(self._go_on)

    # What the server calls.

    def drain(self) -> None:
        """Take no more requests: close now, or when the answer under way is complete."""
        self.closing = True
        if self._exchange is None:
            self._close()

    # The request under way.

    def _go_on(self) -> None:
        """Take up what the client sent ahead."""
        if self._exchange is not None or self._transport is None or self.closing:
            return
        if self._ready:
            self._begin_exchange(self._ready.popleft())
        elif self._ahead:
            ahead, self._ahead = self._ahead, b""
            self._feed(ahead)

    def _begin_exchange(self, exchange: Exchange) -> None:
        self._exchange = exchange
        if not self.paused:
            self._deadline.clear()
        self._handler(exchange)
        if self.paused and exchange.on_pause is not None and not exchange.over:
            exchange.on_pause()  # the answer before is still in the way

    def _hold(self, data: bytes) -> None:
        """Keep a part of a request whose head is known; nothing of it from when it is whole."""
        self._held = data
        self._waiting, self._head_bytes = ("body", len(data)) if data else ("head", 0)

    def _take_rest(self, known: CachedHead, data: bytes) -> None:
        data = self._held + data
        body = known.body_of(data)
        if body is None and known.begins(data):
            self._hold(data)
            return
        self._hold(b"")
        if body is not None:
            self._begin_exchange(Exchange(self, known.request, body))
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        if self._transport is None or self.closing:
            return
        waited = self._waiting if self._head_bytes else ""
        self._known = None
        if not waited:
            self._seen = data
        elif self._seen:
            self._seen = self._seen + data if len(self._seen) < _MAX_AHEAD else b""
        if self._waiting == "head":
            self._head_bytes += len(data)
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
        except (httptools.HttpParserError, _RefusedError) as error:
            if self._ready:  # what stands behind a good request does not spoil its answer
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
                if self._ask_max_body is None and not self._ready:
                    self._known = cache_head(self._seen, exchange.request, self._limits)
                self._seen = b""
                self._begin_exchange(exchange)
            else:
                self._await_rest(waited)

    def _await_rest(self, waited: str) -> None:
        """Wait for the rest of a request, but not for ever; `waited` is what was waited for before."""
        limits = self._limits
        if self._waiting == "head" and self._head_bytes > limits.max_head:
            self._refuse(431, f"the headers exceed {limits.max_head} bytes")
        elif self._waiting == "body" and self._framing_bytes > limits.max_framing:
            self._refuse(400, f"more than {limits.max_framing} bytes of chunk framing without a body")
        elif self._waiting != waited:
            self._deadline.set(limits.head_timeout_s if self._waiting == "head" else limits.body_timeout_s)

    def _decline(self, rest: bytes) -> None:
        """The client offers another protocol, which is not taken up: read the request again, without the offer."""
        if self._parser.get_method() == b"CONNECT" or not self._ready:
            self._refuse(405, "there is nothing to connect to")
            return
        self._ready.pop()
        kept = [f"{name}: {value}".encode("latin-1") for name, value in self._headers if name not in _OFFERS]
        if any(name == "connection" and _CLOSE.search(value) for name, value in self._headers):
            kept.append(b"connection: close")
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._target, version), *kept]
        self._parser = httptools.HttpRequestParser(self)
        self._feed(b"\r\n".join([*lines, b"", b""]) + rest)

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._waiting = "head"
        self._head_bytes = self._head_bytes or 1  # behind another one in a read, none of it is counted yet
        self._target = b""
        self._headers = []
        self._body = []
        self._body_size = 0

    def on_url(self, target: bytes) -> None:
        """A piece of the request target."""
        self._target += target
        if len(self._target) > self._limits.max_target:
            raise _RefusedError(414, f"the URL exceeds {self._limits.max_target} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. (How many they are, and how large, is asked when all are here: `_feed` bounds what may come.)"""
        if self._waiting == "head":  # else it is a trailer: nobody needs one
            self._headers.append((name.lower().decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._check_sizes()
        headers = dict(self._headers)
        host = headers.get("host")
        if host is None:
            if self._parser.get_http_version() != "1.0":
                raise _RefusedError(400, "there must be exactly one Host header")
        elif not _HOST.match(host):
            raise _RefusedError(400, "the Host header is not a host")
        elif len(headers) < len(self._headers) and [name for name, _ in self._headers].count("host") > 1:
            raise _RefusedError(400, "there must be exactly one Host header")
        if "transfer-encoding" in headers:
            self._check_transfer_encoding()
        if self._ask_max_body is not None:
            self._max_body = self._ask_max_body(self._target, headers)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_body:
            raise _RefusedError(413, f"the body exceeds {self._max_body} bytes")
        self._waiting = "body"
        self._framing_bytes = 0
        if headers.get("expect", "").lower() == "100-continue" and not self._ready:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

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
        size = sum(map(len, chain.from_iterable(headers))) + _MARKS * len(headers)
        if len(headers) > limits.max_headers:
            raise _RefusedError(431, f"there are more than {limits.max_headers} headers")
        if size > limits.max_head:
            raise _RefusedError(431, f"the headers exceed {limits.max_head} bytes")
        if size > limits.max_header < max(len(name) + len(value) + _MARKS for name, value in headers):
            raise _RefusedError(431, f"a header exceeds {limits.max_header} bytes")

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._body_size += len(data)
        self._framing_bytes = 0
        if self._body_size > self._max_body:
            raise _RefusedError(413, f"the body exceeds {self._max_body} bytes")
        self._body.append(data)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._waiting = "head"
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
        modern = self._parser.get_http_version() != "1.0"
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=(url.path or b"/").decode("latin-1"),
            query=(url.query or b"").decode("latin-1"),
            headers=headers,
            modern=modern,
            keep_alive=modern and self._parser.should_keep_alive(),
        )
        self._ready.append(Exchange(self, request, b"".join(self._body)))
        self._body = []

    # Endings.

    def _refuse(self, status: int, message: str) -> None:
        """Answer a request that cannot be taken, and close: what follows it on the wire is not to be trusted."""
        if self._exchange is not None:
            self.abort()
            return
        headers, body = self._error_page(status, message)
        headers |= {"content-length": str(len(body)), "connection": "close"}
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, '')}", *(f"{name}: {headers[name]}" for name in headers)]
        self.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self._linger()

    def _linger(self) -> None:
        """Close, but read and drop what the client still sends: closing on unread bytes would take the answer back."""
        self.closing = True
        if self._transport is None:
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._deadline.set(_LINGER_S)

    def _await_progress(self) -> None:
        """Give a client that takes nothing a while, and then no more."""
        self._unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._deadline.set(self._limits.stalled_client_s)

    def _expire(self) -> None:
        if self._transport is not None and 0 < self._transport.get_write_buffer_size() < self._unsent:
            self._await_progress()  # it is slow, but it takes something
            return
        if self._exchange is not None or self.paused or self.closing:
            self.abort()  # the client takes nothing
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
    """Send to nobody: the client has gone."""


class _RefusedError(Exception):
    """A request that is refused before it reaches the handler."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
