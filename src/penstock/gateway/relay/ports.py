"""The two sides of a relay: what an answer comes on, whom it goes to, and how long it may take."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.http.client import Receiver


class Connection(Protocol):
    """What the answer comes on, as a relay sees it."""

    on_chunk: Callable[[bytes, bytes], bool] | None
    """Called in place of the parser with each HTTP chunk that comes alone: its payload, and its bytes as framed.
    Returns whether it took the chunk. It is set while the answer stands between two chunks."""

    @property
    def aligned_chunks(self) -> Sequence[bytes]:
        """What is given now, by HTTP chunks, if it came so and the answer stands between two of them."""

    def pause(self) -> None:
        """Read no more until `resume`."""

    def resume(self) -> None:
        """Read on."""

    def abandon(self, receiver: Receiver) -> None:
        """The receiver wants no more."""


class Client(Protocol):
    """The client's side of a call, as a relay sees it."""

    stream: bool
    """Whether the client asked for a stream."""

    def begin(self) -> None:
        """Send the head of a streamed answer, if it was not sent yet."""

    def write(self, data: bytes, /) -> None:
        """Send bytes of the stream."""

    def chunk_writer(self) -> Callable[[bytes], None] | None:
        """What sends bytes of the stream that have the framing of `on_chunk`; None where they cannot go out so."""

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream, and end the body."""

    def answer(self, body: bytes) -> None:
        """Send a whole, unstreamed answer."""


class DisconnectedClient:
    """Where a client was that has left."""

    def __init__(self, *, stream: bool) -> None:
        self.stream = stream

    def begin(self) -> None:
        """Nobody is told."""

    def write(self, data: bytes, /) -> None:
        """Nobody reads it."""

    def chunk_writer(self) -> None:
        """There is none."""

    def end(self, data: bytes) -> None:
        """Nobody waits for it."""

    def answer(self, body: bytes) -> None:
        """Nobody waits for it."""


class AttemptTimeouts(Struct, frozen=True, eq=False, gc=False, kw_only=True):
    """What an attempt may take: seconds, and bytes of an unstreamed answer.

    `drain_s`: after its client has left; 0 if the provider is not heard out then.
    """

    first_event_s: float
    gap_s: float
    heartbeat_s: float
    total_s: float
    """For the whole call, from its beginning."""
    first_look_s: float = 0.0
    """When anything may be due, if nothing comes: the first event, or a heartbeat."""
    drain_s: float = 0.0
    max_body: int = 32_000_000
