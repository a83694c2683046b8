"""SocketTurn: one request and its response on a WebSocket, to the surfaces an exchange like any other."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from websockets.frames import CloseCode

from penstock.core.dialects.dialect import SocketMessages
from penstock.http.exchange import Exchange
from penstock.http.websocket import WebSocket


class SocketTurn(Exchange, eq=False, kw_only=True):
    """A response is one message for each event of the stream, and an error one message. `on_over` is called once, with
    whether the request has failed, unless the client has disconnected."""

    tags: ClassVar[Mapping[str, str]] = {"via": "websocket"}
    socket: WebSocket
    messages: SocketMessages
    on_over: Callable[[bool], None]

    def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send an error: no other answer is not streamed."""
        if self._state == "new":
            self.socket.send([self.messages.write_error(status, headers, body)])
            self._finish_turn(failed=True)

    def begin(self, lines: str) -> None:  # noqa: ARG002 - messages have no headers
        """Start a stream."""
        if self._state == "new":
            self._state = "streaming"

    def write(self, data: bytes, /) -> None:
        """Send events."""
        if self._state == "streaming" and data:
            self.socket.send(self.messages.events(self._unsent + data))
            self._unsent = b""

    def hold(self, data: bytes, /) -> None:
        """Send events together with what follows."""
        if self._state == "streaming":
            self._unsent += data

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """There are no HTTP chunks."""
        return None

    def end(self, data: bytes = b"") -> None:
        """Send the last events."""
        if self._state == "streaming":
            self.write(data)
            self._finish_turn(failed=self.messages.has_failed(data))

    def abort(self) -> None:
        """Break the response off: the connection closes."""
        self.cut(reset=True)

    def cut(self, *, reset: bool) -> None:  # noqa: ARG002
        """Break the response off: the connection closes."""
        if self._state != "over":
            self._state = "over"
            self.socket.close(CloseCode.INTERNAL_ERROR)

    def _finish_turn(self, *, failed: bool) -> None:
        self._state = "over"
        self.on_over(failed)
