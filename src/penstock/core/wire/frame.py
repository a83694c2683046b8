"""Frame: one message of the transport, before anyone has looked at its JSON."""

from typing import Protocol, TypeAlias

from msgspec import Struct

from penstock.core.events import Fault, Repair


class Frame(Struct, frozen=True, gc=False):
    """One framed message: its data as sent (white space around it included), and where it stands in the bytes.

    `event` is the name that the transport gave it (the `event:` field of SSE), or "". Lines count from 1.
    """

    data: bytes
    offset: int
    line: int
    event: str = ""


Framed: TypeAlias = Frame | Repair | Fault


class Framer(Protocol):
    """Bytes → frames, and the repairs and faults met on the way."""

    name: str
    """What the framing is called: `sse`, `json-lines`, `json-array`, …"""

    cut: bool
    """After `close()`: whether the bytes stopped in the middle of a message."""

    def feed(self, data: bytes) -> list[Framed]:
        """Take in bytes; return what they complete."""

    def close(self) -> list[Framed]:
        """No more bytes will come; return what was still held."""
