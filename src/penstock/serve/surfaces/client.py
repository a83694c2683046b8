"""CallSession: the client's side of one call, whatever it asked for: refused, cut off, gone, settled once."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import surface_dialect
from penstock.core.failure import Failure
from penstock.gateway.calls.call import Call
from penstock.gateway.calls.pipeline import Attempts
from penstock.http.exchange import Exchange
from penstock.serve.responses import call_headers, respond_failure
from penstock.serve.telemetry.log import where

BROKEN = Failure(code="internal_error", message="the gateway failed")
_GONE = Failure(code="client_gone", message="the client has left", retryable=False)


class Responder(Protocol):
    """What brings the answer: a relay, or a passage."""

    def pause(self) -> None:
        """The client is slow."""

    def resume(self) -> None:
        """The client has caught up."""

    def cancel(self, failure: Failure) -> None:
        """Stop."""

    def leave(self, on_left: Callable[[], None]) -> bool:
        """The client has gone. Whether the provider is heard out all the same; `on_left` is called when it has been."""


class CallSession:
    """The client of one call. `over` is told when the call is settled."""

    attempts: Attempts | None = None
    _carrier: Responder | None = None
    _settled = False

    def __init__(self, exchange: Exchange, call: Call, over: "Callable[[CallSession], None]") -> None:
        self._exchange = exchange
        self._over = over
        self.call = call
        self.stream = call.stream
        self.address = exchange.peer
        self.write = exchange.write
        """Sends bytes of a streamed answer."""
        self.chunk_writer = exchange.chunk_writer
        """What sends HTTP chunks of it as they are, for now."""
        exchange.on_gone = self._gone
        exchange.on_pause = self._pause
        exchange.on_resume = self._resume

    # What the pipeline calls.

    def attach(self, carrier: Responder) -> None:
        """What will bring the answer."""
        self._carrier = carrier
        if self._exchange.paused:
            carrier.pause()

    def refuse(self, failure: Failure) -> None:
        """There is no answer: say why, with a real status if nothing was sent yet."""
        self.call.code = failure.code
        self.call.ending = self.call.ending or ("timed_out" if failure.status == 504 else "failed")
        if self._exchange.begun:
            self._settle()
            self._exchange.end(self._last_words(failure))
        else:
            self.call.status = failure.status
            self._settle()
            respond_failure(self._exchange, failure, self.call.id, call_headers(self.call), self.call.dialect)

    def _last_words(self, failure: Failure) -> bytes:
        """How a stream ends of which nothing but heartbeats was sent."""
        facts = AnswerFacts(call_id=self.call.id, model=self.call.model, created=int(time.time()))
        return surface_dialect(self.call.dialect).writer(facts).fail(failure)

    # What the server calls.

    def cut(self, failure: Failure) -> None:
        """The gateway is going, or broken: tell the client, if it is there, and let go of the provider."""
        self._stop(failure)
        if self._exchange.over:
            self._settle()
        elif not self._settled:
            self.refuse(failure)

    def stop(self, failure: Failure) -> None:
        """Who runs the gateway wants no more of it. What was said stands; the client is told why nothing follows."""
        control = self.call.control
        if self.call.first_event_s is not None and control is not None and control.running is not None:
            control.running.stop(failure, "cancelled")
        else:
            self.call.ending = self.call.ending or "cancelled"
            self.cut(failure)

    def fail(self, error: BaseException) -> None:
        """An error of ours: it must not leave the client waiting."""
        self.cut(BROKEN)
        report(error)

    def _gone(self) -> None:
        self.call.ending = "cancelled"
        self.call.code = "client_gone"
        if not self.call.status:
            self.call.status = 499
        if self.attempts is not None:
            self.attempts.stop()
        if self._carrier is None or not self._carrier.leave(self._settle):
            self._stop(_GONE)
            self._settle()

    def _stop(self, failure: Failure) -> None:
        if self.attempts is not None:
            self.attempts.stop()
        if self._carrier is not None:
            self._carrier.cancel(failure)

    def _pause(self) -> None:
        if self._carrier is not None:
            self._carrier.pause()

    def _resume(self) -> None:
        if self._carrier is not None:
            self._carrier.resume()

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            # Nobody calls anybody any more. Let go, so that the call is freed now and not by the garbage collector.
            self._exchange.forget()
            self._carrier = self.attempts = None
            self._over(self)


def report(error: BaseException) -> None:
    """Say that an error of ours has ended a call: of which kind it is and where, not in its words. Those may quote."""
    asyncio.get_running_loop().call_exception_handler({"message": f"a call failed: {where(error)}"})
