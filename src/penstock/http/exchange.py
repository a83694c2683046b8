"""Exchange: one request of a client and its response, written at once or piece by piece."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct

if TYPE_CHECKING:  # the two refer to each other
    from penstock.http.server import ServerConnection

# The header with the client's own id of the request; it is sent back.
_CLIENT_REQUEST_ID = "x-client-request-id"
_CLOSE = "connection: close\r\n"
# Statuses of responses that have no body, and so neither Content-Length nor Transfer-Encoding (RFC 9110, section 8.6).
_WITHOUT_BODY = (204, 304)
REASONS = {status.value: status.phrase for status in HTTPStatus}


class HttpRequest(Struct, eq=False):
    """A request without its body. Header names are in lower case; a header that was sent twice has its last value.

    It has no Content-Length, so that requests with the same head can share it (`head_cache.py`).
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    is_http11: bool = True
    """Whether it is HTTP/1.1, so that the response may be chunked."""
    keep_alive: bool = True
    """Whether the client will reuse its connection."""
    parsed_head: Any = None
    """What the handler derived from the head. Later requests with the same head share this object (`head_cache.py`)."""
    fixed_headers: str = ""
    """Headers of every response to it: the client's own request id, and `connection: close`."""

    def __post_init__(self) -> None:
        self.set_fixed_headers()

    @property
    def offers_websocket(self) -> bool:
        """Whether the client asks to switch to WebSocket. The handshake is checked when that is accepted."""
        return self.method == "GET" and self.is_http11 and self.headers.get("upgrade", "").lower() == "websocket"

    def set_fixed_headers(self, more: str = "") -> None:
        """Set `fixed_headers`, with further lines of the handler."""
        self.fixed_headers = more
        if _CLIENT_REQUEST_ID in self.headers:
            self.fixed_headers += f"{_CLIENT_REQUEST_ID}: {self.headers[_CLIENT_REQUEST_ID]}\r\n"
        if not self.keep_alive:
            self.fixed_headers += _CLOSE


class Exchange(Struct, eq=False):
    """One request and its response. The handler sets `on_gone`, `on_pause` and `on_resume` as it needs them.

    `on_gone` is called when the client disconnects before the response is complete. `on_pause` and `on_resume` are the
    backpressure of a slow client.
    """

    tags: ClassVar[Mapping[str, str]] = {}
    """What the ledger says of the way on which requests came, besides HTTP."""
    _connection: "ServerConnection"
    request: HttpRequest
    body: bytes
    pieces: Sequence[bytes] = ()
    """The pieces of a large body, until `join` has set `body`."""
    _state: Literal["new", "streaming", "upgraded", "over"] = "new"
    _unsent: bytes = b""
    on_gone: Callable[[], None] | None = None
    on_pause: Callable[[], None] | None = None
    on_resume: Callable[[], None] | None = None
    on_data: Callable[[bytes], None] | None = None
    """What takes the bytes of the client after `upgrade`."""
    on_closing: Callable[[], None] | None = None
    """Called when the server accepts no more requests. It is for what has no end of its own: an upgraded connection."""

    @property
    def begun(self) -> bool:
        """Whether the response has started, so that its status is fixed."""
        return self._state != "new"

    @property
    def over(self) -> bool:
        """Whether the response is complete, or the client has disconnected."""
        return self._state == "over"

    @property
    def paused(self) -> bool:
        """Whether the client is slow, perhaps to read the previous response."""
        return self._connection.paused

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._connection.peer

    def join(self) -> None:
        """Join the pieces of the body. A thread does so, and does not hold the GIL meanwhile."""
        self.body, self.pieces = b"".join(self.pieces), ()

    def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send a whole response, with a body of known length."""
        if self._state != "new":
            return
        has_body = status not in _WITHOUT_BODY
        head = self._head(head_lines(status, headers), f"content-length: {len(body)}\r\n" if has_body else "")
        self._connection.write(head + (body if has_body and self.request.method != "HEAD" else b""))
        self._finish()

    def start(self, status: int, headers: dict[str, str]) -> None:
        """Start a streamed response. Its head is sent with the first piece."""
        if status in _WITHOUT_BODY:
            self.respond(status, headers, b"")
        else:
            self.begin(head_lines(status, headers))

    def begin(self, lines: str) -> None:
        """Start a streamed response with a status line and headers that `head_lines` has encoded."""
        if self._state == "new":
            self._state = "streaming"
            self._unsent = self._head(lines, "transfer-encoding: chunked\r\n" if self.request.is_http11 else "")

    def write(self, data: bytes, /) -> None:
        """Send a piece of the body."""
        if self._state == "streaming" and data:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if self.request.is_http11 else data
            if self._unsent:
                piece = self._unsent + piece
                self._unsent = b""
            self._connection.write(piece)

    def hold(self, data: bytes, /) -> None:
        """Send a piece of the body together with what follows it, in one system call."""
        if self._state == "streaming" and data:
            self._unsent += b"%x\r\n%b\r\n" % (len(data), data) if self.request.is_http11 else data

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """A function that sends encoded HTTP chunks unchanged, until the response ends; None if it is not possible."""
        in_chunks = self._state == "streaming" and self.request.is_http11 and not self._unsent
        return self._connection.write if in_chunks else None

    def flush(self) -> None:
        """Send the head and the pieces that are held now, if they have not been sent yet."""
        if self._state == "streaming" and self._unsent:
            self._connection.write(self._unsent)
            self._unsent = b""

    def end(self, data: bytes = b"") -> None:
        """Send the last piece, and the end of the body."""
        if self._state == "streaming":
            unsent = self._unsent
            if not self.request.is_http11:
                last = unsent + data
            elif data:
                last = b"%b%x\r\n%b\r\n0\r\n\r\n" % (unsent, len(data), data)
            else:
                last = unsent + b"0\r\n\r\n"
            self._connection.write(last)
            self._finish()

    def upgrade(self, head: bytes, on_data: Callable[[bytes], None]) -> bytes:
        """Switch to another protocol with this response: from now on, `send` sends bytes of that protocol, and
        `on_data` takes those of the client. Returns those that are here already."""
        self._state = "upgraded"
        self.on_data = on_data
        self._connection.write(head)
        return self._connection.take_early()

    def send(self, data: bytes) -> None:
        """Send bytes of the other protocol."""
        if self._state == "upgraded":
            self._connection.write(data)

    def close(self) -> None:
        """End the other protocol: close the connection once the bytes have been sent."""
        if self._state == "upgraded":
            self._state = "over"
            self._connection.end_upgraded()

    def abort(self) -> None:
        """Break the response off: the client sees that it is incomplete."""
        if self._state != "over":
            self._state = "over"
            self._connection.abort()

    def cut(self, *, reset: bool) -> None:
        """Break the response off after the written bytes: close the connection, or reset it."""
        if self._state != "over":
            self._state = "over"
            self._connection.cut(reset=reset)

    def gone(self) -> None:
        """Called by the connection when the client has disconnected."""
        if self._state != "over":
            self._state = "over"
            if self.on_gone is not None:
                self.on_gone()

    def forget(self) -> None:
        """Remove the handler's callbacks."""
        self.on_gone = self.on_pause = self.on_resume = self.on_data = self.on_closing = None

    def _head(self, lines: str, framing: str) -> bytes:
        request = self.request
        closes = _CLOSE if self._connection.closing and request.keep_alive else ""
        return f"{lines}{framing}{request.fixed_headers}{closes}\r\n".encode("latin-1", "replace")

    def _finish(self) -> None:
        self._state = "over"
        self._connection.finished(keep_alive=self.request.keep_alive)


def head_lines(status: int, headers: dict[str, str]) -> str:
    """The status line and the headers of a response, each with its line end."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, '')}", *map(": ".join, headers.items()), ""]
    return "\r\n".join(lines)
