"""Frame: one message of the transport, before its JSON is decoded."""

from typing import Protocol, TypeAlias

from msgspec import Struct

from penstock.core.hub.events import Fault, Repair


class Frame(Struct, frozen=True, gc=False):
    """One message: its data as sent, with the white space around it, and its position in the bytes.

    `event` is the name of the event (the `event:` field of SSE), or "". Lines count from 1.
    """

    data: bytes
    offset: int
    line: int
    event: str = ""


Framed: TypeAlias = Frame | Repair | Fault


class Framer(Protocol):
    """Splits bytes into frames, and emits the repairs and faults of the framing."""

    name: str
    """The name of the framing: `sse`, `json-lines`, `json-array`, …"""

    cut: bool
    """After `close()`: whether the bytes stopped in the middle of a message."""

    def feed(self, data: bytes) -> list[Framed]:
        """Read bytes; return the frames that they complete."""

    def close(self) -> list[Framed]:
        """End the stream; return the frames that are still buffered."""
