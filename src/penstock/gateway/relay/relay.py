"""Relay: one attempt, from the head of the provider's response to the last byte for the client.

There is no task, no queue and no `await` between the two sockets. The upstream connection calls `on_data`, which parses
the bytes, checks the events and writes them to the client before it returns. A large read is passed on in parts, one
per iteration of the event loop (`http/upstream_connection.py`).

**Phases**

| phase | from | a failure in it |
|---|---|---|
| `waiting` | the request is sent | is an outcome: the gateway may try the next target, as the client has no content |
| `streaming` | the commit point | becomes one error frame and a clean end of the body, without `[DONE]`: no retry |
| `over` | the answer has ended or failed | is ignored |

If no target is left, a failure in `waiting` becomes a response with its HTTP status, unless a heartbeat has sent the
head of a 200 response (`send_heartbeat`); then the failure is an error frame.

**The commit point** is the first event that carries content: text, reasoning, a refusal, a tool call, audio or an
image. Until then the relay buffers what it would write (`_uncommitted`), at most `_MAX_UNCOMMITTED` bytes. An
unstreamed answer is built from the same events and committed only when it is complete.

**Pauses (backpressure).** The relay stops reading from the provider for two reasons, the bits of `Watchdog.paused`:

- `_SLOW_CLIENT`: the client's write buffer is full. The client's side calls `pause` and `resume`.
- `_LIMIT_CHECK`: the attempt has used what its key's budget reserved, and the request for more is not answered yet. The
  reservation calls `pause_for_limit`.

Reading resumes when no bit is left. Of the timeouts only the total one runs during a pause; heartbeats continue.

**Disconnects.** A client that disconnects ends the attempt. With the provider setting `abort = "drain"` the relay reads
the rest of the answer without a client (`drain`), because the provider bills for it and reports the usage at its end.

**Fast path.** The relay has a `ChunkForwarder` unless something needs the events. Then healthy text is forwarded as it
came if the client and the provider use the same dialect, and else written from a template.
"""

from collections.abc import Callable, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import Literal

from penstock.core.hub.completion import Accumulator
from penstock.core.hub.events import (
    End,
    Ending,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    TextDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import changes_meaning
from penstock.core.hub.usage import Usage
from penstock.core.stream import EventReader, StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.error_codes import TRUNCATION_CODES, ErrorCode
from penstock.gateway.record.attempt import Attempt
from penstock.gateway.record.call import Call
from penstock.gateway.record.control import MAX_CHARS, AttemptControl
from penstock.gateway.record.error_body import MAX_ERROR_BODY
from penstock.gateway.record.failure import (
    BAD_FINISH,
    TRANSLATION_LOSS,
    from_answer,
    from_answer_losses,
    from_fault,
    from_transport,
    redacted,
    sentence,
)
from penstock.gateway.record.progress import NOTED
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.record.transcript import TEXT_EVENTS
from penstock.gateway.relay.body_forwarder import BodyForwarder
from penstock.gateway.relay.chunk_forwarder import ChunkForwarder
from penstock.gateway.relay.decompressing import DecompressingReceiver
from penstock.gateway.relay.outcome import Committed, Completed, Failed, Outcome
from penstock.gateway.relay.ports import Client, Connection, DisconnectedClient
from penstock.gateway.relay.recording import RecordingReceiver
from penstock.gateway.relay.watchdog import Watchdog
from penstock.http.decompression import can_decompress, is_compressed
from penstock.http.upstream_connection import ReceiverError, UpstreamError

_CONTENT = frozenset((TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart, MediaDelta))
_FORWARDED_TEXT = frozenset((TextDelta, ReasoningDelta))
# What a client does not get of an answer that is cut off.
_OF_THE_END = frozenset((Finish, UsageReport, End))
# Dialects without content blocks have audio and images in extra fields of a delta. These are the JSON types of such
# fields.
_MEDIA_TYPES = (dict, list)
_TOO_LARGE: ErrorCode = "upstream_event_too_large"
# Before the first content come a role and some extras. With more bytes than this the answer is committed without
# content.
_MAX_UNCOMMITTED = 65_536
# The bytes of a stream. Those of text have a limit of their own (`MAX_CHARS`), which is reached long before.
_MAX_STREAM = 256_000_000
# The ends of content types of answers that are no streams.
_UNSTREAMED_TYPES = ("/json", "+json")
# The reasons for a pause, as bits of `Watchdog.paused`.
_SLOW_CLIENT, _LIMIT_CHECK = 1, 2


class Relay:
    """Forwards a provider's answer to the client as it arrives."""

    _phase: Literal["waiting", "streaming", "over"] = "waiting"
    _status = 0  # of the answer, once its head has come
    _uncommitted = b""
    _headers: Mapping[str, str] = MappingProxyType({})
    # Whether body bytes must not go to the reader: the body is an error, or the attempt is over.
    _bypass_reader = False
    _error_body = b""
    _connection: Connection | None = None
    _recording: RecordingReceiver | None = None
    _pending = 0  # frames of the trailer so far; they are progress, though their events come at the end only
    _undelivered = 0  # characters that are counted while the budget is checked, and not yet written to the client
    _body_size = 0  # of the answer, in bytes, without those that took the fast path
    _forwarder: ChunkForwarder | None = None
    # Of an unstreamed answer.
    _body: BodyForwarder | None = None
    _answer: Accumulator | None = None
    _last = False  # whether the end of the body is in the read that is processed
    # Called once, after the answer was drained without its client.
    _on_drained: Callable[[], None] | None = None

    def __init__(
        self,
        call: Call,
        client: Client,
        reader: EventReader,
        writer: StreamWriter,
        timeouts: AttemptTimeouts,
        report: Callable[[Outcome], None],
    ) -> None:
        """The relay reports when it commits the answer, and how the attempt has ended."""
        attempt, control = call.progress.attempts[-1], call.progress.control
        assert control is not None  # created with the attempt
        self._watchdog = watchdog = Watchdog(
            self, timeouts, attempt.gaps, call.started + timeouts.total_s, streamed=client.stream
        )
        self._loop = watchdog.loop
        self._call = call
        self._attempt = attempt
        self._control = control
        self._count_text = control.count_text
        control.running = self
        self._client = client
        self._reader = reader
        self._writer = writer
        self._timeouts = timeouts
        if client.stream:
            if isinstance(reader, StreamReader) and reader.format is not None:  # nothing changes or collects the events
                self._forwarder = ChunkForwarder(self, call, reader, writer, watchdog)
            self._max_size = _MAX_STREAM
        else:
            self._body = BodyForwarder.between(reader, writer)
            self._answer = Accumulator()
            self._max_size = timeouts.max_body
        self._report = report

    def attach(self, connection: Connection, recording: RecordingReceiver | None = None) -> None:
        """Set the connection that the answer arrives on, and the recording receiver in front of the relay, if any.

        The caller sends the request next, so the attempt counts as sent from here on.
        """
        self._attempt.sent = True
        self._connection = connection
        self._recording = recording
        if self._forwarder is not None and recording is None:
            self._forwarder.attach(connection)
        if self._watchdog.paused:
            connection.pause()
        self._watchdog.start()

    # Called by the upstream connection.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head of the provider's response."""
        self._status = self._attempt.status = status
        self._watchdog.seen_head = True
        self._headers = headers
        if self._attempt.client_credentials and self._call.credentials is not None:
            self._call.progress.headers = {
                **self._call.progress.headers,
                **self._call.credentials.account_headers(headers),
            }
        if status >= 300:
            self._bypass_reader = True  # an error body is decompressed when it is complete
        elif "content-encoding" in headers:
            self._set_coding(headers["content-encoding"])

    def _set_coding(self, coding: str) -> None:
        connection = self._connection
        if can_decompress(coding) and connection is not None:
            paused = self._watchdog.paused != 0
            decompressing = DecompressingReceiver(coding, self._call, self, connection, paused=paused)
            (self._recording or connection).redirect(decompressing)
            self._connection = decompressing
            if self._forwarder is not None:
                self._forwarder.detach()  # the HTTP chunks are compressed
        elif is_compressed(coding):
            self._fail(
                from_transport("upstream_bad_response", f"the answer is encoded as {coding}, which was not requested")
            )

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """Take a piece of the body. `last`: the end of the body is in the same read."""
        if self._bypass_reader:
            if self._phase != "over":
                self._error_body += data[: MAX_ERROR_BODY - len(self._error_body)]
            return
        self._body_size += len(data)
        if self._body_size > self._max_size:
            self._fail_size(f"{self._max_size} bytes")
            return
        if self._body is not None:
            if self._body.hold(data, last=last):
                return
            self._read_pieces()
            if self.over:
                return
        events, forwarder = self._reader.feed(data), self._forwarder
        self._last = last
        if forwarder is None or not events:
            self._on_events(events, last=last)
            return
        if forwarder.may_forward(last=last):
            text = forwarder.text_of(data)
            self._forward(events, text)
            if text is not data and not last:  # the usual ending has begun in the same read
                self._pending = self._reader.pending
                self.check_pending()
        else:
            self._on_events(events, last=last)
        if self._phase == "streaming" and not last:
            forwarder.skip_parser(self._client)

    def _fail_size(self, limit: str) -> None:
        self._fail(from_transport(_TOO_LARGE, f"the answer has more than {limit}"))

    def on_end(self) -> None:
        """Handle the end of the body. The reader checks whether the answer in it is complete.

        The body has ended by its HTTP framing, or with its connection if it has no framing. After `[DONE]` the watchdog
        calls this if the end does not arrive soon.
        """
        if self._phase == "over":
            return
        if self._status >= 300:
            self._fail(from_answer(self._attempt, self._headers, self._error_body))
        elif not self._forward_body() and not self._forward_trailer():
            self._on_new_events(self._reader.close())

    def on_error(self, error: UpstreamError) -> None:
        """Handle a connection that failed before the body was complete. The answer may be complete all the same."""
        if isinstance(error, ReceiverError):
            self.on_exception(error.__cause__ or error)
            return
        self._read_pieces()
        if self._phase == "over":
            return
        if self._status >= 300:
            self._fail(from_answer(self._attempt, self._headers, self._error_body))
            return
        ending: Ending = "truncated" if error.code in TRUNCATION_CODES else "failed"
        failure, usage = from_transport(error.code, error.message), None
        if self._status:
            events = self._reader.close()
            last = events[-1]
            if isinstance(last, End) and last.ending == "completed":
                self._on_new_events(events)
                return
            usage = _reported_in(events)
            self._release_rest(events)
        self._fail(failure, ending, usage)

    def _release_rest(self, events: list[Event]) -> None:
        """Write what waited for the end of an event, if the client gets an answer already."""
        read = takewhile(lambda event: type(event) is not Fault, events)
        rest = [event for event in read if type(event) not in _OF_THE_END]
        if rest and self._phase == "streaming":
            self._on_new_events(rest)
        else:
            self._call.progress.watch(rest)

    def _forward_body(self) -> bool:
        """Forward an unstreamed answer as it came if it is healthy, unless `on_text` needs its events, or a limit is
        reached. Else let the reader have it. Return whether the attempt has ended."""
        forwarder, attempt = self._body, self._attempt
        plain = forwarder.read() if forwarder is not None and self._call.on_text is None else None
        if forwarder is None or plain is None or attempt.output_chars + plain.chars >= self._control.check_at:
            self._read_pieces()
            return self.over
        self._body = None
        attempt.response_id, attempt.response_model = plain.id, plain.model
        attempt.finishes += plain.finishes
        attempt.tokens = plain.tokens
        attempt.output_chars += plain.chars
        for tier in plain.tiers:
            attempt.report_tier(tier)
        body = self._writer.forward_body(forwarder.body, plain.changes)
        self._commit()
        self._finish("completed")
        attempt.frames = 1
        self._client.answer(body)
        return True

    def _read_pieces(self) -> None:
        """Let the reader have the pieces of the body that are held, if there are any, and all others at once."""
        forwarder, self._body = self._body, None
        for data in forwarder.pieces if forwarder is not None else ():
            if not self.over:
                self._on_events(self._reader.feed(data), last=False)

    def _forward_trailer(self) -> bool:
        """Forward the usual trailer as it came, unless `on_text` needs its events. Return whether that was done."""
        trailer = self._forwarder.trailer if self._forwarder is not None else None
        if trailer is None or self._phase != "streaming" or self._call.on_text is not None:
            return False
        data = self._writer.forward(trailer)
        if not data:
            return False
        self._watchdog.advance()
        attempt = self._attempt
        attempt.finishes.append(trailer.finish_reason)
        attempt.tokens = trailer.tokens
        if trailer.tier is not None:
            attempt.report_tier(trailer.tier)
        self._finish("completed")
        self._client.end(data)
        return True

    # Called by the client's side.

    def pause(self, by: int = _SLOW_CLIENT) -> None:
        """Stop reading from the provider for this reason: a slow client or a limit check."""
        self._watchdog.paused |= by
        if self._connection is not None:
            self._connection.pause()

    def resume(self, by: int = _SLOW_CLIENT) -> None:
        """Remove a reason for the pause. Read from the provider again if none is left."""
        watchdog = self._watchdog
        watchdog.paused &= ~by
        if watchdog.paused:
            return
        watchdog.resume()
        if self._connection is not None:
            self._connection.resume()
            watchdog.arm()

    def cancel(self, failure: Failure, ending: Ending = "cancelled") -> None:
        """End the attempt: the client has disconnected, the gateway shuts down, or no connection could be opened."""
        self._fail(failure, ending=ending)

    def drain(self, on_drained: Callable[[], None]) -> bool:
        """The client has disconnected: read the rest of the answer without it, if the provider's settings say so.

        Returns whether the relay does that. If so, it calls `on_drained` at the end.
        """
        if not self._timeouts.drain_s or not self._attempt.sent or self._phase == "over":
            return False
        self._on_drained = on_drained
        self._client = DisconnectedClient(stream=self._client.stream)
        self._call.strict = False  # without a client there is no answer to refuse
        watchdog = self._watchdog
        watchdog.deadline = min(watchdog.deadline, self._loop.time() + self._timeouts.drain_s)
        if self._forwarder is not None:
            self._forwarder.detach()
        if watchdog.paused & _SLOW_CLIENT:
            self.resume()
        watchdog.arm()  # the deadline is earlier now
        return True

    # Called through the `AttemptControl`.

    @property
    def frames(self) -> int:
        """How many frames have come so far."""
        return self._reader.frames

    @property
    def last_event_at(self) -> float:
        """When the last event came, by the clock of the event loop."""
        return self._watchdog.last_event_at

    def stop(self, failure: Failure, ending: Ending = "truncated") -> None:
        """End the attempt with this failure: a limit is reached, or the operator stops the call."""
        self._attempt.output_chars -= self._undelivered
        self._fail(failure, ending=ending)

    def pause_for_limit(self, paused: bool) -> None:
        """Pause, or resume, while the key's account has not decided how much more the attempt may cost."""
        if paused:
            self.pause(_LIMIT_CHECK)
        elif self._watchdog.paused & _LIMIT_CHECK:
            self.resume(_LIMIT_CHECK)

    # Called by the watchdog.

    @property
    def done(self) -> bool:
        """Whether the provider has sent its end marker, such as `[DONE]`."""
        return self._reader.done

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""
        return self._phase == "over"

    @property
    def committed(self) -> bool:
        """Whether the client gets an answer: it is past its commit point, and has not ended."""
        return self._phase == "streaming"

    def time_out(self, failure: Failure) -> None:
        """End the attempt: a timeout has passed."""
        if self._phase == "streaming" and (rest := self._reader.release()):
            self._on_new_events(rest)
        self._fail(failure, ending="timed_out")

    def on_exception(self, error: BaseException) -> None:
        """End the call after an exception of ours: in this relay, or in what it calls."""
        self._call.fail(error)

    def send_heartbeat(self) -> None:
        """Send the client a comment, so that no proxy closes the idle connection."""
        self._client.begin()
        self._client.write(self._writer.heartbeat())
        self._call.progress.heartbeats += 1
        if self._forwarder is not None:
            self._forwarder.use_parser()

    # Events.

    def _on_events(self, events: list[Event], *, last: bool) -> None:
        if events:
            self._on_new_events(events)
        elif not last or not self._reader.done:  # else `on_end` follows at once
            self.check_pending()
            return
        if self._reader.done and not last and self._phase != "over":
            self._watchdog.arm()  # a shorter timeout applies after `[DONE]`

    def check_pending(self) -> None:
        """Count frames as progress whose events the reader returns later: those of the trailer, and what it holds."""
        reader = self._reader
        if reader.pending > self._pending:
            self._pending = reader.pending
            self._watchdog.advance()
            if self._forwarder is None:
                self._watchdog.note_sent(b"")
        if reader.done and self._phase != "over":
            self._watchdog.arm()

    def _forward(self, events: list[Event], data: bytes) -> None:
        """Forward healthy text, and perhaps the opening before it, as it came. `data` are the bytes of these events."""
        if self._watchdog.seen_event:
            self._watchdog.advance()
        else:
            self._watchdog.first_event()
            self._call.progress.watch(events)
        texts = [event for event in events if type(event) in _FORWARDED_TEXT]
        size = self._count_text(texts)
        if texts and not self.may_deliver(size):
            return
        if self._call.on_text is not None:
            self._call.on_text(events)
        if self._phase == "waiting":
            self._writer.note(events)
            self._uncommitted += data
            if not texts:
                return  # the opening alone
            data, self._uncommitted = self._uncommitted, b""
            self._commit()
        elif self._forwarder is not None:
            self._forwarder.follow(events)
        self._write(data)

    def _write(self, data: bytes) -> None:
        """Send bytes of the stream: at once, or with its end if that follows at once."""
        if self._last:
            self._client.hold(data)
        else:
            self._client.write(data)

    def _on_new_events(self, events: list[Event]) -> None:
        kinds = set(map(type, events))
        if Fault in kinds:  # ignore events after it: whether they are in the same read is chance
            events = events[: next(place for place, event in enumerate(events) if type(event) is Fault) + 1]
            kinds = set(map(type, events))
        if kinds != {Repair}:
            if self._watchdog.seen_event:
                self._watchdog.advance()
            else:
                self._watchdog.first_event()
        else:
            self.check_pending()
        if not kinds.isdisjoint(NOTED):
            self._call.progress.watch(events)
        last = events[-1]
        if not kinds.isdisjoint(TEXT_EVENTS):
            size = self._count_text(events)
            if isinstance(last, End):  # the answer is complete, and the provider bills it
                self._attempt.output_chars += size
            elif not self.may_deliver(size):
                return
        if self._call.on_text is not None:
            self._call.on_text(events)
        if Repair in kinds:  # counted above; no writer shows it to a client
            events = [event for event in events if type(event) is not Repair]
        if UsageReport in kinds:  # the ledger has the report as it was sent
            events = _with_correct_usage(events)
        if isinstance(last, Fault):
            self._release(events[:-1])
            self._fail(from_fault(last))
        elif isinstance(last, End):
            self._end(events, last)
        else:
            self._release(events)

    def may_deliver(self, size: int) -> bool:
        """Count text that is not written yet. False if the budget has no room for it: the attempt has ended."""
        attempt = self._attempt
        attempt.output_chars += size
        if attempt.output_chars >= self._control.check_at:
            self._undelivered = size
            self._check_limit(attempt, self._control)
            self._undelivered = 0
        return self._phase != "over"

    def _check_limit(self, attempt: Attempt, control: AttemptControl) -> None:
        """The control's check is due, which may end the attempt."""
        control.check()
        if attempt.output_chars >= MAX_CHARS:
            self._loop.call_soon(self._call.guarded(self._fail_size), f"{MAX_CHARS} characters")
        self._count_text = control.count_text
        if self._forwarder is not None:
            self._forwarder.use_parser()

    def _release(self, events: list[Event]) -> None:
        """Write events to the client. Before the commit point they are buffered."""
        if self._answer is not None:
            self._answer.extend(self._writer.passed_on(events))
            return
        data = self._writer.write(events)
        if self._forwarder is None or not self._forwarder.forwards:  # what is forwarded is never empty
            self._watchdog.note_sent(data)
        if self._writer.losses and (lost := self._note_losses()) is not None:
            if self._phase == "streaming":
                self._client.write(data)  # the part that the client's dialect can express
            self._fail(lost)
            return
        if self._phase == "waiting":
            self._uncommitted += data
            if len(self._uncommitted) <= _MAX_UNCOMMITTED and not _is_content(events):
                return
            data, self._uncommitted = self._uncommitted, b""
            self._commit()
        self._write(data)

    def _end(self, events: list[Event], end: End) -> None:
        """Handle the end of the provider's stream."""
        if end.ending != "completed":
            message = f"the provider's stream ended before the answer was complete: {end.detail}"
            # Without the finishes: a client that stops at a finish reason would regard the answer as complete.
            self._release([event for event in events[:-1] if type(event) is not Finish])
            self._fail(from_transport("upstream_truncated", message), ending="truncated")
            return
        forwarder = self._forwarder
        if self._answer is None and forwarder is not None and forwarder.forwarded_end:
            data = b""
        elif self._answer is None:
            trailer = forwarder.trailer if forwarder is not None else None
            data = self._uncommitted + self._writer.write_end(trailer, events)
        else:
            self._answer.extend(self._writer.passed_on(events))
            data = self._writer.write_body(self._answer.completion)
        if self._writer.losses and (lost := self._note_losses()) is not None:
            self._fail(lost)
            return
        self._commit()
        self._finish("completed")
        if self._answer is None:
            self._client.end(data)
        else:
            self._client.answer(data)

    def _note_losses(self) -> Failure | None:
        """Add the writer's new losses to the call. Return a failure if the call is strict and a loss changes the
        meaning."""
        losses = self._writer.losses[:]
        self._writer.losses.clear()
        self._call.progress.note_losses(losses)
        return from_answer_losses(losses) if self._call.strict and changes_meaning(losses) else None

    def _commit(self) -> None:
        if self._phase != "waiting":
            return
        self._phase = "streaming"
        now = self._loop.time()
        self._call.progress.commit_s = now - self._call.started
        self._attempt.commit_s = now - self._watchdog.started
        if self._client.stream:
            self._client.begin()
        self._report(Committed())

    def _fail(self, failure: Failure, ending: Ending = "failed", reported: Usage | None = None) -> None:
        """End the attempt. `reported` is the usage, if the reader is closed already."""
        self._read_pieces()
        if self._phase == "over":
            return
        committed = self._phase == "streaming"
        failure = redacted(failure, self._attempt.secrets)
        self._attempt.code = failure.code
        self._attempt.answered = self._is_answered(failure, ending)
        # What a provider reports before it fails of its own accord is not its bill, unless it has generated something.
        counts = self._attempt.output_chars or ending != "failed" or failure.code == BAD_FINISH
        try:
            if counts and (usage := reported or self._reported_usage()) is not None:
                self._attempt.usage = usage
                self._attempt.report_tier(usage.tier)
        finally:  # whatever the reader raises, the attempt ends
            self._finish(ending)
        if committed and not self._call.progress.code:
            self._call.progress.code, self._call.progress.error = failure.code, sentence(failure)
        self._report(Failed(failure, committed))
        if committed:
            self._client.end(self._writer.fail(failure))

    def _reported_usage(self) -> Usage | None:
        """The usage that the provider reported before the failure."""
        failed = self._reader.failed
        if failed is not None:
            return failed.usage.with_total() if failed.usage is not None else None
        return _reported_in(self._reader.close())

    def _is_answered(self, failure: Failure, ending: Ending) -> bool:
        """Whether the provider had generated an answer despite the failure, and so bills for it.

        An unstreamed answer is complete before its first byte is sent. Streams of JSON lines are no such answers.
        """
        if not 200 <= self._status < 300:
            return False
        type = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        unstreamed = self._body_size > 0 and type.endswith(_UNSTREAMED_TYPES)
        return failure.code in (_TOO_LARGE, TRANSLATION_LOSS) or (unstreamed and ending in ("truncated", "timed_out"))

    def _finish(self, ending: Ending) -> None:
        committed = self._phase == "streaming"
        self._phase = "over"
        self._bypass_reader = True
        attempt = self._attempt
        attempt.seconds = self._loop.time() - self._watchdog.started
        attempt.ending = ending
        self._watchdog.stop()
        self._control.release()
        connection, self._connection = self._connection, None
        if self._forwarder is not None:
            self._forwarder.detach()
            self._forwarder = None  # it refers to this object: break the cycle
        if connection is not None:
            connection.abandon(self if self._recording is None else self._recording)
        if self._recording is not None:
            self._recording.stop(ending)
        failed = self._reader.failed
        attempt.frames = self._reader.frames if failed is None else failed.frames
        if committed:
            self._call.progress.ending = self._call.progress.ending or ending
            if ending == "completed":
                self._report(Completed())
        if self._on_drained is not None:
            self._loop.call_soon(self._on_drained)  # after the caller has set the ending
            self._on_drained = None


def _reported_in(events: list[Event]) -> Usage | None:
    return next((event.usage for event in events if type(event) is UsageReport), None)


def _with_correct_usage(events: list[Event]) -> list[Event]:
    """The events, without counts of a usage report that cannot be true. The reader has emitted repairs for them."""
    correct: list[Event] = []
    for event in events:
        if not isinstance(event, UsageReport):
            correct.append(event)
        elif (usage := event.usage.corrected()) is not None:
            correct.append(event if usage is event.usage else UsageReport(usage))
    return correct


def _is_content(events: list[Event]) -> bool:
    """Whether these events have content."""
    return not _CONTENT.isdisjoint(map(type, events)) or any(map(_has_media, events))


def _has_media(event: Event) -> bool:
    return (
        isinstance(event, Extra)
        and event.place == "delta"
        and any(part and isinstance(part, _MEDIA_TYPES) for part in event.fields.values())
    )
