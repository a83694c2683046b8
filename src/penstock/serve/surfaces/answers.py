"""Answers: the generation API of one dialect, and the client's side of one call on it."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from penstock.core.dialects.proxy_members import proxy_members
from penstock.core.dialects.registry import surface_dialect
from penstock.core.dialects.shared_state import find_reference
from penstock.core.hub.failure import Failure, RequestError
from penstock.core.hub.request import ClientRequest
from penstock.gateway.calls.gateway import Gateway
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.streams.sharing import read_cache_control
from penstock.http.exchange import Exchange, HttpRequest
from penstock.serve.caller_report import with_report
from penstock.serve.request_head import RequestHead
from penstock.serve.responses import JSON, STREAM_LINES, call_headers, call_lines, stream_lines
from penstock.serve.streams.durable_streams import DurableStreams
from penstock.serve.streams.shared_answers import SharedAnswers
from penstock.serve.streams.stream_options import MEMBERS, StreamOptions
from penstock.serve.surfaces.call_session import CallSession, report
from penstock.serve.surfaces.surface import LARGE_BODY, REPORT_HEADER, REQUIRE_HEADER, STRICT_HEADER, Surface

# Asks that nothing of the call is kept, in any dialect. Every value except these two does: a typo must not disable it.
STORE_HEADER = "x-penstock-store"
_STORED = ("1", "true")
# Which targets may go on with an answer that breaks off: less than the route allows, never more.
CONTINUE_HEADER = "x-penstock-continue"
_CONTINUE = ("never", "same-model", "any")
# Requests with a larger body share no answer: to compare them would delay other streams.
_MAX_SHARED = 1_000_000


class Answers(Surface[ClientRequest]):
    """The API of one dialect."""

    def __init__(self, dialect: str, calls: dict[CallSession, None], on_settled: Callable[[CallSession], None]) -> None:
        self._surface_dialect = surface_dialect(dialect)
        super().__init__(calls, on_settled, AnswerSession, Gateway.attempts_for)
        self.name = self._surface_dialect.name
        self.dialect = dialect
        self.request_id_header = self._surface_dialect.request_id_header

    streams: DurableStreams | None = None
    """The durable streams of this process."""
    shared: SharedAnswers | None = None
    """The answers that calls of this process share."""

    def receive(
        self, exchange: Exchange, request: ClientRequest, request_id: str, key: ClientKey | None, gateway: Gateway
    ) -> Exchange:
        """The exchange through which the call is answered: a log, if its stream is durable or its answer is kept for a
        request with the same `Idempotency-Key`."""
        head: RequestHead | None = exchange.request.parsed_head
        options = head.stream_options if head is not None else None
        if options is None and request.stream_members is None and not gateway.logs_answers:
            return exchange  # nearly always
        options = (options or StreamOptions()).with_members(request.stream_members or {})
        if self.streams is None or request.unkept:
            return exchange
        route = gateway.config.route(request.model)
        rule = (route.durable if route is not None else None) or gateway.config.streams.durable
        durable = options.makes_durable(rule) and (request.stream or bool(options.retry_key))
        if request.stream_type or not durable:
            return self._share(exchange, request, request_id, key, gateway)
        header = self.streams.header(exchange, request_id, key, self.dialect, options)
        return self.streams.open(exchange, header, stored=request.stream)

    def may_share(self, request: ClientRequest) -> bool:
        """Whether the answer may be that of another request: it depends on nothing else, and nothing refers to it."""
        if len(request.members.body) > _MAX_SHARED or request.stream_type or request.background:
            return False
        return not (request.reference or request.continuation or request.fallbacks or request.dropped)

    def _share(
        self, exchange: Exchange, request: ClientRequest, request_id: str, key: ClientKey | None, gateway: Gateway
    ) -> Exchange:
        """The exchange of a call that may share an answer with others."""
        route = gateway.config.route(request.model) if gateway.shares else None
        if self.shared is None or self.streams is None or route is None or route.sharing is None:
            return exchange
        http, head = exchange.request, exchange.request.parsed_head
        if REPORT_HEADER in http.headers or (head is not None and head.credentials is not None):
            return exchange
        if not self.may_share(request):
            return exchange
        depends = (*gateway.routing_headers, STRICT_HEADER, REQUIRE_HEADER, CONTINUE_HEADER)
        headers = {name: http.headers[name] for name in depends if name in http.headers}
        if key is not None and key.strict:
            headers["strict"] = key.id
        return self.shared.receive(
            exchange,
            request,
            route.sharing,
            read_cache_control(http.headers.get("cache-control", "")),
            self.streams.header(exchange, request_id, key, self.dialect, StreamOptions()),
            (self.name, route.name, key, headers),
        )

    def read(self, body: bytes, request: HttpRequest) -> ClientRequest:
        """Parse a request body. Raises `RequestError`."""
        path = f"{request.path}?{request.query}" if request.query else request.path
        read = self._surface_dialect.read_request(body, request.headers, path)
        own: dict[str, object] = {}
        if "stream_resumable" in read.fields or "stream_id" in read.fields:
            own = {name: read.fields[name] for name in MEMBERS if name in read.fields}
        proxy = proxy_members(read)
        if own or proxy is not None:
            edits = {**dict.fromkeys(own), **(proxy.edits if proxy is not None else {})}
            read = self._surface_dialect.read_request(read.members.edited(edits), request.headers, path)
            read.stream_members = own or None
            if proxy is not None:
                proxy.apply(read)
        read.reference = find_reference(self.dialect, read.fields)
        if len(body) > LARGE_BODY:
            read.issuer()  # now, in a thread: the event loop may need it
        if STORE_HEADER in request.headers and request.headers[STORE_HEADER].strip().lower() not in _STORED:
            read.unkept = True
        if CONTINUE_HEADER in request.headers:
            read.continues = _allowed(request.headers[CONTINUE_HEADER].strip().lower())
        return read


class Playground(Answers):
    """The surface for calls from the page's playground, which get a tag."""

    tags: ClassVar[Mapping[str, str]] = {"via": "playground"}


class AnswerSession(CallSession):
    """The client's side of one call for an answer.

    If the answer is kept, its end is delayed until it is stored: a client that has seen the end may continue it.
    """

    _delayed: Callable[[bytes], None] | None = None  # sends the end
    _last = b""  # the end

    def begin(self) -> None:
        """Send the head of a streamed response, if it has not been sent."""
        exchange = self._exchange
        if not exchange.begun:
            self.call.progress.status = 200
            lines = stream_lines(self.call.stream_type) if self.call.stream_type else STREAM_LINES
            exchange.begin(lines + call_lines(self.call))

    def end(self, data: bytes) -> None:
        """Send the last bytes of the stream and end the body."""
        if self.call.keeping is not None:
            self._keep(data, self._end)
            return
        self._settle()  # first: a call whose end the client has seen must be in the ledger
        self._end(data)

    def _end(self, data: bytes) -> None:
        self._exchange.end(with_report(data, self.call) if self.call.reported else data)

    def answer(self, body: bytes) -> None:
        """Send a complete, unstreamed response."""
        self.call.progress.status = 200
        self._keep(body, self._respond)

    def _respond(self, body: bytes) -> None:
        self._exchange.respond(200, {"content-type": JSON} | call_headers(self.call), body)

    def _keep(self, data: bytes, send: Callable[[bytes], None]) -> None:
        """Keep the answer if that is wanted, then send its end. Nothing is kept for a client that has disconnected."""
        keeping, self._delayed, self._last = None if self._exchange.over else self.call.keeping, send, data
        try:
            waits = keeping is not None and keeping.keep(data, self._release)
        except Exception as error:  # noqa: BLE001 - the client gets its answer
            report(error)
            waits = False
        if waits:
            self._exchange.flush()  # text that came with the end does not wait with it
        else:
            self._release(data)

    def _release(self, data: bytes) -> None:
        send, self._delayed, self._last = self._delayed, None, b""
        if send is not None:
            self._settle()  # first: a call whose end the client has seen must be in the ledger
            send(data)

    def fail(self, error: BaseException) -> None:
        """End the call after an exception of ours. If only the end of its answer is delayed, that is sent."""
        if self._delayed is None:
            super().fail(error)
        else:
            report(error)
            self._release(self._last)

    def refuse(self, failure: Failure) -> None:
        """Send a failure, unless the end of the answer is only delayed: then that is sent."""
        if self._delayed is None:
            super().refuse(failure)

    def _on_gone(self) -> None:
        if self._delayed is not None:  # the answer is complete
            self._release(self._last)
        else:
            super()._on_gone()


def _allowed(word: str) -> str:
    """The value of the header, by which a client allows fewer targets; raises `RequestError`."""
    if word not in _CONTINUE:
        message = f"`{CONTINUE_HEADER}` must be one of {', '.join(_CONTINUE)}"
        raise RequestError(Failure(code="invalid_request", message=message, param=CONTINUE_HEADER, retryable=False))
    return word
