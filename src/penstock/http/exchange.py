"""Exchange: one request of a client, and the answer to it, written at once or piece by piece."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct

# The header by which a client may name its request; it is told again.
_CLIENTS_NAME = "x-client-request-id"
# Has no body, and says nothing of the one that it stands for.
_NOT_MODIFIED = 304
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


class HttpRequest(Struct, frozen=True):
    """A request as it came: header names in lower case; a header that came twice has the last value."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class Exchange:
    """One request, and the answer to it. The handler sets `on_gone`, `on_pause` and `on_resume` as it needs them."""

    __slots__ = (
        "_chunked",
        "_connection",
        "_keep_alive",
        "_state",
        "_unsent",
        "on_gone",
        "on_pause",
        "on_resume",
        "request",
    )

    def __init__(self, connection: ClientConnection, request: HttpRequest, *, keep_alive: bool, chunked: bool) -> None:
        self._connection = connection
        self._keep_alive = keep_alive
        self._chunked = chunked
        self._state = "new"
        self._unsent = b""
        self.request = request
        self.on_gone: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None

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
        length = () if status == _NOT_MODIFIED else (f"content-length: {len(body)}",)
        head = self._head(status, headers, *length)
        self._connection.write(head + (b"" if self.request.method == "HEAD" else body))
        self._finish()

    def start(self, status: int, headers: dict[str, str]) -> None:
        """Begin an answer that is written piece by piece. Its head leaves with the first piece."""
        if self._state == "new":
            self._state = "streaming"
            framing = ("transfer-encoding: chunked",) if self._chunked else ()
            self._unsent = self._head(status, headers, *framing)

    def write(self, data: bytes, /) -> None:
        """Send a piece of the body."""
        if self._state == "streaming" and data:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
            if self._unsent:
                piece = self._unsent + piece
                self._unsent = b""
            self._connection.write(piece)

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """What sends HTTP chunks as they are, until the answer ends; None where they cannot go out so."""
        return self._connection.write if self._state == "streaming" and self._chunked and not self._unsent else None

    def flush(self) -> None:
        """Send the head now, if it still waits for the first piece."""
        if self._state == "streaming" and self._unsent:
            self._connection.write(self._unsent)
            self._unsent = b""

    def end(self, data: bytes = b"") -> None:
        """Send the last piece, and the end of the body."""
        if self._state == "streaming":
            last = b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data
            self._connection.write(self._unsent + last + (b"0\r\n\r\n" if self._chunked else b""))
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

    def _head(self, status: int, headers: dict[str, str], *framing: str) -> bytes:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, '')}", *map(": ".join, headers.items()), *framing]
        if _CLIENTS_NAME in self.request.headers:
            lines.append(f"{_CLIENTS_NAME}: {self.request.headers[_CLIENTS_NAME]}")
        if not self._keep_alive or self._connection.closing:
            lines.append("connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def _finish(self) -> None:
        self._state = "over"
        self._connection.finished(keep_alive=self._keep_alive)
