"""Exchange: one request of a client, and the answer to it, written at once or piece by piece."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal, Protocol

from msgspec import Struct

# The header by which a client may name its request; it is told again.
_CLIENTS_NAME = "x-client-request-id"
_CLOSE = "connection: close\r\n"
# Statuses of responses that have no body, and so neither Content-Length nor Transfer-Encoding (RFC 9110, section 8.6).
_WITHOUT_BODY = (204, 304)
REASONS = {status.value: status.phrase for status in HTTPStatus}


class ClientConnection(Protocol):
    """The connection that a request came on, as its exchange sees it."""

    closing: bool
    """Whether it is closed after the answer under way."""
    paused: bool
    """Whether the client is slower than what is written to it."""
    peer: str
    """The client's address."""
    write: Callable[[bytes], None]
    """Sends bytes, or keeps them until the client takes them."""

    def abort(self) -> None:
        """Close at once, whatever is still to be sent."""

    def cut(self, *, reset: bool) -> None:
        """Close once what was written has been sent, or reset."""

    def finished(self, *, keep_alive: bool) -> None:
        """The answer is complete."""


class HttpRequest(Struct, eq=False):
    """A request as it came, but for its body: header names in lower case; a header that came twice has the last value.

    Its length is not among the headers: the requests of one connection may share this.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    modern: bool = True
    """Whether it is HTTP/1.1: whoever speaks that reads chunks."""
    keep_alive: bool = True
    """Whether the client wants to ask again on its connection."""
    parsed_head: Any = None
    """What the handler derived from the head. Later requests with the same head share this object (`head_cache.py`)."""
    told: str = ""
    """What the head of every answer says: how the client names its request, and whether the connection is closed."""

    def __post_init__(self) -> None:
        if _CLIENTS_NAME in self.headers:
            self.told = f"{_CLIENTS_NAME}: {self.headers[_CLIENTS_NAME]}\r\n"
        if not self.keep_alive:
            self.told += _CLOSE


class Exchange(Struct, eq=False):
    """One request, and the answer to it. The handler sets `on_gone`, `on_pause` and `on_resume` as it needs them."""

    _connection: ClientConnection
    request: HttpRequest
    body: bytes
    _state: Literal["new", "streaming", "over"] = "new"
    _unsent: bytes = b""
    on_gone: Callable[[], None] | None = None
    on_pause: Callable[[], None] | None = None
    on_resume: Callable[[], None] | None = None

    @property
    def begun(self) -> bool:
        """Whether the status is decided."""
        return self._state != "new"

    @property
    def over(self) -> bool:
        """Whether the answer is complete, or the client has gone."""
        return self._state == "over"

    @property
    def paused(self) -> bool:
        """Whether the client is slow, perhaps with the answer before this one."""
        return self._connection.paused

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._connection.peer

    def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answer at once, with a body of known length."""
        if self._state != "new":
            return
        has_body = status not in _WITHOUT_BODY
        head = self._head(head_lines(status, headers), f"content-length: {len(body)}\r\n" if has_body else "")
        self._connection.write(head + (body if has_body and self.request.method != "HEAD" else b""))
        self._finish()

    def start(self, status: int, headers: dict[str, str]) -> None:
        """Begin an answer that is written piece by piece. Its head leaves with the first piece."""
        if status in _WITHOUT_BODY:
            self.respond(status, headers, b"")
        else:
            self.begin(head_lines(status, headers))

    def begin(self, lines: str) -> None:
        """The same, where the first line of the head and the headers are written already, as `head_lines` does it."""
        if self._state == "new":
            self._state = "streaming"
            self._unsent = self._head(lines, "transfer-encoding: chunked\r\n" if self.request.modern else "")

    def write(self, data: bytes, /) -> None:
        """Send a piece of the body."""
        if self._state == "streaming" and data:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if self.request.modern else data
            if self._unsent:
                piece = self._unsent + piece
                self._unsent = b""
            self._connection.write(piece)

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """What sends HTTP chunks as they are, until the answer ends; None where they cannot go out so."""
        in_chunks = self._state == "streaming" and self.request.modern and not self._unsent
        return self._connection.write if in_chunks else None

    def flush(self) -> None:
        """Send the head now, if it still waits for the first piece."""
        if self._state == "streaming" and self._unsent:
            self._connection.write(self._unsent)
            self._unsent = b""

    def end(self, data: bytes = b"") -> None:
        """Send the last piece, and the end of the body."""
        if self._state == "streaming":
            unsent = self._unsent
            if not self.request.modern:
                last = unsent + data
            elif data:
                last = b"%b%x\r\n%b\r\n0\r\n\r\n" % (unsent, len(data), data)
            else:
                last = unsent + b"0\r\n\r\n"
            self._connection.write(last)
            self._finish()

    def abort(self) -> None:
        """Break the answer off: the client sees that it is not complete."""
        if self._state != "over":
            self._state = "over"
            self._connection.abort()

    def cut(self, *, reset: bool) -> None:
        """Break the answer off behind what was written: close the connection, or reset it."""
        if self._state != "over":
            self._state = "over"
            self._connection.cut(reset=reset)

    def gone(self) -> None:
        """The client has left (called by the connection)."""
        if self._state != "over":
            self._state = "over"
            if self.on_gone is not None:
                self.on_gone()

    def forget(self) -> None:
        """The handler wants to hear nothing more."""
        self.on_gone = self.on_pause = self.on_resume = None

    def _head(self, lines: str, framing: str) -> bytes:
        request = self.request
        closes = _CLOSE if self._connection.closing and request.keep_alive else ""
        return f"{lines}{framing}{request.told}{closes}\r\n".encode("latin-1", "replace")

    def _finish(self) -> None:
        self._state = "over"
        self._connection.finished(keep_alive=self.request.keep_alive)


def head_lines(status: int, headers: dict[str, str]) -> str:
    """The first line of an answer's head and its headers, each with its end."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, '')}", *map(": ".join, headers.items()), ""]
    return "\r\n".join(lines)
