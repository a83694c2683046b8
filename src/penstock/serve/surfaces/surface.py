"""Surface: an API that Penstock offers to clients. Parses its requests, starts calls and registers them."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import DEFAULT_DIALECT
from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls import refusals
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.record.call import Call
from penstock.gateway.record.embeddings_request import EmbeddingsRequest
from penstock.gateway.record.requirements import Requirements, parse_requirements
from penstock.gateway.record.trace import HEADER, trace_of
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.request_head import RequestHead
from penstock.serve.responses import respond_failure
from penstock.serve.surfaces.call_session import BROKEN, Attempts, CallSession, report

# Parsing a larger body would delay other streams noticeably, so a thread parses it.
LARGE_BODY = 262_144

# Requests strict mode: a translation loss that changes the meaning is a failure.
STRICT_HEADER = "x-penstock-strict"
# Requests a report at the end of a stream.
REPORT_HEADER = "x-penstock-report"
# Requires something of the provider (`gateway/record/requirements.py`).
REQUIRE_HEADER = "x-penstock-require"
_NOT_SET = ("", "0", "false")

T = TypeVar("T")
ParsedRequest = TypeVar("ParsedRequest", ClientRequest, EmbeddingsRequest)


class Surface(ABC, Generic[ParsedRequest]):
    """One API. `calls` are the calls in progress on all surfaces, the oldest first. Calls `on_settled` for each.

    `client` constructs the client's side of a call. `attempts` creates its attempts; it raises `RequestError`.
    """

    name: str
    """The name of the surface in the ledger and in telemetry."""
    dialect = DEFAULT_DIALECT
    """The dialect of clients."""
    request_id_header = ""
    """The response header with the id of the request, beside `x-request-id`, if the dialect has one."""
    tags: ClassVar[Mapping[str, str]] = {}
    """Tags that the gateway adds to calls."""

    def __init__(
        self,
        calls: dict[CallSession, None],
        on_settled: Callable[[CallSession], None],
        client: Callable[[Exchange, Call, Callable[[CallSession], None]], CallSession],
        attempts: Callable[[Gateway, Call, ParsedRequest, Any], Attempts],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._on_settled = on_settled
        self._client = client
        self._attempts: Callable[[Gateway, Call, ParsedRequest, Any], Attempts] = attempts

    def receive(
        self,
        exchange: Exchange,
        request: ParsedRequest,  # noqa: ARG002 - see `Answers`
        request_id: str,  # noqa: ARG002
        key: ClientKey | None,  # noqa: ARG002
        gateway: Gateway,  # noqa: ARG002
    ) -> Exchange:
        """The exchange through which the call is answered."""
        return exchange

    @abstractmethod
    def read(self, body: bytes, request: HttpRequest) -> ParsedRequest:
        """Parse a request body. Raises `RequestError`."""

    def prepare(self, call: Call, request: ParsedRequest) -> None:
        """Change a call before its first attempt."""

    def handle(
        self,
        exchange: Exchange,
        gateway: Gateway,
        request_id: str,
        key: ClientKey | None,
        parsed: Callable[[], ParsedRequest] | None = None,
    ) -> None:
        """Start a call with that key. `parsed` returns the request, or raises, if a thread has parsed it already."""
        body, headers = exchange.body, exchange.request.headers
        if len(body) > LARGE_BODY and parsed is None:
            parse = partial(self.read, body, exchange.request)
            in_thread(exchange, parse, partial(self.handle, exchange, gateway, request_id, key))
            return
        started, read_s = self._loop.time(), time.perf_counter()
        try:
            request = self.read(body, exchange.request) if parsed is None else parsed()
            gateway.check(request)
            requirements = requirements_of(headers)
            exchange = self.receive(exchange, request, request_id, key, gateway)
        except RequestError as refused:
            respond_failure(exchange, refused.failure, request_id, {}, self.dialect)
            return
        except Exception as error:  # noqa: BLE001 - the client must get a response
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
            tags=self.tags or exchange.tags,
            tells_cost=gateway.config.server.caller_reports,
            strict=STRICT_HEADER in headers and _is_set(headers[STRICT_HEADER]),
        )
        if REPORT_HEADER in headers:
            call.reported = call.tells_cost and request.stream and _is_set(headers[REPORT_HEADER])
        head: RequestHead | None = exchange.request.parsed_head
        if head is not None and head.credentials is not None:
            call.credentials = head.credentials
        if requirements:
            call.requirements = requirements
        if gateway.routing_headers:
            call.routing_headers = {name: headers[name] for name in gateway.routing_headers if name in headers}
        if self.request_id_header:
            call.progress.headers = {self.request_id_header: request_id}
        client = self._client(exchange, call, self._on_settled)
        self._calls[client] = None
        try:
            if gateway.config.telemetry.otlp:
                call.trace = trace_of(headers.get(HEADER, ""))
            self.prepare(call, request)
            try:
                client.attempts = self._attempts(gateway, call, request, client)
            except RequestError as refused:
                client.refuse(refused.failure)
            else:
                client.attempts.start()
        except Exception as error:  # noqa: BLE001 - the client must get a response
            client.fail(error)


def in_thread(exchange: Exchange, work: Callable[[], T], then: Callable[[Callable[[], T]], None]) -> None:
    """Run `work` in a thread, then call `then` with a function that returns its result or raises its error.

    `then` is not called if the client has disconnected.
    """

    def done(future: asyncio.Future[T]) -> None:
        if exchange.over:
            future.exception()  # retrieved, so that asyncio does not log it
        else:
            then(future.result)

    asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(done)


def requirements_of(headers: Mapping[str, str]) -> tuple[Requirements, ...]:
    """What the headers of a request require of providers. Raises `RequestError`."""
    if REQUIRE_HEADER not in headers:
        return ()
    try:
        return (parse_requirements(headers[REQUIRE_HEADER]),)
    except ValueError as error:
        raise RequestError(refusals.wrong_requirements(REQUIRE_HEADER, str(error))) from None


def _is_set(value: str) -> bool:
    """Whether a header asks for something. Any value except `0` and `false` does: a typo must not disable it."""
    return value.strip().lower() not in _NOT_SET
