"""SharedCall: a call whose answer other calls get, too. CopiedAnswer: answers a call with that of a shared call.

The call that asks the provider is the *leader*. Its answer goes into a log, which its own client reads as the first
reader. Each other call reads the same log from the beginning, at its own pace: while the leader runs, or later, if the
answer is in the cache. It is a call of its own, with its own admission, head and ledger entry, of cost 0.

| the leader | a call that copies it |
|---|---|
| completes, or breaks in the middle | has the same events and the same end |
| fails at all targets | gets the same error |
| was refused, or ended before its answer began | makes a call of its own |
| was stopped in the middle by its budget or an operator | has the same text; an error, if of another key |

The leader's client may leave: the call goes on while a reader is left.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.core.hub.events import Ending
from penstock.core.hub.failure import Failure
from penstock.error_codes import ERRORS, ErrorCode
from penstock.gateway.record.attempt import Attempt, Copied, CopyKind
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.gateway.streams.sharing import Identity, Sharing
from penstock.gateway.streams.stream_log import StreamLog
from penstock.gateway.streams.stream_settings import StreamSettings
from penstock.gateway.streams.stream_store import StreamHeader
from penstock.http.exchange import Exchange
from penstock.serve.streams.durable_stream import DurableExchange, DurableStream

ANSWER_OF = "x-penstock-answer-of"
"""The response header with the id of the call whose answer this is."""
TAG = "answer_of"
"""The tag with this id."""
# The code of an entry, which is a text, as one of the table.
_CODES: dict[str, ErrorCode] = {code: code for code in ERRORS}
# Each event is sent to all readers at once.
_MAX_READERS = 1_000
# Bytes that are sent at once to a client that is behind.
_MAX_READ = 65_536
_STOPPED = Failure(
    code="upstream_truncated",
    message="the call whose answer this one shares was stopped before its end; send the request again",
    retryable=False,
)


class AnsweredClient(Protocol):
    """The client's side of a call, as a copied answer uses it."""

    write: Callable[[bytes], None]

    def begin(self) -> None:
        """Send the head of a streamed response."""

    def attach(self, responder: Any, /) -> None:
        """Set what produces the answer."""

    def end(self, data: bytes, /) -> None:
        """Send the last bytes, and end the response."""

    def answer(self, body: bytes, /) -> None:
        """Send a whole answer."""

    def refuse(self, failure: Failure, /) -> None:
        """Send a failure."""


class SharedCall:
    """A call and its log. `on_over` is called at its end."""

    def __init__(
        self,
        header: StreamHeader,
        settings: StreamSettings,
        sharing: Sharing,
        on_over: "Callable[[SharedCall], None]",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_over = on_over
        self.settings = settings
        self.sharing = sharing
        log = StreamLog(header.id, header.owner, numbered=False, max_size=settings.max_stream)
        self.stream = DurableStream(log, header, None, self._on_alone, self._on_stream_over)
        log.on_append = self._note_times
        self.call: Call | None = None
        """The leader, until it has ended."""
        self._entry: Entry | None = None
        self.joined: Identity | None = None
        """By which other calls find it while it runs."""
        self.kept: Identity | None = None
        """By which other calls find it in the cache."""
        self.ended_at = 0.0
        self.times: list[tuple[int, float]] = []
        """How many events there were, and how many seconds after the first ones."""
        self._first_at = 0.0

    def lead(self, exchange: Exchange) -> DurableExchange:
        """The exchange of the leader, whose client is the first reader."""
        connection, request, body = exchange._connection, exchange.request, exchange.body
        writer = DurableExchange(connection, request, body, stream=self.stream, listed=False)
        self.stream.writer = writer
        self.stream.join(exchange, 0)
        return writer

    @property
    def entry(self) -> Entry | None:
        """The entry of the leader, once it is settled: before any client sees its end."""
        return self.call.progress.entry if self.call is not None else self._entry

    @property
    def readable(self) -> bool:
        """Whether its whole answer can be read now or later."""
        stream = self.stream
        few = len(stream.readers) < _MAX_READERS
        return few and stream.log.first == 0 and stream.log.state not in ("refused", "broken")

    @property
    def size(self) -> int:
        """Its bytes in memory."""
        return self.stream.log.size + sum(len(each.text) for each in (self.joined, self.kept) if each is not None)

    def position_at(self, seconds: float) -> tuple[int, float | None]:
        """The last event within `seconds` after the first one, and the time of the next; None if none follows."""
        position = 0
        for last, at in self.times:
            if at > seconds:
                return position, at
            position = last
        return self.stream.log.last, None

    def _note_times(self, events: list[bytes]) -> None:
        if self.kept is not None and self.sharing.pace == "original":
            now, before = self._loop.time(), self.times[-1][0] if self.times else 0
            self._first_at = self._first_at or now
            self.times.append((before + len(events), now - self._first_at))

    def _on_alone(self, stream: DurableStream) -> None:
        """The last reader has left: to the call, its client has disconnected."""
        if (writer := stream.writer) is not None:
            stream.writer = None
            writer.gone()
            stream.break_off()

    def _on_stream_over(self, _stream: DurableStream) -> None:
        if self.call is not None:
            self._entry, self.call = self.call.progress.entry, None
        self.ended_at = self._loop.time()
        self._on_over(self)


class CopiedAnswer:
    """Answers a call from the log of a shared one. It is a reader of that log, and what the call's client waits for."""

    def __init__(self, shared: SharedCall, kind: CopyKind, call: Call, client: AnsweredClient, owner: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._shared = shared
        self._stream = shared.stream
        self._kind = kind
        self._call = call
        self._client = client
        self._owner = owner
        self._ask_targets: Callable[[], None] | None = None
        self._attempt: Attempt | None = None
        self._began_at = 0.0
        self._paused = self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self.head = ""
        self.position = self.sent = 0

    @property
    def certain(self) -> bool:
        """Whether the answer is there as a whole."""
        return self._kind == "cache"

    # Called by the attempts of the call.

    def start(self, ask_targets: Callable[[], None]) -> bool:
        """Answer the call. If that is not possible, return False, or call `ask_targets` later."""
        if not self._shared.readable:
            return False
        self._ask_targets = ask_targets
        self._client.attach(self)
        if not self._stream.log.over:
            self._stream.readers[self] = None
        self.advance()
        return True

    def stop(self) -> None:
        """The call is stopped."""
        self._leave("cancelled")

    # Called by the client's side.

    def pause(self) -> None:
        """The client is slow."""
        self._paused = True

    def resume(self) -> None:
        """The client has caught up."""
        self._paused = False
        self._call.guarded(self.advance)()
        self._stream.on_progress()

    def cancel(self, failure: Failure) -> None:  # noqa: ARG002 - the client has got it
        """The call is cancelled."""
        self._leave("cancelled")

    def drain(self, on_drained: Callable[[], None]) -> bool:  # noqa: ARG002
        """The client has disconnected: nothing is read to its end for it."""
        return False

    # Called by the stream.

    def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """The leader has got this response, and no stream."""
        if self._over:
            return
        if status == 200:
            self._begin()
            self._finish()
            self._client.answer(body)
            return
        entry = self._shared.entry
        if entry is None or not entry.attempts or entry.outcome == "cancelled":
            self._alone()
            return
        self._begin()
        self._finish()
        self._client.refuse(
            Failure(
                code=_CODES.get(entry.code, "internal_error"),
                message=entry.error,
                status=status,
                body=body,
                dialect=self._call.dialect,
                client_may_retry=headers.get("x-should-retry") != "false",
                retry_after=headers.get("retry-after", ""),
            )
        )

    def beat(self, heartbeat: bytes) -> None:
        """Send a heartbeat, if the client has every event so far."""
        if self._attempt is not None and self.position == self._stream.log.last and not self._paused:
            self._call.progress.heartbeats += 1
            self._client.write(heartbeat)

    def close(self) -> None:
        """The process ends. The call is ended by its own session."""

    def advance(self) -> None:
        """Send what the log has after the position, as far as the client takes it and the pace allows it."""
        log = self._stream.log
        if log.state == "waiting" or self._paused or self._over:
            return
        if self._stream.whole is not None:
            self.respond(*self._stream.whole)
            return
        if log.state == "broken" and not self.position:
            self._alone()
            return
        self._begin()
        until = self._until()
        while self.position < until and not self._paused:
            if self.position < log.first:  # it was slower than the log keeps events
                self._fail()
                return
            events = log.events(self.position, _MAX_READ)[: until - self.position]
            self.position += len(events)
            data = b"".join(events)
            self.sent += len(data)
            if self.position == log.last and log.state == "ended":
                self._finish()
                self._client.end(data)
                return
            self._client.write(data)
        if not log.over or self.position < until or self._timer is not None:
            return
        if log.state == "ended" and until == log.last:
            self._finish()
            self._client.end(b"")
        else:
            self._fail()  # there is no rest, or it is of the leader only

    def _until(self) -> int:
        """The last event that the client gets for now."""
        log, entry = self._stream.log, self._shared.entry
        if self._kind == "cache" and self._shared.sharing.pace == "original":
            position, at = self._shared.position_at(self._loop.time() - self._began_at)
            if at is not None and self._timer is None:
                self._timer = self._loop.call_at(self._began_at + at, self._call.guarded(self._go_on))
            return position
        stopped = entry is not None and (entry.code == "budget_exceeded" or entry.outcome == "cancelled")
        if stopped and log.owner != self._owner and log.state == "ended":
            return log.last - 1
        return log.last

    def _go_on(self) -> None:
        self._timer = None
        self.advance()

    def _begin(self) -> None:
        """The answer begins: the call has an attempt."""
        if self._attempt is not None:
            return
        call, progress, log = self._call, self._call.progress, self._stream.log
        source = self._shared.call.progress.attempts if self._shared.call is not None else ()
        attempts = source or (self._shared.entry.attempts if self._shared.entry is not None else ())
        provider, model = (attempts[-1].provider, attempts[-1].model) if attempts else ("", "")
        self._attempt = attempt = Attempt(provider, model, dialect=call.dialect, status=200)
        self._began_at = self._loop.time()
        attempt.began_s = progress.commit_s = self._began_at - call.started
        attempt.commit_s, attempt.copied = 0.0, Copied(log.id, self._kind)
        progress.attempts.append(attempt)
        call.tags = {**call.tags, TAG: log.id}
        progress.headers = {**progress.headers, ANSWER_OF: log.id}
        if self._kind == "cache":
            progress.headers["age"] = str(max(0, int(self._began_at - self._shared.ended_at)))
        if call.stream and self._stream.whole is None:
            self._client.begin()

    def _finish(self) -> None:
        """The answer ends as that of the leader has."""
        entry, progress = self._shared.entry, self._call.progress
        self._leave(_ENDINGS.get(entry.outcome, "failed") if entry is not None else "failed")
        if entry is not None and self._attempt is not None:
            progress.code, progress.error = _CODES.get(entry.code, ""), entry.error
            progress.ending = self._attempt.ending
            self._attempt.code = progress.code
            if entry.outcome == "completed":
                self._attempt.copied = Copied(entry.id, self._kind, entry.priced)

    def _fail(self) -> None:
        """The answer ends before its end."""
        self._leave("truncated")
        self._call.progress.ending = "truncated"
        self._client.refuse(_STOPPED)

    def _alone(self) -> None:
        """The leader has ended for reasons of its own: this call asks the targets itself."""
        ask_targets, self._ask_targets = self._ask_targets, None
        self._leave("cancelled")
        if ask_targets is not None:
            self._loop.call_soon(self._call.guarded(ask_targets))

    def _leave(self, ending: Ending) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._over:
            return
        self._over = True
        if self._attempt is not None and self._attempt.ending is None:
            self._attempt.ending = ending
            self._attempt.seconds = self._loop.time() - self._began_at
        self._stream.on_left(self)


_ENDINGS: Mapping[str, Ending] = {
    "completed": "completed",
    "truncated": "truncated",
    "cancelled": "cancelled",
    "timed_out": "timed_out",
}
