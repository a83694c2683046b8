"""RecordingReceiver: a decorator of the relay that passes the upstream's bytes to a recorder, too.

Only a recorded attempt has one, so other attempts cost nothing more. It adds a timestamp and appends to the queue of
the recorder's thread; it does no I/O.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from penstock.capture import CaptureEnd, How, Read
from penstock.core.hub.events import Ending
from penstock.http.upstream_connection import Receiver, ReceiverError, StaleConnectionError, UpstreamError

# Transport errors, as captures name them.
_ERRORS: dict[str, How] = {
    "upstream_reset": "reset",
    "upstream_truncated": "closed",
    "upstream_bad_response": "invalid",
}
# How Penstock ended an answer in progress, as captures name it. Every other ending is "abandoned".
_STOPS: dict[Ending, How] = {"timed_out": "timed-out", "cancelled": "cancelled"}


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """The request of an attempt, the directory of its capture, and the secrets to redact in it.

    `omitted`: why the body is left out, if it is.
    """

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
    """The head of a response."""

    at_s: float
    status: int
    headers: dict[str, str]


class Discarded(Struct, frozen=True):
    """The capture is dropped: the upstream has not seen the request, or the queue is full."""


Item: TypeAlias = RecordedRequest | RecordedHead | Read | CaptureEnd | Discarded


class RecorderPort(Protocol):
    """Stores captures of attempts."""

    def record(self, request: RecordedRequest, receiver: Receiver) -> "RecordingReceiver":
        """Start to record an attempt whose request is sent now. Never blocks and never raises."""


class RecordingReceiver:
    """Forwards to another receiver and records. `put` returns whether the queue has room; if not, recording stops.

    The clock is not the event loop's, because uvloop's has a resolution of one millisecond.
    """

    def __init__(
        self,
        request: RecordedRequest,
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
        self._running = put(self, request)

    def redirect(self, receiver: Receiver) -> None:
        """Forward the rest of the response to this receiver."""
        self._receiver = receiver

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Record and forward the head of the response."""
        self._keep(RecordedHead(self._since(), status, dict(headers)))
        self._receiver.on_head(status, headers)

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """Record and forward a piece of the body."""
        if self._running:
            self._room -= len(data)
            if self._room < 0:
                self._close("limit")
            else:
                self._keep(Read(self._since(), data))
        self._receiver.on_data(data, last=last)

    def on_end(self) -> None:
        """Record and forward the end of the body."""
        self._close("complete")
        self._receiver.on_end()

    def on_error(self, error: UpstreamError) -> None:
        """Record and forward a transport error. An attempt on a stale connection is not kept: it is retried."""
        if isinstance(error, StaleConnectionError):
            self._keep(Discarded())
            self._running = False
        elif not isinstance(error, ReceiverError):  # else the relay calls `stop`
            self._close(_ERRORS.get(error.code, "closed"))
        self._receiver.on_error(error)

    def stop(self, ending: Ending) -> None:
        """The relay has ended the attempt: record how, if the answer has not ended already."""
        self._close(_STOPS.get(ending, "abandoned"))

    def _close(self, how: How) -> None:
        self._keep(CaptureEnd(self._since(), how))
        self._running = False

    def _keep(self, item: Item) -> None:
        if self._running:
            self._running = self._put(self, item)

    def _since(self) -> float:
        return self._clock() - self._started
