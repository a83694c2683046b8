"""StreamRoutes: how clients come back to durable streams.

    GET     /streams/{id}          the events after the cursor, then those that come, as server-sent events; 204 after
                                   the end. With `accept: application/json`, what the stream is.
    DELETE  /streams/{id}          cancels it if it runs, and forgets it
    POST    /streams/{id}/cancel   cancels it; again, it changes nothing

The cursor is `Last-Event-ID`, or `?offset=` or `?starting_after=` with a number of events; without one, the stream is
read from its beginning. `{id}` is that of the response's `location`, or the one that the client has chosen. The same
`POST` as the one that started a stream, with `Last-Event-ID` or its `Idempotency-Key`, gets the events, too.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias
from urllib.parse import parse_qsl

from msgspec import structs

from penstock.core.hub.failure import Failure, RequestError
from penstock.gateway.keys.client_key import ClientKey
from penstock.http.exchange import Exchange
from penstock.serve.responses import refused, respond_failure, respond_json
from penstock.serve.streams.durable_stream import DurableStream
from penstock.serve.streams.durable_streams import DurableStreams, digest_of, owner_of, retried
from penstock.serve.streams.peer_streams import PeerStreams
from penstock.serve.streams.stream_options import CALL_ID, LAST_EVENT, StreamOptions, read_event_id

_CANCELLED = Failure(
    code="cancelled_by_client",
    message="a client of this stream has cancelled it",
    retryable=False,
    client_may_retry=False,
)
_STATUS = {
    "waiting": "queued",
    "open": "in_progress",
    "ended": "completed",
    "broken": "failed",
    "answered": "completed",
}
_MAX_CURSOR = 12  # digits
_MAX_QUOTED = 100

Handler: TypeAlias = Callable[["StreamRoutes", Exchange, DurableStream, str], None]


class StreamRoutes:
    """Answers requests for the streams of one process."""

    def __init__(self, streams: DurableStreams, peers: PeerStreams) -> None:
        self.streams = streams
        self.peers = peers

    def resume(
        self,
        exchange: Exchange,
        options: StreamOptions,
        key: ClientKey | None,
        request_id: str,
        dialect: str,
        start: Callable[[], None],
    ) -> None:
        """Answer a request that would start a call with the rest of the stream that it names, or `start` the call."""
        owner = owner_of(key)
        name = options.resumed or (retried(options.retry_key) if options.retry_key else "")
        if not name:
            start()
            return
        if exchange.pieces:
            exchange.join()

        def read(stream: DurableStream) -> None:
            try:
                if digest_of(exchange.body) != stream.header.request:
                    raise RequestError(_mismatch(options))
                self.read(exchange, stream, options.position)
            except RequestError as error:
                respond_failure(exchange, error.failure, request_id, {}, dialect)

        def otherwise(expired: bool) -> None:
            if (stream := self.streams.find(owner, name)) is not None:  # it came while the other workers were asked
                read(stream)
            elif options.resumed:
                failure = self._missing(owner, options.resumed, expired=expired)
                respond_failure(exchange, failure, request_id, {}, dialect)
            else:
                start()

        if (stream := self.streams.find(owner, name)) is not None:
            read(stream)
        else:
            self.peers.ask(exchange, owner, name, otherwise)

    def handle(self, exchange: Exchange, path: str, request_id: str, key: ClientKey | None) -> None:
        """Answer a request. `path` is the part of it after `/streams/`."""
        id, _, action = path.partition("/")
        routes, method = _ROUTES.get(action), exchange.request.method
        if routes is None or not id:
            failure = refused(f"there is nothing at {exchange.request.path[:200]}", "not_found")
            respond_failure(exchange, failure, request_id, {})
            return
        if method not in routes:
            allowed = ", ".join(routes)
            failure = refused(f"{method} is not allowed here; use {allowed}", "method_not_allowed")
            respond_failure(exchange, failure, request_id, {"allow": allowed})
            return
        owner = owner_of(key)
        stream = self.streams.find(owner, id)
        if stream is None:
            self.peers.ask(exchange, owner, id, partial(self._respond_missing, exchange, owner, id, request_id))
            return
        try:
            routes[method](self, exchange, stream, request_id)
        except RequestError as error:
            respond_failure(exchange, error.failure, request_id, {})

    def _respond_missing(
        self,
        exchange: Exchange,
        owner: str,
        id: str,
        request_id: str,
        expired: bool,
    ) -> None:
        if exchange.request.method == "GET" and not CALL_ID.fullmatch(id):
            exchange.respond(204, {"x-request-id": request_id}, b"")  # as clients with an id of their own expect
        else:
            respond_failure(exchange, self._missing(owner, id, expired=expired), request_id, {})

    def _get(self, exchange: Exchange, stream: DurableStream, request_id: str) -> None:
        request = exchange.request
        if "application/json" in request.headers.get("accept", ""):
            respond_json(exchange, 200, self.describe(stream), {"x-request-id": request_id})
        else:
            self.read(exchange, stream, _cursor(stream, request.headers, dict(parse_qsl(request.query))))

    def _delete(self, exchange: Exchange, stream: DurableStream, request_id: str) -> None:
        self.cancel(stream)
        self.streams.forget(stream)
        exchange.respond(204, {"x-request-id": request_id}, b"")

    def _cancel(self, exchange: Exchange, stream: DurableStream, request_id: str) -> None:
        self.cancel(stream)
        respond_json(exchange, 200, self.describe(stream), {"x-request-id": request_id})

    def cancel(self, stream: DurableStream) -> None:
        """Stop the call of a stream, for its client. Again, it changes nothing."""
        self.streams.stop(stream, _CANCELLED)

    def describe(self, stream: DurableStream) -> dict[str, object]:
        """What a stream is, as JSON."""
        log = stream.log
        status = _STATUS[log.state]
        if log.over and stream.outcome != "completed":
            status = {"cancelled": "cancelled", "truncated": "incomplete"}.get(stream.outcome, "failed")
        return {
            "id": log.id,
            "object": "stream",
            "status": status,
            "oldest": log.first + 1,
            "last": log.last,
            "readers": len(stream.readers),
            "survives": stream.record is not None and stream.record.intact,
        }

    def read(self, exchange: Exchange, stream: DurableStream, position: int) -> None:
        """Send the events after a position, and those that come. Raises `RequestError`."""
        log = stream.log
        if log.state == "answered" and stream.whole is not None:
            exchange.respond(*stream.whole)
            return
        if position > log.last:
            message = f"event {position} does not exist yet; the last one is {log.last}"
            raise RequestError(refused(message, "stream_cursor_ahead"))
        if position < log.first:
            message = f"the stream has lost the events before {log.first + 1}, which is the oldest that can be read"
            raise RequestError(refused(message, "stream_gap"))
        if log.over and position == log.last:
            exchange.respond(204, {"x-request-id": log.id}, b"")
        elif len(stream.readers) >= self.streams.settings.max_readers:
            raise RequestError(
                Failure(
                    code="too_many_readers",
                    message=f"the stream has {len(stream.readers)} readers, the most it may have",
                )
            )
        else:
            stream.join(exchange, position)

    def _missing(self, owner: str, id: str, *, expired: bool) -> Failure:
        if expired or self.streams.has_expired(owner, id):
            return refused(f"the stream {id} has ended, and is not kept any more", "stream_expired")
        return refused(f"there is no stream {id[:_MAX_QUOTED]!r} of this key", "stream_not_found")


_ROUTES: dict[str, dict[str, Handler]] = {
    "": {"GET": StreamRoutes._get, "DELETE": StreamRoutes._delete},
    "cancel": {"POST": StreamRoutes._cancel},
}


def _cursor(stream: DurableStream, headers: Mapping[str, str], query: Mapping[str, str]) -> int:
    """The position that a reader asks for. Raises `RequestError`."""
    if last := headers.get(LAST_EVENT, ""):
        id, position = read_event_id(last)
        if id != stream.log.id:
            message = f"Last-Event-ID {last[:_MAX_QUOTED]!r} is no event of the stream {stream.log.id}"
            raise RequestError(refused(message, "stream_mismatch"))
        return position
    for name in ("offset", "starting_after"):
        if value := query.get(name, ""):
            if not (value.isascii() and value.isdigit() and len(value) <= _MAX_CURSOR):
                raise RequestError(refused(f"{name} is a number of events", "invalid_parameter", param=name))
            return int(value)
    return 0


def _mismatch(options: StreamOptions) -> Failure:
    if options.resumed:
        return refused("this request is not the one that started the stream of its Last-Event-ID", "stream_mismatch")
    message = "another request has used this Idempotency-Key; use a new one for a new request"
    return structs.replace(refused(message, "stream_mismatch"), status=422)
