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
image. An unstreamed answer is built from the same events and committed only when it is complete.

**Who does what.** The relay decides what becomes of the attempt. What the client gets is the matter of its answer:
`streamed_answer.py`, with the fast path, or `whole_answer.py`. The `Watchdog` has the timer.

**Pauses (backpressure).** The relay stops reading from the provider for two reasons, the bits of `Watchdog.paused`:

- `_SLOW_CLIENT`: the client's write buffer is full. The client's side calls `pause` and `resume`.
- `_LIMIT_CHECK`: the attempt has used what its key's budget reserved, and the request for more is not answered yet. The
  reservation calls `pause_for_limit`.

Reading resumes when no bit is left. Of the timeouts only the total one runs during a pause; heartbeats continue.

**Disconnects.** A client that disconnects ends the attempt. With the provider setting `abort = "drain"` the relay reads
the rest of the answer without a client (`drain`), because the provider bills for it and reports the usage at its end.
"""

from collections.abc import Callable, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import Literal

from penstock.core.hub.events import End, Ending, Event, Fault, Finish, Repair, UsageReport
from penstock.core.hub.failure import Failure
from penstock.core.hub.usage import Usage
from penstock.core.stream import EventReader
from penstock.core.stream_writer import StreamWriter
from penstock.error_codes import TRUNCATION_CODES
from penstock.gateway.record.attempt import MAX_CHARS
from penstock.gateway.record.call import NOTED, Call
from penstock.gateway.record.error_body import MAX_ERROR_BODY
from penstock.gateway.record.failure import REFUSED, from_answer, from_fault, from_transport, redacted, sentence
from penstock.gateway.record.timeouts import AttemptTimeouts
from penstock.gateway.record.transcript import TEXT_EVENTS
from penstock.gateway.relay.answer_events import is_refusal, reported_usage, with_correct_usage
from penstock.gateway.relay.booked_failure import TOO_LARGE, book_failure, is_unstreamed
from penstock.gateway.relay.decompressing import DecompressingReceiver
from penstock.gateway.relay.outcome import Committed, Completed, Failed, Outcome
from penstock.gateway.relay.ports import BrokenAnswers, Client, Connection, DisconnectedClient
from penstock.gateway.relay.recording import RecordingReceiver
from penstock.gateway.relay.streamed_answer import StreamedAnswer
from penstock.gateway.relay.watchdog import Watchdog
from penstock.gateway.relay.whole_answer import WholeAnswer
from penstock.http.decompression import can_decompress, is_compressed
from penstock.http.upstream_connection import ReceiverError, UpstreamError

# What a client does not get of an answer that is cut off.
_OF_THE_END = frozenset((Finish, UsageReport, End))
# The bytes of a stream. Those of text have a limit of their own (`MAX_CHARS`), which is reached long before.
_MAX_STREAM = 256_000_000
# The reasons for a pause, as bits of `Watchdog.paused`.
_SLOW_CLIENT, _LIMIT_CHECK = 1, 2


class Relay:
    """Passes a provider's answer on to the client as it arrives."""

    _phase: Literal["waiting", "streaming", "over"] = "waiting"
    _status = 0  # of the answer, once its head has come
    _headers: Mapping[str, str] = MappingProxyType({})
    _error_body = b""  # the beginning of the body, if the status says that it is an error
    _body_size = 0  # of the answer, in bytes, without the chunks that have bypassed the parser
    _connection: Connection | None = None
    _recording: RecordingReceiver | None = None
    # What the client gets: one of the two, until the attempt is over.
    _streamed: StreamedAnswer | None = None
    _whole: WholeAnswer | None = None
    _withheld = 0  # the last `EventReader.withheld` that was counted as progress
    broken_answers: BrokenAnswers | None = None
    """Decides what becomes of the answer if it breaks off; None if the client gets the failure."""
    _unwritten_chars = 0  # those that are counted, and not yet written to the client, while a limit is checked
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
        self._report = report
        if client.stream:
            self._streamed = StreamedAnswer(self, call, client, reader, writer, watchdog)
            self._max_size = _MAX_STREAM
        else:
            self._whole = WholeAnswer(call, client, reader, writer)
            self._max_size = timeouts.max_body

    def attach(self, connection: Connection, recording: RecordingReceiver | None = None) -> None:
        """Set the connection that the answer arrives on, and the recording receiver in front of the relay, if any.

        The request is sent with it, so the attempt counts as sent from here on.
        """
        self._attempt.sent = True
        self._connection = connection
        self._recording = recording
        if self._streamed is not None and recording is None:
            self._streamed.attach(connection)
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
        if status < 300 and "content-encoding" in headers:  # an error body is decompressed when it is complete
            self._set_coding(headers["content-encoding"])

    def _set_coding(self, coding: str) -> None:
        connection = self._connection
        if can_decompress(coding) and connection is not None:
            paused = self._watchdog.paused != 0
            decompressing = DecompressingReceiver(coding, self._call, self, connection, paused=paused)
            (self._recording or connection).redirect(decompressing)
            self._connection = decompressing
            if self._streamed is not None:
                self._streamed.detach()  # the HTTP chunks are compressed
        elif is_compressed(coding):
            self._fail(
                from_transport("upstream_bad_response", f"the answer is encoded as {coding}, which was not requested")
            )

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """Take a piece of the body. `last`: the end of the body is in the same read."""
        if self._phase == "over":
            return
        if self._status >= 300:
            self._error_body += data[: MAX_ERROR_BODY - len(self._error_body)]
            return
        self._body_size += len(data)
        if self._body_size > self._max_size:
            self._fail_too_large(f"{self._max_size} bytes")
            return
        if self._whole is not None:
            if self._whole.hold(data, last=last):
                return
            self._read_kept()
            if self.over:
                return
        events, streamed = self._reader.feed(data), self._streamed
        if streamed is None:
            self._on_read(events, last=last)
            return
        streamed.body_ends = last
        if events and streamed.may_forward(last=last):
            if self._note(events, set(map(type, events))):
                streamed.forward(events, data)
            if not last and streamed.ending_begun:
                self._withheld = self._reader.withheld  # it came with text, which is counted as progress
                self.note_withheld()
        else:
            self._on_read(events, last=last)
        if self._phase == "streaming" and not last:
            streamed.bypass_parser()

    def _fail_too_large(self, limit: str) -> None:
        self._fail(from_transport(TOO_LARGE, f"the answer has more than {limit}"))

    def _read_kept(self) -> None:
        """Let the reader have the pieces of an unstreamed body that are held, and all later ones at once."""
        for data in self._whole.take_kept() if self._whole is not None else ():
            if not self.over:
                self._on_read(self._reader.feed(data), last=False)

    def on_end(self) -> None:
        """Handle the end of the body. The reader checks whether the answer in it is complete.

        The body has ended by its HTTP framing, or with its connection if it has no framing. After `[DONE]` the watchdog
        calls this if the end does not arrive soon.
        """
        if self._phase == "over":
            return
        if self._status >= 300:
            self._fail(from_answer(self._attempt, self._headers, self._error_body))
            return
        # `on_text` needs the events.
        forwarded = self._call.on_text is None and (
            self._forward_whole(self._whole) if self._whole is not None else self._forward_ending()
        )
        if not forwarded:
            self._read_kept()
            if not self.over:
                self._on_events(self._reader.close())

    def _forward_whole(self, whole: WholeAnswer) -> bool:
        """Forward an unstreamed answer as it came if it is healthy, unless a limit is reached. Return whether that was
        done."""
        plain, attempt = whole.plain_body(), self._attempt
        if plain is None or self._control.refusal_fails or attempt.output_chars + plain.chars >= self._control.check_at:
            return False
        attempt.note_whole(plain)
        body = whole.forward(plain)
        self.commit()
        self._finish("completed")
        attempt.frames = 1
        whole.end(body)
        return True

    def _forward_ending(self) -> bool:
        """Forward the usual ending of a stream as it came. Return whether that was done."""
        ending = self._streamed.usual_ending() if self._streamed is not None else None
        if ending is None or self._phase != "streaming":
            return False
        data = self._writer.forward(ending)
        if not data:
            return False
        self._watchdog.advance()
        attempt = self._attempt
        attempt.finishes.append(ending.finish_reason)
        attempt.tokens = ending.tokens
        if ending.tier is not None:
            attempt.report_tier(ending.tier)
        self._finish("completed")
        self._client.end(data)
        return True

    def on_error(self, error: UpstreamError) -> None:
        """Handle a connection that failed before the body was complete. The answer may be complete all the same."""
        if isinstance(error, ReceiverError):
            self.on_exception(error.__cause__ or error)
            return
        self._read_kept()
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
                self._on_events(events)
                return
            usage = reported_usage(events)
            self._deliver_rest(events)
        self._fail(failure, ending, usage)

    def _deliver_rest(self, events: list[Event]) -> None:
        """Write what waited for the end of an event, if the client gets an answer already."""
        read = takewhile(lambda event: type(event) is not Fault, events)
        rest = [event for event in read if type(event) not in _OF_THE_END]
        if rest and self._phase == "streaming":
            self._on_events(rest)
        else:
            self._call.progress.watch(rest)

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
        self.broken_answers = None
        self._client = DisconnectedClient(stream=self._client.stream)
        if (answer := self._streamed or self._whole) is not None:
            answer.client = self._client
        self._call.strict = False  # without a client there is no answer to refuse
        watchdog = self._watchdog
        watchdog.deadline = min(watchdog.deadline, self._loop.time() + self._timeouts.drain_s)
        if self._streamed is not None:
            self._streamed.detach()
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
        self._attempt.output_chars -= self._unwritten_chars
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
    def output_chars(self) -> int:
        """How many characters have come so far."""
        return self._attempt.output_chars

    @property
    def committed(self) -> bool:
        """Whether the client gets an answer: it is past its commit point, and has not ended."""
        return self._phase == "streaming"

    def time_out(self, failure: Failure) -> None:
        """End the attempt: a timeout has passed."""
        if self._phase == "streaming" and (rest := self._reader.release()):
            self._on_events(rest)
        self._fail(failure, ending="timed_out")

    def on_exception(self, error: BaseException) -> None:
        """End the call after an exception of ours: in this relay, or in what it calls."""
        self._call.fail(error)

    def send_heartbeat(self) -> None:
        """Send the client a comment, so that no proxy closes the idle connection."""
        self._client.begin()
        self._client.write(self._writer.heartbeat())
        self._call.progress.heartbeats += 1
        if self._streamed is not None:
            self._streamed.use_parser()

    # Events.

    def _on_read(self, events: list[Event], *, last: bool) -> None:
        """Handle what the reader has made of a read; `last`: `on_end` follows at once."""
        if events:
            self._on_events(events)
        elif not last or not self._reader.done:
            self.note_withheld()
            return
        if self._reader.done and not last and self._phase != "over":
            self._watchdog.arm()  # a shorter timeout applies after `[DONE]`

    def note_withheld(self) -> None:
        """Count frames as progress whose events the reader returns later: those of the ending, and what it holds."""
        reader = self._reader
        if reader.withheld > self._withheld:
            self._withheld = reader.withheld
            self._watchdog.advance()
            if self._streamed is None or not self._streamed.has_fast_path:
                self._watchdog.note_sent(b"")
        if reader.done and self._phase != "over":
            self._watchdog.arm()

    def _on_events(self, events: list[Event]) -> None:
        """Handle events that are written for the client."""
        kinds = set(map(type, events))
        if Fault in kinds:  # ignore events after it: whether they are in the same read is chance
            events = events[: next(place for place, event in enumerate(events) if type(event) is Fault) + 1]
            kinds = set(map(type, events))
        if not self._note(events, kinds):
            return
        if Repair in kinds:  # noted above; no writer shows it to a client
            events = [event for event in events if type(event) is not Repair]
        if UsageReport in kinds:  # the ledger has the report as it was sent
            events = with_correct_usage(events)
        last = events[-1] if events else None
        if isinstance(last, Fault):
            self._deliver(events[:-1])
            self._fail(from_fault(last))
        elif isinstance(last, End):
            self._end(events, last)
        else:
            self._deliver(events)

    def _note(self, events: list[Event], kinds: set[type[Event]]) -> bool:
        """Note what watchdog, ledger, limits and the operator must know of events before they are passed on. False if a
        limit is reached, and the attempt has ended."""
        if kinds == {Repair}:
            self.note_withheld()
        elif self._watchdog.seen_event:
            self._watchdog.advance()
        else:
            self._watchdog.first_event()
        if not kinds.isdisjoint(NOTED):
            self._call.progress.watch(events)
        if not kinds.isdisjoint(TEXT_EVENTS):
            size = self._count_text(events)
            if End in kinds:  # the answer is complete, and the provider bills it
                self._attempt.output_chars += size
            elif not self.may_deliver(size):
                return False
        if self._call.on_text is not None:
            self._call.on_text(events)
        return True

    def may_deliver(self, size: int) -> bool:
        """Count text that is not written yet. False if the budget has no room for it: the attempt has ended."""
        attempt, control = self._attempt, self._control
        attempt.output_chars += size
        if attempt.output_chars < control.check_at:
            return True
        self._unwritten_chars = size
        control.check()
        self._unwritten_chars = 0
        if attempt.output_chars >= MAX_CHARS:
            self._loop.call_soon(self._call.guarded(self._fail_too_large), f"{MAX_CHARS} characters")
        self._count_text = control.count_text
        if self._streamed is not None:
            self._streamed.use_parser()
        return self._phase != "over"

    def _deliver(self, events: list[Event]) -> None:
        answer = self._streamed or self._whole
        if answer is not None and (lost := answer.write(events)) is not None:
            self._fail(lost)

    def _end(self, events: list[Event], end: End) -> None:
        """Handle the end of the provider's stream."""
        if end.ending != "completed":
            message = f"the provider's stream ended before the answer was complete: {end.detail}"
            failure = from_transport("upstream_truncated", message)
            # Without the finishes: a client that stops at a finish reason would regard the answer as complete.
            unsent = _OF_THE_END if self._step(failure, "truncated") != "fail" else {Finish}
            self._deliver([event for event in events[:-1] if type(event) not in unsent])
            self._fail(failure, ending="truncated")
            return
        if self._control.refusal_fails and self._phase == "waiting" and is_refusal(self._attempt.finishes):
            self._fail(Failure(code=REFUSED, message="the model refused to answer"))
            return
        answer = self._streamed or self._whole
        assert answer is not None
        data = answer.finish(events)
        if isinstance(data, Failure):
            self._fail(data)
            return
        self.commit()
        self._finish("completed")
        answer.end(data)

    def commit(self) -> None:
        """The answer has reached its commit point, unless it had before."""
        if self._phase != "waiting":
            return
        self._phase = "streaming"
        now = self._loop.time()
        if self._call.progress.commit_s is None:  # else another target goes on with an answer
            self._call.progress.commit_s = now - self._call.started
        self._attempt.commit_s = now - self._watchdog.started
        if self._client.stream:
            self._client.begin()
        self._report(Committed())

    def _fail(self, failure: Failure, ending: Ending = "failed", reported: Usage | None = None) -> None:
        """End the attempt. `reported` is the usage, if the reader is closed already."""
        self._read_kept()
        if self._phase == "over":
            return
        committed, progress = self._phase == "streaming", self._call.progress
        failure = redacted(failure, self._attempt.secrets)
        step = self._step(failure, ending)
        unstreamed = self._body_size > 0 and is_unstreamed(self._headers)
        try:
            book_failure(self._attempt, failure, ending, reported or self._reader, unstreamed=unstreamed)
        finally:  # whatever the reader raises, the attempt ends
            self._finish(ending)
        if step != "fail":
            progress.ending = None if step == "go on" else "completed"
            self._report(Failed(failure, committed, goes_on=step == "go on"))
            if step == "end turn":
                self._client.end(self._writer.write([Finish(0, "tool_calls"), End("completed")]))
            return
        if committed and not progress.code:
            progress.code, progress.error = failure.code, sentence(failure)
        self._report(Failed(failure, committed))
        if committed:
            self._client.end(self._writer.fail(failure))

    def _step(self, failure: Failure, ending: Ending) -> Literal["fail", "go on", "end turn"]:
        """What becomes of the answer after this failure."""
        if self.broken_answers is None or self._phase != "streaming":
            return "fail"
        return self.broken_answers.step(failure, ending)

    def _finish(self, ending: Ending) -> None:
        committed = self._phase == "streaming"
        self._phase = "over"
        attempt = self._attempt
        attempt.seconds = self._loop.time() - self._watchdog.started
        attempt.ending = ending
        self._watchdog.stop()
        self._control.release()
        connection, self._connection = self._connection, None
        if self._streamed is not None:
            self._streamed.detach()
        self._streamed = self._whole = None  # the first refers to this object: break the cycle
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
