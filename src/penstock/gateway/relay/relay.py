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

Reading resumes when no bit is left. While it is paused only the total timeout runs.

**Disconnects.** A client that disconnects ends the attempt. With the provider setting `abort = "drain"` the relay reads
the rest of the answer without a client (`drain`), because the provider bills for it and reports the usage at its end.

**Fast path.** The relay owns a `Watchdog`, which enforces the timeouts. It also has a `PassThrough` if the client and
the provider use the same dialect and nothing rewrites the stream. Then healthy bytes are forwarded as they came, in one
of two ways:

1. The reader parses the bytes, and the relay forwards them instead of what the writer would make of them
   (`PassThrough.forwardable`).
2. While the bytes arrive in whole HTTP chunks, they skip the HTTP parser and the reader, too: first the usual opening
   (`_take_opening`) and the first text (`_on_first_chunk`), then text (`_on_text_chunk`), then the usual trailer
   (`_on_trailer_chunk`). A chunk that does not match goes to the HTTP parser, whose state is still right because it is
   between two chunks.

`core/fast/passthrough.py` explains why this is correct.
"""

import asyncio
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Literal

from penstock.core.fast.format import DeltaTemplate, StreamTrailer
from penstock.core.fast.passthrough import PassThrough
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
    Start,
    TextDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.failure import Failure
from penstock.core.hub.losses import changes_meaning
from penstock.core.hub.usage import Usage
from penstock.core.stream import MAX_BODY, EventReader, StreamReader, StreamWriter
from penstock.error_codes import TRUNCATION_CODES, ErrorCode
from penstock.gateway.calls.call import NOTED, Call
from penstock.gateway.calls.error_body import MAX_ERROR_BODY
from penstock.gateway.calls.failure import (
    BAD_FINISH,
    TRANSLATION_LOSS,
    from_answer_losses,
    from_fault,
    from_status,
    from_transport,
    redacted,
    sentence,
)
from penstock.gateway.relay.control import MAX_CHARS
from penstock.gateway.relay.decompression import Decompressor, can_decompress, is_compressed
from penstock.gateway.relay.event_gaps import BOUNDS
from penstock.gateway.relay.ports import AttemptTimeouts, Client, Connection, DisconnectedClient
from penstock.gateway.relay.recording import RecordingReceiver
from penstock.gateway.relay.transcript import TEXT_EVENTS
from penstock.gateway.relay.watchdog import Watchdog
from penstock.http.upstream_connection import LONGEST_READ, ReceiverError, UpstreamError

_CONTENT = frozenset((TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart, MediaDelta))
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
    # Whether body bytes must not go to the reader directly: the body is an error or compressed, or the attempt is over.
    _bypass_reader = False
    _error_body = b""
    _decompressor: Decompressor | None = None
    # Decompresses the bytes that have arrived, one piece at a time as it is iterated; None if no bytes wait. The end or
    # the failure of the body is handled after the last piece.
    _decompression: Iterator[bytes] | None = None
    _after_decompression: Callable[[], None] | None = None
    _decompress_handle: asyncio.Handle | None = None
    _connection: Connection | None = None
    _recording: RecordingReceiver | None = None
    _forwards_end = False  # whether the last message, with the finish and the usage, was forwarded as it came
    _pending = 0  # frames of the trailer so far; they are progress, though their events come at the end only
    _undelivered = 0  # characters that are counted while the budget is checked, and not yet written to the client
    _frames = _unframed = 0  # of a compressed answer: its frames so far, and the decompressed bytes since the last one
    _body_size = 0  # of the answer, in bytes, without those that took the fast path
    _answer: Accumulator | None = None
    # On the fast path: reads the payload of a chunk, and writes a framed chunk to the client.
    _feed: Callable[[bytes], int]
    _write_chunk: Callable[[bytes], None]
    # Called once, after the answer was drained without its client.
    _on_drained: Callable[[], None] | None = None

    def __init__(
        self,
        call: Call,
        client: Client,
        reader: EventReader,
        writer: StreamWriter,
        timeouts: AttemptTimeouts,
        on_outcome: Callable[[Failure | None], None],
    ) -> None:
        """The relay calls `on_outcome` with None when it commits the answer, or with a failure if the gateway may try
        the next target. After the commit it calls it once more when the answer ends: with None if the answer is
        complete, else with the failure."""
        attempt, control = call.attempts[-1], call.control
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
        self._passthrough = _passthrough(reader, writer)
        self._max_size = _MAX_STREAM if client.stream else timeouts.max_body
        if not client.stream:
            self._answer = Accumulator()
        self._on_outcome = on_outcome

    def attach(self, connection: Connection, recording: RecordingReceiver | None = None) -> None:
        """Set the connection that the answer arrives on, and the recording receiver in front of the relay, if any.

        The caller sends the request next, so the attempt counts as sent from here on.
        """
        self._attempt.sent = True
        self._connection = connection
        self._recording = recording
        if self._watchdog.paused:
            connection.pause()
        self._watchdog.start()

    # Called by the upstream connection.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head of the provider's response."""
        self._status = self._attempt.status = status
        self._watchdog.seen_head = True
        self._headers = headers
        if status >= 300:
            self._bypass_reader = True  # an error body is decompressed when it is complete
        elif "content-encoding" in headers:
            self._set_coding(headers["content-encoding"])

    def _set_coding(self, coding: str) -> None:
        if can_decompress(coding):
            self._bypass_reader = True
            self._decompressor = Decompressor(coding)
        elif is_compressed(coding):
            self._fail(
                from_transport("upstream_bad_response", f"the answer is encoded as {coding}, which was not requested")
            )

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """Take a piece of the body. `last`: the end of the body is in the same read."""
        if self._bypass_reader:
            self._on_bypassed(data)
            return
        if not self._fits(data):
            return
        fast = self._passthrough
        if fast is not None and not self._watchdog.seen_event and self._take_opening(fast):
            return
        if last and fast is not None and fast.trailer is not None and (ended := fast.feed_trailer(data)) is not None:
            if not ended.done:
                self._check_pending()
            return  # `on_end` follows at once
        events = self._reader.feed(data)
        if last and fast is not None and fast.finishes:
            fast.forwardable = self._forwards_end = True
        if fast is None or not fast.forwardable:
            self._on_events(events, last=last)
            if fast is not None and fast.agreed is None and self._phase == "streaming" and self._writer.compare(fast):
                self._skip_parser(fast)
        elif self._phase == "streaming":
            self._watchdog.advance()
            if not self._may_deliver(self._count_text(events)):
                return
            self._client.write(data)
            self._writer.follow(fast, events)
            if self._call.on_text is not None:
                self._call.on_text(events)
            self._skip_parser(fast)
        else:
            self._on_new_events(events, data)
            self._skip_parser(fast)

    def _fits(self, data: bytes) -> bool:
        """Whether the answer with this piece is within the size limit. If not, the attempt fails."""
        self._body_size += len(data)
        if self._body_size > self._max_size:
            self._fail_size(f"{self._max_size} bytes")
            return False
        return True

    def _may_hold_event(self, piece: bytes) -> bool:
        """Whether the decompressed bytes since the last event may be one. If not, the attempt fails.

        A few kilobytes decompress to gigabytes of blank lines or comments, which take minutes to read.
        """
        frames = self._reader.frames
        self._unframed = self._unframed + len(piece) if frames == self._frames else len(piece)
        self._frames = frames
        if self._unframed > MAX_BODY:
            self._fail_size(f"{MAX_BODY} bytes without an event")
            return False
        return True

    def _fail_size(self, limit: str) -> None:
        self._fail(from_transport(_TOO_LARGE, f"the answer has more than {limit}"))

    def on_end(self) -> None:
        """Handle the end of the body. The reader checks whether the answer in it is complete.

        The body has ended by its HTTP framing, or with its connection if it has no framing. After `[DONE]` the watchdog
        calls this if the end does not arrive soon.
        """
        if self._phase == "over":
            return
        if self._decompression is not None:
            self._connection = None  # the pool may use it for another call already
            self._after_decompression = self.on_end
            return
        if self._status >= 300:
            self._fail(from_status(self._status, self._headers, self._error_body, self._attempt.dialect))
        elif not self._forward_trailer():
            self._on_new_events(self._reader.close())

    def on_error(self, error: UpstreamError) -> None:
        """Handle a connection that failed before the body was complete. The answer may be complete all the same."""
        if isinstance(error, ReceiverError):
            self.on_exception(error.__cause__ or error)
            return
        if self._phase == "over":
            return
        if self._decompression is not None:
            self._connection = None
            self._after_decompression = partial(self.on_error, error)
            return
        if self._status and self._status < 300:
            events = self._reader.close()
            last = events[-1]
            if isinstance(last, End) and last.ending == "completed":
                self._on_new_events(events)
                return
            self._call.watch(events)
        if self._status >= 300:
            self._fail(from_status(self._status, self._headers, self._error_body, self._attempt.dialect))
            return
        ending: Ending = "truncated" if error.code in TRUNCATION_CODES else "failed"
        self._fail(from_transport(error.code, error.message), ending=ending)

    # The fast path.

    def _aligned_chunks(self, fast: PassThrough) -> Sequence[bytes]:
        """The payloads of the HTTP chunks of this read if the next chunks may skip the HTTP parser, else nothing."""
        connection = self._connection
        if (
            connection is None
            or self._recording is not None
            or self._answer is not None
            or self._call.on_text is not None
        ):
            return ()
        return connection.aligned_chunks if fast.max_event >= LONGEST_READ else ()

    def _take_opening(self, fast: PassThrough) -> bool:
        """Take the usual opening, and the first text after it if it has come: each in an HTTP chunk of its own."""
        chunks = self._aligned_chunks(fast)
        if not chunks or self._control.transcript is not None or fast.format.repeated is not None:
            return False
        first, text = (chunks[0], b"") if len(chunks) == 1 else (b"".join(chunks[:-1]), chunks[-1])
        opening = fast.feed_opening(first, text)
        if opening is None:
            return False
        if not opening.chars:
            first, text = opening.raw, b""
        self._watchdog.first_event()
        attempt, start = self._attempt, opening.events[0]
        assert isinstance(start, Start)
        attempt.response_id, attempt.response_model = start.id, start.model
        if opening.tier is not None:
            attempt.report_tier(opening.tier)
        self._writer.note(opening.events)
        self._uncommitted = first
        if text:
            self._commit_text(fast, text, opening.chars)
        elif self._connection is not None:
            self._connection.on_chunk = self._on_first_chunk
        return True

    def _skip_parser(self, fast: PassThrough) -> None:
        """The last read was healthy text: let the next HTTP chunks skip the parser if possible."""
        connection = self._connection
        if connection is None or fast.template is None or not self._aligned_chunks(fast):
            return
        if self._phase == "waiting":
            connection.on_chunk = self._on_first_chunk
        else:
            self._forward_chunks(fast)

    def _forward_chunks(self, fast: PassThrough) -> None:
        """Forward chunks of text with their HTTP framing, if the client's connection can take them."""
        write, connection, template = self._client.chunk_writer(), self._connection, fast.template
        if write is None or connection is None or template is None:
            return
        self._keep_text(fast, template)
        self._feed = fast.feed_text
        self._write_chunk = write
        connection.on_chunk = self._on_text_chunk

    def _keep_text(self, fast: PassThrough, template: DeltaTemplate) -> None:
        """Let the pass-through write text into the transcript, if there is one, and into a writer that follows it."""
        transcript = self._control.transcript
        fast.on_text = len if transcript is None else transcript.writer(template.make_event(""))
        if fast.format.repeated is not None and (follow := self._writer.text_follower(fast)) is not None:
            fast.on_text = follow if transcript is None else partial(_call_both, follow, fast.on_text)

    def _on_first_chunk(self, payload: bytes, _raw: bytes) -> bool:
        """Take the first text and commit the answer. False if the chunk does not match the template."""
        fast = self._passthrough
        if fast is None or fast.template is None or self._call.on_text is not None:
            return False
        if self._control.transcript is not None:
            self._keep_text(fast, fast.template)
        chars = fast.feed(payload)
        if not chars:
            return False
        self._watchdog.advance()
        self._commit_text(fast, payload, chars)
        return True

    def _commit_text(self, fast: PassThrough, text: bytes, chars: int) -> None:
        """Commit the answer: send the buffered opening together with the first text, which has `chars` characters."""
        self._commit()
        self._client.write(self._uncommitted + text)
        self._uncommitted = b""
        self._forward_chunks(fast)
        self._count(chars)

    def _on_text_chunk(self, payload: bytes, raw: bytes) -> bool:
        """Forward more text. False if the chunk does not match the template.

        Nearly every event takes this path, so `Watchdog.advance` and `_count` are inlined.
        """
        if self._call.on_text is not None:
            return False  # the slow path passes the events to `on_text`
        chars = self._feed(payload)
        if not chars:
            return self._on_trailer_chunk(payload, raw)
        watchdog = self._watchdog
        now = watchdog.loop.time()
        gap = now - watchdog.last_event_at
        watchdog.last_event_at = now
        gaps = watchdog.gaps
        gaps.counts[bisect_left(BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - watchdog.started)
        attempt = self._attempt
        if attempt.output_chars + chars < self._control.check_at:
            attempt.output_chars += chars
        elif not self._may_deliver(chars):
            return True
        self._write_chunk(raw)
        return True

    def _on_trailer_chunk(self, payload: bytes, _raw: bytes) -> bool:
        """Take the usual trailer after the text, or a part of it."""
        fast, connection = self._passthrough, self._connection
        trailer = fast.feed_trailer(payload) if fast is not None else None
        if trailer is None or connection is None:
            return False
        # No text may follow. `[DONE]` after the usage comes with the end of the body, which only the parser recognises.
        connection.on_chunk = self._on_trailer_chunk if trailer.tokens is None else None
        self._pending = trailer.frames
        self._watchdog.advance()
        if trailer.done and self._phase != "over":
            self._watchdog.arm()  # a shorter timeout applies after `[DONE]`
        return True

    def _trailer(self) -> StreamTrailer | None:
        """The usual trailer, if it is complete and may be forwarded."""
        trailer = self._passthrough.trailer if self._passthrough is not None else None
        return trailer if trailer is not None and trailer.done else None

    def _forward_trailer(self) -> bool:
        """Forward the usual trailer as it came, unless `on_text` needs its events. Return whether that was done."""
        trailer, attempt = self._trailer(), self._attempt
        if trailer is None or self._phase != "streaming" or self._call.on_text is not None:
            return False
        data = self._writer.forward(trailer)
        if not data:
            return False
        self._watchdog.advance()
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
        if self._decompression is not None:
            self._decompress_soon()
        elif self._connection is not None:
            self._connection.resume()
        if self._connection is not None:
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
        if self._connection is not None:
            self._connection.on_chunk = None
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

    def time_out(self, failure: Failure) -> None:
        """End the attempt: a timeout has passed."""
        self._fail(failure, ending="timed_out")

    def on_exception(self, error: BaseException) -> None:
        """End the call after an exception of ours: in this relay, or in what it calls."""
        self._call.fail(error)

    def send_heartbeat(self) -> None:
        """Send the client a comment, so that no proxy closes the idle connection."""
        self._client.begin()
        self._client.write(self._writer.heartbeat())
        self._call.heartbeats += 1
        fast = self._passthrough
        if fast is not None and fast.format.repeated is not None:
            fast.agreed = False  # the heartbeat has a number, so those of the provider are no longer right
            if self._connection is not None:
                self._connection.on_chunk = None

    # Events.

    def _on_events(self, events: list[Event], *, last: bool) -> None:
        if events:
            self._on_new_events(events)
        elif not last or not self._reader.done:  # else `on_end` follows at once
            self._check_pending()
            return
        if self._reader.done and not last and self._phase != "over":
            self._watchdog.arm()  # a shorter timeout applies after `[DONE]`

    def _check_pending(self) -> None:
        """Count frames of the trailer as progress. The reader returns their events only at the end."""
        reader = self._reader
        if reader.pending > self._pending:
            self._pending = reader.pending
            self._watchdog.advance()
        if reader.done and self._phase != "over":
            self._watchdog.arm()

    def _on_new_events(self, events: list[Event], data: bytes = b"") -> None:
        """Handle new events. `data` is their original bytes, if those may be forwarded."""
        kinds = set(map(type, events))
        if Fault in kinds:  # ignore events after it: whether they are in the same read is chance
            events = events[: next(place for place, event in enumerate(events) if type(event) is Fault) + 1]
            kinds = set(map(type, events))
        if kinds != {Repair}:
            if self._watchdog.seen_event:
                self._watchdog.advance()
            else:
                self._watchdog.first_event()
        if not kinds.isdisjoint(NOTED):
            self._call.watch(events)
        last = events[-1]
        if not kinds.isdisjoint(TEXT_EVENTS):
            size = self._count_text(events)
            if isinstance(last, End):  # the answer is complete, and the provider bills it
                self._attempt.output_chars += size
            elif not self._may_deliver(size):
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
            self._release(events, data)

    def _may_deliver(self, size: int) -> bool:
        """Count text that is not written yet. False if the budget has no room for it: the attempt has ended."""
        self._undelivered = size
        self._count(size)
        self._undelivered = 0
        return self._phase != "over"

    def _count(self, size: int) -> None:
        """Add to the output's characters. At `check_at` the control's check is due, which may end the attempt."""
        attempt, control = self._attempt, self._control
        attempt.output_chars += size
        if attempt.output_chars >= control.check_at:
            control.check()
            if attempt.output_chars >= MAX_CHARS:
                self._loop.call_soon(self._call.guarded(self._fail_size), f"{MAX_CHARS} characters")
            self._count_text = control.count_text
            if self._connection is not None:
                self._connection.on_chunk = None

    def _release(self, events: list[Event], data: bytes = b"") -> None:
        """Write events to the client. Before the commit point they are buffered."""
        if self._answer is not None:
            self._answer.extend(self._writer.passed_on(events))
            return
        usual = bool(data)
        if usual:
            self._writer.note(events)
        else:
            data = self._writer.write(events)
            if self._passthrough is None:  # on the fast path every event has something
                self._watchdog.note_sent(data)
        if self._writer.losses and (lost := self._note_losses()) is not None:
            if self._phase == "streaming":
                self._client.write(data)  # the part that the client's dialect can express
            self._fail(lost)
            return
        if self._phase == "waiting":
            self._uncommitted += data
            if len(self._uncommitted) <= _MAX_UNCOMMITTED and not _is_content(events, usual=usual):
                return
            data, self._uncommitted = self._uncommitted, b""
            self._commit()
        self._client.write(data)

    def _end(self, events: list[Event], end: End) -> None:
        """Handle the end of the provider's stream."""
        if end.ending != "completed":
            message = f"the provider's stream ended before the answer was complete: {end.detail}"
            # Without the finishes: a client that stops at a finish reason would regard the answer as complete.
            self._release([event for event in events[:-1] if type(event) is not Finish])
            self._fail(from_transport("upstream_truncated", message), ending="truncated")
            return
        if self._answer is None:
            data = b"" if self._forwards_end else self._uncommitted + self._writer.write_end(self._trailer(), events)
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
        self._call.note_losses(losses)
        return from_answer_losses(losses) if self._call.strict and changes_meaning(losses) else None

    def _commit(self) -> None:
        if self._phase != "waiting":
            return
        self._phase = "streaming"
        now = self._loop.time()
        self._call.commit_s = now - self._call.started
        self._attempt.commit_s = now - self._watchdog.started
        if self._client.stream:
            self._client.begin()
        self._on_outcome(None)

    def _fail(self, failure: Failure, ending: Ending = "failed") -> None:
        if self._phase == "over":
            return
        committed = self._phase == "streaming"
        failure = redacted(failure, self._attempt.secrets)
        self._attempt.code = failure.code
        self._attempt.answered = self._is_answered(failure, ending)
        # What a provider reports before it fails of its own accord is not its bill, unless it has generated something.
        counts = self._attempt.output_chars or ending != "failed" or failure.code == BAD_FINISH
        try:
            if counts and (usage := self._reported_usage()) is not None:
                self._attempt.usage = usage
                self._attempt.report_tier(usage.tier)
        finally:  # whatever the reader raises, the attempt ends
            self._finish(ending)
        if committed:
            if not self._call.code:
                self._call.code, self._call.error = failure.code, sentence(failure)
            self._on_outcome(failure)
            self._client.end(self._writer.fail(failure))
        else:
            self._on_outcome(failure)

    def _reported_usage(self) -> Usage | None:
        """The usage that the provider reported before the failure."""
        failed = self._reader.failed
        if failed is not None:
            return failed.usage.with_total() if failed.usage is not None else None
        return next((event.usage for event in self._reader.close() if type(event) is UsageReport), None)

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
        if connection is not None:
            connection.abandon(self if self._recording is None else self._recording)
        if self._recording is not None:
            self._recording.stop(ending)
        failed = self._reader.failed
        attempt.frames = self._reader.frames if failed is None else failed.frames
        if committed:
            self._call.ending = self._call.ending or ending
            if ending == "completed":
                self._on_outcome(None)
        if self._on_drained is not None:
            self._loop.call_soon(self._on_drained)  # after the caller has set the ending
            self._on_drained = None

    def _on_bypassed(self, data: bytes) -> None:
        """Take a piece of an error body or a compressed body."""
        if self._phase == "over":
            return
        if self._status >= 300:
            self._error_body += data[: MAX_ERROR_BODY - len(self._error_body)]
        else:
            self._on_encoded(data)

    def _on_encoded(self, data: bytes) -> None:
        """Take a piece of a compressed body, which was not requested.

        It is decompressed in small steps. So a decompression bomb neither fills the memory nor blocks the event loop.
        """
        assert self._decompressor is not None
        pieces = self._decompressor.pieces(data)
        if self._decompression is None:
            self._decompression = pieces
            self._decompress_next()
        else:
            self._decompression = chain(self._decompression, pieces)

    def _decompress_soon(self) -> None:
        if self._decompress_handle is None:
            self._decompress_handle = self._loop.call_soon(self._call.guarded(self._decompress_next))

    def _decompress_next(self) -> None:
        """Decompress and read the next piece. The rest follows after the loop has served other calls, and not while the
        attempt is paused. Meanwhile nothing more is read from the provider."""
        self._decompress_handle = None
        if self._decompression is None or self._watchdog.paused:
            return
        piece = b""
        try:
            piece = next(self._decompression, b"") if self._phase != "over" else b""
            if piece and self._fits(piece) and self._may_hold_event(piece):
                self._on_events(self._reader.feed(piece), last=False)
        except zlib.error as error:
            self._fail(from_transport("upstream_bad_response", f"the answer cannot be decompressed: {error}"))
        if piece and self._phase != "over":
            if self._connection is not None:
                self._connection.pause()
            self._decompress_soon()
            return
        self._decompression = None
        if self._connection is not None and not self._watchdog.paused:
            self._connection.resume()
        then, self._after_decompression = self._after_decompression, None
        if then is not None:
            then()


def _passthrough(reader: EventReader, writer: StreamWriter) -> PassThrough | None:
    """The fast path, if client and provider use the same dialect and nothing rewrites or accumulates the events.

    What a writer overrides is in the first events of an answer, and in the last ones, or in every message. In dialects
    that repeat the text, the writer always writes the first and the last ones.
    """
    if not isinstance(reader, StreamReader) or reader.dialect != writer.dialect or writer.reframes:
        return None
    fast = reader.passthrough
    if fast is None or fast.format.repeated is not None:
        return fast
    return None if writer.rewrites else fast


def _with_correct_usage(events: list[Event]) -> list[Event]:
    """The events, without counts of a usage report that cannot be true. The reader has emitted repairs for them."""
    correct: list[Event] = []
    for event in events:
        if not isinstance(event, UsageReport):
            correct.append(event)
        elif (usage := event.usage.corrected()) is not None:
            correct.append(event if usage is event.usage else UsageReport(usage))
    return correct


def _call_both(first: Callable[[str], int], second: Callable[[str], int], text: str) -> int:
    first(text)
    return second(text)


def _is_content(events: list[Event], *, usual: bool) -> bool:
    """Whether these events have content. Those of a forwardable read (`usual`) cannot have audio or images."""
    return not _CONTENT.isdisjoint(map(type, events)) or (not usual and any(map(_has_media, events)))


def _has_media(event: Event) -> bool:
    return (
        isinstance(event, Extra)
        and event.place == "delta"
        and any(part and isinstance(part, _MEDIA_TYPES) for part in event.fields.values())
    )
