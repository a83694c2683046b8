"""`POST /v1/chat/completions`: the client's side of a call, in the OpenAI chat dialect."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from penstock.core.completion import Completion
from penstock.core.dialects.openai_chat_body import write_body
from penstock.gateway.call import Call
from penstock.gateway.failure import Failure
from penstock.gateway.pipeline import Attempts, Gateway
from penstock.gateway.relay import Relay
from penstock.gateway.request import ChatRequest, RefusedError, parse
from penstock.http.server import Exchange
from penstock.serve.responses import JSON, STREAM_HEADERS, call_headers, respond_failure

# A body of this size may take longer to read than others should wait: it is read beside the loop.
_LARGE_BODY = 262_144
_BROKEN = Failure(code="internal_error", message="the gateway failed", status=500, kind="server_error")
_GONE = Failure(code="client_gone", message="the client has left", status=499, retryable=False)


class ChatCompletions:
    """The surface: takes requests, and keeps the calls that are under way."""

    def __init__(self, settle: Callable[[Call], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._settle = settle
        self.calls: set[ChatClient] = set()

    def handle(self, exchange: Exchange, gateway: Gateway, request_id: str) -> None:
        """Begin to answer a request."""
        body = exchange.request.body
        if len(body) > _LARGE_BODY:
            parsing = self._loop.run_in_executor(None, parse, body)
            parsing.add_done_callback(lambda done: self._begin(exchange, gateway, request_id, done.result))
        else:
            self._begin(exchange, gateway, request_id, partial(parse, body))

    def _begin(self, exchange: Exchange, gateway: Gateway, request_id: str, parsed: Callable[[], ChatRequest]) -> None:
        started = self._loop.time()
        try:
            request = parsed()
        except RefusedError as refused:
            respond_failure(exchange, refused.failure, request_id, {})
            return
        if exchange.over:
            return  # the client left while a large body was read
        call = Call(request_id, request.model, stream=request.stream, started=started)
        client = ChatClient(exchange, call, self._over)
        self.calls.add(client)
        client.attempts = gateway.answer(call, request, client)
        if client.attempts is not None:
            client.attempts.begin()

    def _over(self, client: "ChatClient") -> None:
        self.calls.discard(client)
        client.call.total_s = self._loop.time() - client.call.started
        self._settle(client.call)


class ChatClient:
    """The client of one call."""

    def __init__(self, exchange: Exchange, call: Call, over: Callable[["ChatClient"], None]) -> None:
        self._exchange = exchange
        self._over = over
        self._relay: Relay | None = None
        self._settled = False
        self._paused = False
        self.call = call
        self.stream = call.stream
        self.write = exchange.write
        """Sends bytes of the stream."""
        self.chunk_writer = exchange.chunk_writer
        """What sends HTTP chunks as they are, for now."""
        self.attempts: Attempts | None = None
        exchange.on_gone = self._gone
        exchange.on_pause = self._pause
        exchange.on_resume = self._resume

    # What the pipeline and the relay call.

    def attach(self, relay: Relay) -> None:
        """The relay that will answer."""
        self._relay = relay
        if self._paused:
            relay.pause()

    def begin(self) -> None:
        """Send the head of a streamed answer, if it was not sent yet."""
        if not self._exchange.begun:
            self.call.status = 200
            self._exchange.start(200, STREAM_HEADERS | call_headers(self.call))

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream, and end the body."""
        self._exchange.end(data)
        self._settle()

    def answer(self, completion: Completion) -> None:
        """Send a whole, unstreamed answer."""
        self.call.status = 200
        body = write_body(
            completion, id=f"chatcmpl-{self.call.id}", model=self.call.attempts[-1].model, created=int(time.time())
        )
        self._exchange.respond(200, {"content-type": JSON} | call_headers(self.call), body)
        self._settle()

    def refuse(self, failure: Failure) -> None:
        """There is no answer: say why, with a real status if nothing was sent yet."""
        self.call.code = failure.code
        self.call.ending = self.call.ending or ("timed_out" if failure.status == 504 else "failed")
        if self._exchange.begun:
            self._exchange.end(failure.frame(self.call.id))
        else:
            self.call.status = failure.status
            respond_failure(self._exchange, failure, self.call.id, call_headers(self.call))
        self._settle()

    # What the server calls.

    def cut(self, failure: Failure) -> None:
        """The gateway is going, or broken: tell the client, and let go of the provider."""
        self._stop(failure)
        if not self._settled:
            self.refuse(failure)

    def fail(self, error: BaseException) -> None:
        """An error of ours: it must not leave the client waiting."""
        self.cut(_BROKEN)
        asyncio.get_running_loop().call_exception_handler({"message": "a call failed", "exception": error})

    def _gone(self) -> None:
        self.call.ending = "cancelled"
        self.call.code = "client_gone"
        if not self.call.status:
            self.call.status = 499
        self._stop(_GONE)
        self.call.ending = "cancelled"
        self._settle()

    def _stop(self, failure: Failure) -> None:
        if self.attempts is not None:
            self.attempts.stop()
        if self._relay is not None:
            self._relay.cancel(failure)

    def _pause(self) -> None:
        self._paused = True
        if self._relay is not None:
            self._relay.pause()

    def _resume(self) -> None:
        self._paused = False
        if self._relay is not None:
            self._relay.resume()

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            # Nobody calls anybody any more. Let go, so that the call is freed now and not by the garbage collector.
            self._exchange.forget()
            self._relay = self.attempts = None
            self._over(self)
