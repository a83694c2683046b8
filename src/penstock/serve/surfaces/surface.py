"""Surface: an API that Penstock offers. Takes requests, reads them, and keeps the calls that are under way."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.gateway.call import Call
from penstock.gateway.keys import Key
from penstock.gateway.pipeline import Attempts, Gateway
from penstock.gateway.request import RefusedError
from penstock.gateway.trace import HEADER, new_span, trace_of
from penstock.http.exchange import Exchange
from penstock.serve.responses import respond_failure
from penstock.serve.surfaces.client import SurfaceClient

# A body of this size may take longer to read than others should wait: it is read beside the loop.
_LARGE_BODY = 262_144

Asked = TypeVar("Asked")


class Surface(ABC, Generic[Asked]):
    """One API. `calls` are those under way on all surfaces, the oldest first; `settle` is told of each that is over."""

    def __init__(self, calls: dict[SurfaceClient, None], settle: Callable[[Call], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._settle = settle

    @abstractmethod
    def read(self, body: bytes) -> Asked:
        """The request in a body; raises `RefusedError`."""

    @abstractmethod
    def call(self, request: Asked, request_id: str, started: float) -> Call:
        """The call that a request is."""

    @abstractmethod
    def client(self, exchange: Exchange, call: Call) -> SurfaceClient:
        """The client's side of a call."""

    @abstractmethod
    def answer(self, request: Asked, client: Any, gateway: Gateway) -> Attempts | None:
        """The attempts that will answer a request to its client; None if it was refused."""

    def handle(self, exchange: Exchange, gateway: Gateway, request_id: str, key: Key | None) -> None:
        """Begin to answer a request of whoever has that key."""
        body = exchange.body
        if len(body) > _LARGE_BODY:
            reading = self._loop.run_in_executor(None, self.read, body)
            reading.add_done_callback(lambda done: self._begin(exchange, gateway, request_id, key, done.result))
        else:
            self._begin(exchange, gateway, request_id, key, partial(self.read, body))

    def over(self, client: SurfaceClient) -> None:
        """A call is settled."""
        self._calls.pop(client, None)
        client.call.total_s = self._loop.time() - client.call.started
        self._settle(client.call)

    def _begin(
        self, exchange: Exchange, gateway: Gateway, request_id: str, key: Key | None, read: Callable[[], Asked]
    ) -> None:
        started, read_s = self._loop.time(), time.perf_counter()
        try:
            request = read()
        except RefusedError as refused:
            respond_failure(exchange, refused.failure, request_id, {})
            return
        if exchange.over:
            return  # the client left while a large body was read
        call = self.call(request, request_id, started)
        call.at_ms = time.time_ns() // 1_000_000
        call.key = key
        call.read_s = read_s
        if gateway.config.telemetry.otlp:
            call.trace, call.span = trace_of(exchange.request.headers.get(HEADER, "")), new_span()
        client = self.client(exchange, call)
        self._calls[client] = None
        client.attempts = self.answer(request, client, gateway)
        if client.attempts is not None:
            client.attempts.begin()
