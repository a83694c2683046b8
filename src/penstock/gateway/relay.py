"""Relay: one attempt, from the head of the provider's answer to the last byte for the client.

No task, no queue and no `await` stand between the two sockets: the upstream's bytes are read, checked and written to
the client in one call. Three phases:

- **waiting**: nothing that the model said has been released. A failure here is an outcome: the next target is tried.
- **streaming**: from the commit point on, the first event that carries content. A failure here becomes one error frame
  and a clean end of the body, with no `[DONE]`.
- **over**.

An unstreamed answer is never committed before it is whole: it is a fold over the same events.

The fast lane: when what was read is healthy text and nothing else (`StreamReader.untouched`), its bytes go out as they
came. One timer watches first event, gap, total time and heartbeat; progress is counted in events, so that comments and
dripping bytes do not keep a dead stream alive.
"""

import asyncio
import zlib
from typing import Protocol

from penstock.core.completion import Accumulator, Completion
from penstock.core.events import (
    End,
    Ending,
    Event,
    Fault,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    TextDelta,
    ToolCallStart,
)
from penstock.core.stream import Reader, StreamWriter
from penstock.gateway.call import Attempt, Call
from penstock.gateway.failure import Failure, from_fault, from_status, from_transport
from penstock.http.client import UpstreamConnection, UpstreamError

_CONTENT = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart)
# How a connection breaks off in the middle of an answer.
_CUTS = frozenset(("upstream_truncated", "upstream_reset", "upstream_stale"))
_MAX_ERROR_BODY = 65_536
# What comes before the first content: a role, some extras. More than this is an answer without content.
_MAX_HELD_EVENTS = 1_000
# After `[DONE]` the end of the body is near; a provider that keeps the connection open is not waited for longer.
_AFTER_DONE_S = 0.5
HEARTBEAT = b": penstock\n\n"
_DECODERS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Client(Protocol):
    """The client's side of a call, as a relay sees it."""

    stream: bool
    """Whether the client asked for a stream."""

    def begin(self) -> None:
        """Send the head of a streamed answer, if it was not sent yet."""

    def write(self, data: bytes, /) -> None:
        """Send bytes of the stream."""

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream, and end the body."""

    def answer(self, completion: Completion) -> None:
        """Send a whole, unstreamed answer."""


class Patience:
    """How long an attempt may take, in seconds."""

    __slots__ = ("first_event_s", "gap_s", "heartbeat_s", "until")

    def __init__(self, *, first_event_s: float, gap_s: float, heartbeat_s: float, until: float) -> None:
        self.first_event_s = first_event_s
        self.gap_s = gap_s
        self.heartbeat_s = heartbeat_s
        self.until = until


class Relay:
    """Takes a provider's answer, as it arrives, and gives it to the client."""

    def __init__(
        self,
        call: Call,
        attempt: Attempt,
        client: Client,
        reader: Reader,
        writer: StreamWriter,
        patience: Patience,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._attempt = attempt
        self._client = client
        self._reader = reader
        self._writer = writer
        self._patience = patience
        self._phase = "waiting"
        self._held: list[Event] = []
        self._answer = Accumulator()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._error_body = b""
        self._decoder: zlib._Decompress | None = None
        self._connection: UpstreamConnection | None = None
        self._paused = False
        self._begun = self._progress = self._beaten = self._loop.time()
        self._seen_event = False
        self._timer: asyncio.TimerHandle | None = None
        self.outcome: asyncio.Future[Failure | None] = self._loop.create_future()
        """Resolved once: None when the answer is committed or complete, a failure when the next target may be tried."""

    def attach(self, connection: UpstreamConnection) -> None:
        """The connection that the answer will come on."""
        self._connection = connection
        if self._paused:
            connection.pause()
        self._watch_time()

    # What the upstream's connection calls.

    def on_head(self, status: int, headers: dict[str, str]) -> None:
        """The head of the provider's answer."""
        self._status = self._attempt.status = status
        self._headers = headers
        coding = headers.get("content-encoding", "identity").lower()
        if coding in _DECODERS:
            self._decoder = zlib.decompressobj(_DECODERS[coding])
        elif coding not in ("identity", ""):
            self._fail(
                from_transport("upstream_bad_response", f"the answer is encoded as {coding}, which was not asked for")
            )

    def on_data(self, data: bytes) -> None:
        """A piece of its body."""
        if self._phase == "over":
            return
        if self._status >= 300:
            self._error_body += data[: _MAX_ERROR_BODY - len(self._error_body)]
            return
        if self._decoder is not None:
            self._on_encoded(data)
            return
        events = self._reader.feed(data)
        if self._reader.untouched and self._phase == "streaming":
            self._progress = self._loop.time()
            self._client.write(data)
            return
        if events:
            if any(type(event) is not Repair for event in events):
                self._progress = self._loop.time()
                self._seen_event = True
            self._take(events)
        if self._reader.done and self._phase != "over":
            self._watch_time()

    def on_end(self) -> None:
        """The body is complete, as far as HTTP can tell."""
        if self._phase == "over":
            return
        if self._status >= 300:
            self._fail(from_status(self._status, self._headers, self._error_body))
        else:
            self._take(self._reader.close())

    def on_error(self, error: UpstreamError) -> None:
        """The connection broke before the body was complete. What the reader has may still be a whole answer."""
        if self._phase == "over":
            return
        if self._status and self._status < 300:
            events = self._reader.close()
            last = events[-1]
            if isinstance(last, End) and last.ending == "completed":
                self._take(events)
                return
            self._call.watch(events)
        if self._status >= 300:
            self._fail(from_status(self._status, self._headers, self._error_body))
            return
        ending: Ending = "truncated" if error.code in _CUTS else "failed"
        self._fail(from_transport(error.code, error.message), ending=ending)

    # What the client's side calls.

    def pause(self) -> None:
        """The client is slow: the provider must wait."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._paused = False
        self._progress = self._loop.time()
        if self._connection is not None:
            self._connection.resume()

    def cancel(self, failure: Failure, ending: Ending = "cancelled") -> None:
        """Stop: the client has gone, or the gateway is going."""
        self._fail(failure, ending=ending)

    # Events.

    def _take(self, events: list[Event]) -> None:
        self._call.watch(events)
        fault = next((event for event in events if isinstance(event, Fault)), None)
        if fault is not None:
            # What came before it counts as if it had come alone: nothing may depend on how reads fall.
            self._release(events[: events.index(fault)])
            self._fail(from_fault(fault))
            return
        last = events[-1] if events else None
        if isinstance(last, End):
            self._end(events, last)
        else:
            self._release(events)

    def _release(self, events: list[Event]) -> None:
        """Give events to the client, as far as they may go."""
        if not self._client.stream:
            self._answer.extend(events)
        elif self._phase == "streaming":
            self._client.write(self._writer.write(events))
        else:
            self._hold(events)

    def _hold(self, events: list[Event]) -> None:
        """Before the commit point: hold what came, and commit when the model says something."""
        self._held += events
        if len(self._held) > _MAX_HELD_EVENTS or any(isinstance(event, _CONTENT) for event in events):
            self._commit()
            self._client.write(self._writer.write(self._held))
            self._held = []

    def _end(self, events: list[Event], end: End) -> None:
        """The provider's stream is over."""
        if end.ending != "completed":
            message = f"the provider's stream ended before the answer was complete: {end.detail}"
            self._release(events[:-1])
            self._fail(from_transport("upstream_truncated", message), ending="truncated")
            return
        self._commit()
        self._finish("completed")
        if self._client.stream:
            self._client.end(self._writer.write([*self._held, *events]))
        else:
            self._answer.extend(events)
            self._client.answer(self._answer.completion)

    def _commit(self) -> None:
        if self._phase != "waiting":
            return
        self._phase = "streaming"
        self._call.first_event_s = self._loop.time() - self._call.started
        if self._client.stream:
            self._client.begin()
        if not self.outcome.done():
            self.outcome.set_result(None)

    def _fail(self, failure: Failure, ending: Ending = "failed") -> None:
        if self._phase == "over":
            return
        committed = self._phase == "streaming"
        failure = failure.without(self._attempt.secrets)
        self._attempt.code = failure.code
        self._finish(ending)
        if committed:
            self._call.code = failure.code
            self._client.end(failure.frame(self._call.id))
        elif not self.outcome.done():
            self.outcome.set_result(failure)

    def _finish(self, ending: Ending) -> None:
        committed = self._phase == "streaming"
        self._phase = "over"
        self._attempt.seconds = self._loop.time() - self._begun
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon(self)
        if committed:
            self._call.ending = ending

    def _on_encoded(self, data: bytes) -> None:
        """A compressed piece, although none was asked for: unpack it a little at a time, so that no bomb goes off."""
        assert self._decoder is not None
        decoder, self._decoder = self._decoder, None
        try:
            while self._phase != "over":
                piece = decoder.decompress(data, 65_536)
                data = decoder.unconsumed_tail
                if piece:
                    self.on_data(piece)
                elif decoder.eof and decoder.unused_data:
                    data = decoder.unused_data  # what follows is a member of its own
                    decoder = zlib.decompressobj(_DECODERS[self._headers["content-encoding"].lower()])
                elif not data:
                    break
        except zlib.error as error:
            self._fail(from_transport("upstream_bad_response", f"the answer cannot be decompressed: {error}"))
        self._decoder = decoder

    # Time.

    def _watch_time(self) -> None:
        """Arm the one timer for whatever is due next."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        patience = self._patience
        due = patience.until
        if not self._paused:
            wait = patience.gap_s if self._seen_event else patience.first_event_s
            due = min(due, self._progress + (_AFTER_DONE_S if self._reader.done else wait))
        if self._client.stream and patience.heartbeat_s:
            due = min(due, max(self._progress, self._beaten) + patience.heartbeat_s)
        self._timer = self._loop.call_at(max(due, now + 0.001), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._loop.time()
        patience = self._patience
        silent = now - self._progress
        if now >= patience.until:
            self._fail(from_transport("upstream_timeout_total", "the answer took too long"), ending="timed_out")
        elif self._paused:
            pass
        elif self._reader.done and silent >= _AFTER_DONE_S:
            self.on_end()
        elif not self._seen_event and silent >= patience.first_event_s:
            code = "upstream_timeout_idle" if self._status else "upstream_timeout_headers"
            message = f"the provider sent no event within {patience.first_event_s:g} s"
            self._fail(from_transport(code, message), ending="timed_out")
        elif self._seen_event and silent >= patience.gap_s:
            message = f"the provider sent no event for {patience.gap_s:g} s"
            self._fail(from_transport("upstream_timeout_idle", message), ending="timed_out")
        if self._phase == "over":
            return
        if (
            self._client.stream
            and patience.heartbeat_s
            and now - max(self._progress, self._beaten) >= patience.heartbeat_s
        ):
            self._beaten = now
            self._client.begin()
            self._client.write(HEARTBEAT)
        self._watch_time()
