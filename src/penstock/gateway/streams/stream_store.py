"""StreamStore: where durable streams are kept besides the memory of their process, so that they survive it."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.gateway.streams.stream_settings import OnDisconnect


class StreamHeader(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a stream is."""

    id: str
    owner: str
    dialect: str
    request: bytes
    """The digest of the request: only the same one may take the place of another."""
    names: tuple[str, ...] = ()
    """By which its owner finds it, besides its id."""
    on_disconnect: OnDisconnect = "linger"
    """What becomes of the call without readers."""
    queued: bytes = b""
    """The answer before it begins, if it is one in the background."""


class StreamRecord(Protocol):
    """What a store has of one stream."""

    @property
    def intact(self) -> bool:
        """Whether it has the whole stream so far."""

    def append(self, events: Sequence[bytes]) -> None:
        """Add events."""

    def begin(self, head: str) -> None:
        """The answer begins, with these lines of the response."""

    def end(self, now_ms: int, *, whole: bool) -> None:
        """The stream has ended; `whole` if the last event says how."""

    def settle(self, outcome: str) -> None:
        """The call of the stream is settled, before its end."""

    def remove(self) -> None:
        """Delete it."""


class FoundStream(Struct, kw_only=True):
    """A stream of a process that has ended. `ended_ms` is 0 if it had no end."""

    header: StreamHeader
    record: StreamRecord
    head: str = ""
    events: list[bytes]
    outcome: str = ""
    ended_ms: int = 0
    whole: bool = False


class StreamStore(Protocol):
    """The streams of one process."""

    def create(self, header: StreamHeader) -> StreamRecord:
        """The record of a new stream."""

    def adopt(self) -> Iterator[FoundStream]:
        """The streams of processes that have ended, each once. They are this process's now."""

    def close(self) -> None:
        """The process ends. What it has stays for the next one."""
