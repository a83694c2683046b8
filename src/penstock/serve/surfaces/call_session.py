"""CallSession: the client's side of one call.

However a call ends (answered, refused, cancelled by the client, cut off by the gateway), it is settled exactly once,
and before the client sees the end of the response.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import Protocol, TypeVar

from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import answer_dialect
from penstock.core.hub.failure import Failure
from penstock.gateway.record.call import Call
from penstock.gateway.record.failure import sentence
from penstock.http.exchange import Exchange
from penstock.serve.responses import call_headers, respond_failure
from penstock.serve.telemetry.log import where

BROKEN = Failure(code="internal_error", message="the gateway failed")
_GONE = Failure(code="client_gone", message="the client has disconnected", retryable=False)


class Attempts(Protocol):
    """What has a call answered: by providers (`AttemptLoop`), or by the gateway itself."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Stop: the client has disconnected or got an error."""


class Responder(Protocol):
    """What produces the answer of a call: a `Relay`, a `BodyRelay` or the local model."""

    def pause(self) -> None:
        """Stop reading from the provider: the client is slow (backpressure)."""

    def resume(self) -> None:
        """Continue to read: the client has caught up."""

    def cancel(self, failure: Failure) -> None:
        """Cancel the attempt."""

    def drain(self, on_drained: Callable[[], None]) -> bool:
        """The client has disconnected. Returns whether the response is still read to its end.

        If so, `on_drained` is called then.
        """


S = TypeVar("S", bound="CallSession")


def _guarded(callback: Callable[[S], None]) -> Callable[[S], None]:
    """A callback of the connection, of which every exception ends this call (`Call.guarded`)."""

    @wraps(callback)
    def guarded(session: S) -> None:
        try:
            callback(session)
        except Exception as error:  # noqa: BLE001 - the call ends
            session.call.fail(error)

    return guarded


class CallSession:
    """The client's side of one call. Calls `on_settled` once."""

    attempts: Attempts | None = None
    _responder: Responder | None = None
    _settled = False

    def __init__(self, exchange: Exchange, call: Call, on_settled: "Callable[[CallSession], None]") -> None:
        self._exchange = exchange
        self._on_settled = on_settled
        self.call = call
        self.stream = call.stream
        self.address = exchange.peer
        self.request_headers = exchange.request.headers
        self.write = exchange.write
        """Sends bytes of a streamed response."""
        self.hold = exchange.hold
        """Sends them together with the next ones."""
        self.chunk_writer = exchange.chunk_writer
        """What sends HTTP chunks of it as they are, for now."""
        call.fail = self.fail
        exchange.on_gone, exchange.on_pause, exchange.on_resume = self._on_gone, self._pause, self._resume

    # Called by attempts and relays.

    def begin(self) -> None:
        """Send the head of a streamed response, if it has not been sent. Only answers have streams."""

    def attach(self, responder: Responder) -> None:
        """Set what produces the answer, and pause it if the client is slow already."""
        self._responder = responder
        if self._exchange.paused:
            responder.pause()

    def refuse(self, failure: Failure) -> None:
        """Send a failure: with its status if the head has not been sent, otherwise as the end of the stream."""
        progress = self.call.progress
        progress.code, progress.error = failure.code, sentence(failure)
        progress.ending = progress.ending or ("timed_out" if failure.status == 504 else "failed")
        if failure.code in self.call.failures_in_stream:
            self.begin()
        if self._exchange.begun:
            self.end(self._stream_error(failure))
        else:
            progress.status = answer_dialect(self.call.dialect).status_of(failure)
            self._settle()
            respond_failure(self._exchange, failure, self.call.id, call_headers(self.call), self.call.dialect)

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream and end the body."""
        self._settle()  # first: a call whose end the client has seen must be in the ledger
        self._exchange.end(data)

    def _stream_error(self, failure: Failure) -> bytes:
        """The error event that ends a stream of which only heartbeats were sent."""
        call = self.call
        facts = AnswerFacts(
            call_id=call.id,
            model=call.model,
            created=int(time.time()),
            same_dialect=False,
            heartbeats=call.progress.heartbeats,
            stream_type=call.stream_type,
            overrides=call.keeping.overrides("") if call.keeping is not None else {},
            end_marker=True,
        )
        return answer_dialect(call.dialect).writer(facts).fail(failure)

    # Called by the server.

    def cut(self, failure: Failure) -> None:
        """Cancel the call, because the gateway ends or has failed. A connected client gets the failure."""
        self._stop(failure)
        if self._exchange.over:
            self._settle()
        else:
            self.refuse(failure)

    def stop(self, failure: Failure) -> None:
        """Stop the call for the operator. The client keeps the text so far and gets the failure as the end."""
        progress = self.call.progress
        control = progress.control
        running = control.running if control is not None else None
        if running is not None and running.committed:
            running.stop(failure, "cancelled")
        else:
            progress.ending = progress.ending or "cancelled"
            self.cut(failure)

    def fail(self, error: BaseException) -> None:
        """End the call after an exception of ours, and report it: the client gets an error, the provider's connection
        closes, and the call is settled. The same defect may raise again in one of these steps: then the next ones
        still run, and the second try does without what the first one has used.
        """
        report(error)
        progress = self.call.progress
        if not self._settled and progress.ending != "cancelled":
            progress.ending = "failed"
        for step in (partial(self.cut, BROKEN), partial(self.cut, BROKEN), self._settle, self._exchange.abort):
            try:
                step()
            except Exception as another:  # noqa: BLE001 - the next steps run
                report(another)

    @_guarded
    def _on_gone(self) -> None:
        progress = self.call.progress
        progress.ending = "cancelled"
        progress.code = "client_gone"
        if not progress.status:
            progress.status = 499
        if self.attempts is not None:
            self.attempts.stop()
        if self._responder is None or not self._responder.drain(self._settle):
            self._stop(_GONE)
            self._settle()

    def _stop(self, failure: Failure) -> None:
        try:
            if self.attempts is not None:
                self.attempts.stop()
        finally:
            if self._responder is not None:
                self._responder.cancel(failure)

    @_guarded
    def _pause(self) -> None:
        if self._responder is not None:
            self._responder.pause()

    @_guarded
    def _resume(self) -> None:
        if self._responder is not None:
            self._responder.resume()

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            # Break the reference cycles, so that the call is freed now and not by the garbage collector.
            self._exchange.forget()
            self._responder = self.attempts = None
            self.call.fail = report
            try:
                self._on_settled(self)
            except Exception as error:  # noqa: BLE001 - the client gets its answer
                report(error)


def report(error: BaseException) -> None:
    """Log an error of ours that ended a call: its type and place, not its message, which may contain content."""
    asyncio.get_running_loop().call_exception_handler({"message": f"a call failed: {where(error)}"})
