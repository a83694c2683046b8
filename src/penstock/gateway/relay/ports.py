"""The ports of a relay: the upstream connection and the client."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.http.upstream_connection import Receiver


class Connection(Protocol):
    """The upstream connection, as a relay uses it."""

    on_chunk: Callable[[bytes, bytes], bool] | None
    """Called instead of the HTTP parser with each read that is one HTTP chunk: its payload, and its bytes with framing.
    Returns whether it handled the chunk. It may be set only while the parser is between two chunks."""

    @property
    def aligned_chunks(self) -> Sequence[bytes]:
        """The payloads of the current read, if the read was a number of complete HTTP chunks, else nothing."""

    def pause(self) -> None:
        """Stop reading until `resume`."""

    def resume(self) -> None:
        """Read again."""

    def redirect(self, receiver: Receiver) -> None:
        """Deliver the rest of the response to this receiver."""

    def abandon(self, receiver: Receiver) -> None:
        """Stop delivering to this receiver. The connection is closed unless the response is complete."""


class Client(Protocol):
    """The client's side of a call, as a relay uses it."""

    stream: bool
    """Whether the client requested a stream."""

    def begin(self) -> None:
        """Send the head of a streamed answer, if it is not sent yet."""

    def write(self, data: bytes, /) -> None:
        """Send bytes of the stream."""

    def hold(self, data: bytes, /) -> None:
        """Send bytes of the stream together with the next ones, which follow at once."""

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """The function that sends bytes framed as HTTP chunks already, or None if this connection cannot send them."""

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream and end the body."""

    def answer(self, body: bytes) -> None:
        """Send a complete, unstreamed answer."""


class BrokenAnswers(Protocol):
    """Decides what becomes of a committed answer that breaks off."""

    def step(self, failure: Failure, ending: Ending) -> Literal["fail", "go on", "end turn"]:
        """Whether the client gets the failure, another target may go on, or the turn ends with whole calls of tools."""


class DisconnectedClient:
    """Null object for a client that has disconnected while its answer is drained."""

    def __init__(self, *, stream: bool) -> None:
        self.stream = stream

    def begin(self) -> None:
        """No client is connected: do nothing."""

    def write(self, data: bytes, /) -> None:
        """No client is connected: discard."""

    def hold(self, data: bytes, /) -> None:
        """No client is connected: discard."""

    def chunk_writer(self) -> None:
        """No client is connected: there is no fast path."""

    def end(self, data: bytes) -> None:
        """No client is connected: discard."""

    def answer(self, body: bytes) -> None:
        """No client is connected: discard."""
