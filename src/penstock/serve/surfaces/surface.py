"""Surface: an API that Penstock offers. Takes requests, reads them, and keeps the calls that are under way."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.request import ClientRequest
from penstock.gateway.calls.call import Call
from penstock.gateway.calls.embeddings_request import EmbeddingsRequest
from penstock.gateway.calls.pipeline import Attempts, Gateway
from penstock.gateway.calls.trace import HEADER, new_span, trace_of
from penstock.gateway.keys.keys import Key
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.responses import respond_failure
from penstock.serve.surfaces.client import BROKEN, CallSession, report

# A body of this size may take longer to read than others should wait: it is read beside the loop.
_LARGE_BODY = 262_144

# Asks that losses in translation which change the meaning are failures.
STRICT_HEADER = "x-penstock-strict"
_NOT_STRICT = ("", "0", "false")

Asked = TypeVar("Asked", ClientRequest, EmbeddingsRequest)


class Surface(ABC, Generic[Asked]):
    """One API. `calls` are those under way on all surfaces, the oldest first; `over` is told of each that is settled.

    `client` makes the client's side of a call; `answer` makes the attempts that will answer it, or returns None if it
    was refused.
    """

    name: str
    """What calls are known by that are made here."""
    dialect = DEFAULT_DIALECT
    """What clients speak here."""
    tags: ClassVar[Mapping[str, str]] = {}
    """What the gateway says itself of such calls."""

    def __init__(
        self,
        calls: dict[CallSession, None],
        over: Callable[[CallSession], None],
        client: type[CallSession],
        answer: Callable[[Gateway, Call, Asked, Any], Attempts | None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._over = over
        self._client = client
        self._answer: Callable[[Gateway, Call, Asked, Any], Attempts | None] = answer

    @abstractmethod
    def read(self, body: bytes, request: HttpRequest) -> Asked:
        """The request in a body; raises `RequestError`."""

    def handle(
        self,
        exchange: Exchange,
        gateway: Gateway,
        request_id: str,
        key: Key | None,
        was_read: Callable[[], Asked] | None = None,
    ) -> None:
        """Begin to answer a request of whoever has that key. `was_read` tells it where it was read before."""
        body = exchange.body
        if len(body) > _LARGE_BODY and was_read is None:
            self._read_beside(exchange, gateway, request_id, key)
            return
        started, read_s = self._loop.time(), time.perf_counter()
        try:
            request = self.read(body, exchange.request) if was_read is None else was_read()
            gateway.check_model(request.model)
        except RequestError as refused:
            respond_failure(exchange, refused.failure, request_id, {}, self.dialect)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            respond_failure(exchange, BROKEN, request_id, {}, self.dialect)
            report(error)
            return
        call = Call(
            request_id,
            request.model,
            request.stream,
            started,
            self.name,
            self.dialect,
            read_s=read_s,
            at_ms=time.time_ns() // 1_000_000,
            key=key,
            tags=self.tags,
            strict=_is_strict(exchange.request.headers.get(STRICT_HEADER)),
        )
        client = self._client(exchange, call, self._over)
        self._calls[client] = None
        try:
            if gateway.config.telemetry.otlp:
                call.trace, call.span = trace_of(exchange.request.headers.get(HEADER, "")), new_span()
            client.attempts = attempts = self._answer(gateway, call, request, client)
            if attempts is not None:
                attempts.begin()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            client.fail(error)

    def _read_beside(self, exchange: Exchange, gateway: Gateway, request_id: str, key: Key | None) -> None:
        def go_on(reading: asyncio.Future[Asked]) -> None:
            if exchange.over:
                reading.exception()  # the client has left meanwhile: it is told to nobody
            else:
                self.handle(exchange, gateway, request_id, key, reading.result)

        self._loop.run_in_executor(None, self.read, exchange.body, exchange.request).add_done_callback(go_on)


def _is_strict(value: str | None) -> bool:
    """Whether a request asks for strict mode. Any value but those that say no is a yes: a typo must not pass."""
    return value is not None and value.strip().lower() not in _NOT_STRICT
