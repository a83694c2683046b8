"""RecordingReceiver: stands between an upstream's connection and the relay, and hands a recorder what passes.

Only an attempt that is recorded has one, so that the others pay nothing for it. It does no more than note the time and
put what came where the recorder's own thread will find it.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from penstock.capture import CaptureEnd, How, Read
from penstock.core.events import Ending
from penstock.http.client import Receiver, StaleConnectionError, UpstreamError

# How an answer broke off, as a capture says it.
_ERRORS: dict[str, How] = {
    "upstream_reset": "reset",
    "upstream_truncated": "closed",
    "upstream_bad_response": "invalid",
}
# How Penstock itself ended one that was still under way. Any other ending of it is Penstock's own wish.
_STOPS: dict[Ending, How] = {"timed_out": "timed-out", "cancelled": "cancelled"}


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """What an attempt asks, where its capture goes, and what must not be in it. `omitted`: why the body is not here."""

    directory: str
    at: float
    call: str
    attempt: int
    provider: str
    model: str
    dialect: str
    url: str
    body: bytes
    secrets: tuple[str, ...]
    omitted: str = ""


class RecordedHead(Struct, frozen=True):
    """The head of an answer."""

    at_s: float
    status: int
    headers: dict[str, str]


class Discarded(Struct, frozen=True):
    """There is nothing to keep: the upstream has not seen the request, or there was no room."""


Item: TypeAlias = RecordedRequest | RecordedHead | Read | CaptureEnd | Discarded


class RecorderPort(Protocol):
    """Keeps what upstreams send."""

    def record(self, asked: RecordedRequest, receiver: Receiver) -> "RecordingReceiver":
        """Start to record an attempt whose request is sent now. Never waits and never fails."""


class RecordingReceiver:
    """A receiver in front of a receiver. `put` returns whether there is room; where there is none, nothing is kept.

    The clock is not the loop's, which on uvloop ticks in milliseconds.
    """

    def __init__(
        self,
        asked: RecordedRequest,
        receiver: Receiver,
        put: Callable[["RecordingReceiver", Item], bool],
        clock: Callable[[], float],
        max_bytes: int,
    ) -> None:
        self._receiver = receiver
        self._put = put
        self._room = max_bytes
        self._clock = clock
        self._started = clock()
        self._running = put(self, asked)

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer."""
        self._keep(RecordedHead(self._since(), status, dict(headers)))
        self._receiver.on_head(status, headers)

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """A piece of its body."""
        if self._running:
            self._room -= len(data)
            if self._room < 0:
                self._close("limit")
            else:
                self._keep(Read(self._since(), data))
        self._receiver.on_data(data, last=last)

    def on_end(self) -> None:
        """The body is complete."""
        self._close("complete")
        self._receiver.on_end()

    def on_error(self, error: UpstreamError) -> None:
        """The answer broke off."""
        if isinstance(error, StaleConnectionError):
            self._keep(Discarded())
            self._running = False
        else:
            self._close(_ERRORS.get(error.code, "closed"))
        self._receiver.on_error(error)

    def stop(self, ending: Ending) -> None:
        """The relay has hung up, if the answer was not over anyway."""
        self._close(_STOPS.get(ending, "abandoned"))

    def _close(self, how: How) -> None:
        self._keep(CaptureEnd(self._since(), how))
        self._running = False

    def _keep(self, item: Item) -> None:
        if self._running:
            self._running = self._put(self, item)

    def _since(self) -> float:
        return self._clock() - self._started
