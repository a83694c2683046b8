"""DurableStreams: the durable streams of one process, running or kept after their end.

A stream belongs to one owner, the key of its call. No list of streams exists: a client finds one by its id, or by the
id that it has chosen. To another owner, it does not exist.
"""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

import msgspec

from penstock.amounts import clock_ms
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import answer_dialect
from penstock.core.hub.failure import Failure
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.streams.stream_log import StreamLog
from penstock.gateway.streams.stream_settings import StreamSettings
from penstock.gateway.streams.stream_store import StreamHeader, StreamRecord, StreamStore
from penstock.http.exchange import Exchange
from penstock.serve.responses import STREAM_LINES
from penstock.serve.streams.durable_stream import DurableExchange, DurableStream
from penstock.serve.streams.stream_options import StreamOptions

# How often expired streams are looked for, as a part of the time for which they are kept.
_SWEEPS = 20
# Forgotten streams whose owner still gets the error that they have expired.
_MAX_FORGOTTEN = 10_000
# The members of an answer in the background that its end decides.
_OF_THE_END = ("status", "output", "error", "usage", "completed_at", "incomplete_details")
_DIED = Failure(
    code="gateway_died", message="the gateway stopped before the answer was complete; send the request again"
)
_ALONE = Failure(
    code="client_gone", message="all clients of this stream have disconnected, and none has returned", retryable=False
)


class DurableStreams:
    """The streams of one process. `stop` ends the call with an id, with a failure that its readers get."""

    def __init__(
        self, settings: StreamSettings, store: StreamStore | None, stop: Callable[[str, Failure], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.settings = settings
        self._store = store
        self._stop = stop
        self._streams: dict[str, DurableStream] = {}
        self._by_name: dict[tuple[str, str], DurableStream] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()  # when each has ended, the oldest first
        self._ended_size = 0
        self._per_owner: Counter[str] = Counter()
        self._forgotten: OrderedDict[str, str] = OrderedDict()  # the owner of each
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def header(
        self, exchange: Exchange, request_id: str, key: ClientKey | None, dialect: str, options: StreamOptions
    ) -> StreamHeader:
        """What the stream of a request is."""
        return StreamHeader(
            id=request_id,
            owner=owner_of(key),
            dialect=dialect,
            request=digest_of(exchange.body),
            names=tuple(filter(None, (options.chosen, options.retry_key and retried(options.retry_key)))),
            on_disconnect=options.on_disconnect or self.settings.on_disconnect,
        )

    def open(
        self, exchange: Exchange, header: StreamHeader, *, joins: bool = True, stored: bool = True
    ) -> DurableExchange:
        """Make the stream of a call. The client that made it is the first reader if it `joins`. Unless `stored`, it is
        in memory only, as an answer that is not streamed."""
        stream = self._add(header, self._store.create(header) if stored and self._store is not None else None)
        stream.writer = DurableExchange(exchange._connection, exchange.request, exchange.body, stream=stream)
        if joins:
            stream.join(exchange, 0)
        return stream.writer

    def _add(self, header: StreamHeader, record: StreamRecord | None) -> DurableStream:
        numbered = answer_dialect(header.dialect).event_ids
        log = StreamLog(header.id, header.owner, numbered=numbered, max_size=self.settings.max_stream)
        stream = DurableStream(log, header, record, self._on_alone, self._on_over)
        self._streams[log.id] = stream
        self._by_name |= {(header.owner, name): stream for name in header.names}
        self._per_owner[header.owner] += 1
        self._make_room(header.owner)
        return stream

    def adopt(self) -> None:
        """Take over the streams of processes that have ended. A stream without an end gets one."""
        if self._store is None:
            return
        before_ms = clock_ms() - round(self.settings.keep_s * 1000)
        for found in self._store.adopt():
            header = found.header
            if 0 < found.ended_ms < before_ms or (found.ended_ms and not found.head):
                found.record.remove()
                continue
            stream = self._add(header, found.record)
            stream.head, stream.outcome = found.head or STREAM_LINES, found.outcome
            stream.log.restore(found.events, whole=found.whole)
            if not stream.log.over and found.ended_ms:
                stream.break_off()
            elif not stream.log.over:
                stream.outcome = "failed"
                stream.end(self._death(stream))
            else:
                self._on_over(stream)

    def _death(self, stream: DurableStream) -> bytes:
        """The last events of a stream whose process died."""
        header, last = stream.header, stream.log.last
        queued = msgspec.json.decode(header.queued) if header.queued else {}
        facts = AnswerFacts(
            call_id=header.id,
            model="",
            created=int(time.time()),
            same_dialect=False,
            heartbeats=max(last - 1, 0),
            overrides={name: value for name, value in queued.items() if name not in _OF_THE_END},
            end_marker=True,
        )
        return answer_dialect(header.dialect).writer(facts).fail(_DIED)

    def find(self, owner: str, name: str) -> DurableStream | None:
        """The stream of this owner with this id, or with the id that the client has chosen."""
        stream = self._streams.get(name) or self._by_name.get((owner, name))
        return stream if stream is not None and stream.log.owner == owner else None

    def has_expired(self, owner: str, id: str) -> bool:
        """Whether this owner had a stream with this id, which is forgotten."""
        return self._forgotten.get(id) == owner

    def stop(self, stream: DurableStream, failure: Failure) -> None:
        """Stop the call of a stream. Its readers get the failure; again, it changes nothing."""
        if not stream.log.over:
            self._stop(stream.log.id, failure)

    def settled(self, id: str, outcome: str) -> None:
        """A call has been settled, perhaps one with a stream."""
        if (stream := self._streams.get(id)) is not None:
            stream.settle(outcome)

    def forget(self, stream: DurableStream) -> None:
        """Delete a stream that is over."""
        log = stream.log
        stream.close_readers()
        if self._streams.pop(log.id, None) is None:
            return
        if self._ended.pop(log.id, None) is not None:
            self._ended_size -= log.size
        for name in stream.header.names:
            if self._by_name.get((log.owner, name)) is stream:
                del self._by_name[log.owner, name]
        self._per_owner[log.owner] -= 1
        if not self._per_owner[log.owner]:
            del self._per_owner[log.owner]
        if stream.record is not None:
            stream.record.remove()
        if log.state != "refused":
            self._forgotten[log.id] = log.owner
        while len(self._forgotten) > _MAX_FORGOTTEN:
            self._forgotten.popitem(last=False)

    def close(self) -> None:
        """End the responses of all readers: the process ends."""
        if self._sweep is not None:
            self._sweep.cancel()
        for stream in list(self._streams.values()):
            stream.await_no_more()
            stream.close_readers()
            stream.await_no_more()
        if self._store is not None:
            self._store.close()

    # The life of a stream.

    def _on_alone(self, stream: DurableStream) -> None:
        """The last reader has left a stream that goes on."""
        if stream.header.on_disconnect != "continue" and stream.lingering is None:
            wait_s = self.settings.linger_s if stream.header.on_disconnect == "linger" else 0.0
            stream.lingering = self._loop.call_later(wait_s, self._end_alone, stream)

    def _end_alone(self, stream: DurableStream) -> None:
        stream.lingering = None
        if not stream.readers:
            self.stop(stream, _ALONE)

    def _on_over(self, stream: DurableStream) -> None:
        """A stream has ended, or never began."""
        stream.await_no_more()
        if stream.log.state == "refused":
            self.forget(stream)
            return
        if stream.record is not None:
            stream.record.end(clock_ms(), whole=stream.log.state == "ended")
        self._ended[stream.log.id] = self._loop.time()
        self._ended_size += stream.log.size
        self._make_room(stream.log.owner)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self.settings.keep_s / _SWEEPS, self._expire)

    def _make_room(self, owner: str) -> None:
        """Forget the oldest ended streams: one, if this owner has too many, then as many as have too many bytes."""
        if self._per_owner[owner] > self.settings.max_per_key:
            own = next((id for id in self._ended if self._streams[id].log.owner == owner), None)
            if own is not None:
                self.forget(self._streams[own])
        while self._ended and self._ended_size > self.settings.max_total:
            self.forget(self._streams[next(iter(self._ended))])

    def _expire(self) -> None:
        before = self._loop.time() - self.settings.keep_s
        while self._ended and next(iter(self._ended.values())) <= before:
            self.forget(self._streams[next(iter(self._ended))])
        again_s = self.settings.keep_s / _SWEEPS
        self._sweep = self._loop.call_later(again_s, self._expire) if self._ended else None


def owner_of(key: ClientKey | None) -> str:
    """The owner of the streams of a client: its key, and its user if the users of the key have a JWT each.

    A key of the configuration is known by its secret: its id is its place in a list, which may change.
    """
    if key is None:
        return ""
    owner = f"configured-{key.digest.hex()[:16]}" if key.configured else key.id
    return f"{owner}/{key.subject}" if key.subject else owner


def digest_of(body: bytes) -> bytes:
    """The digest by which a repeated request is recognised."""
    return hashlib.sha256(body).digest()


def retried(retry_key: str) -> str:
    """The name of a stream by the `Idempotency-Key` of its request. No id that a client chooses begins like it."""
    return f"retried {retry_key}"
