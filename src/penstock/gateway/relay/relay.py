"""Relay: one attempt, from the head of the provider's answer to the last byte for the client.

No task, no queue and no `await` stand between the two sockets: the upstream's bytes are read, checked and written to
the client in one call. Three phases:

- **waiting**: nothing that the model said has been released. A failure here is an outcome: the next target is tried.
- **streaming**: from the commit point on, the first event that carries content. A failure here becomes one error frame
  and a clean end of the body, with no `[DONE]`.
- **over**.

A client that leaves ends it; unless its provider is to be heard out for the bill: then it goes on without one.

An unstreamed answer is never committed before it is whole: it is a fold over the same events.

The relay owns a `Watchdog`, which enforces the time-outs, and, where client and provider speak the same dialect and
nothing rewrites the stream, a `PassThrough`. With it, healthy bytes are forwarded as they came: after the reader has
read them (`PassThrough.forwardable`), or, while they come in whole HTTP chunks, without the HTTP parser and the reader:
first the usual opening (`_take_opening`) and the first text (`_on_first_chunk`), then text (`_on_text_chunk`), then the
usual ending (`_on_trailer_chunk`). Every other chunk goes to the parser, which stands where it stood. Why that is
correct: `core/passthrough.py`.
"""

import asyncio
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Literal

from penstock.core.completion import Accumulator
from penstock.core.events import (
    End,
    Ending,
    Event,
    Extra,
    Fault,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    TextDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.failure import Failure
from penstock.core.losses import changes_meaning
from penstock.core.passthrough import PassThrough
from penstock.core.passthrough_format import DeltaTemplate, StreamTrailer
from penstock.core.stream import EventReader, StreamReader, StreamWriter
from penstock.core.usage import Usage
from penstock.error_codes import ErrorCode
from penstock.gateway.calls.call import NOTED, Call
from penstock.gateway.calls.error_body import MAX_ERROR_BODY
from penstock.gateway.calls.failure import (
    TRANSLATION_LOSS,
    from_answer_losses,
    from_fault,
    from_status,
    from_transport,
    redacted,
)
from penstock.gateway.relay.decompression import Decompressor, can_unpack, is_packed
from penstock.gateway.relay.event_gaps import BOUNDS
from penstock.gateway.relay.ports import AttemptTimeouts, Client, Connection, DisconnectedClient
from penstock.gateway.relay.recording import RecordingReceiver
from penstock.gateway.relay.transcript import SPOKEN
from penstock.gateway.relay.watchdog import Watchdog
from penstock.http.client import LONGEST_READ, UpstreamError

_CONTENT = frozenset((TextDelta, ReasoningDelta, RefusalDelta, ToolCallStart))
# What a delta may hold that has no event of its own, but is what the model says: sound, pictures.
_PARTS = (dict, list)
# How a connection breaks off in the middle of an answer.
_CUTS = frozenset(("upstream_truncated", "upstream_reset", "upstream_stale"))
_TOO_LARGE: ErrorCode = "upstream_event_too_large"
# What comes before the first content: a role, some extras. More bytes than this are an answer without content.
_MAX_HELD = 65_536
# Why the provider has to wait: a slow client, or a budget that is being extended. Bits of one number.
_CLIENT, _LIMIT = 1, 2


class Relay:
    """Takes a provider's answer, as it arrives, and gives it to the client."""

    _phase: Literal["waiting", "streaming", "over"] = "waiting"
    _status = 0  # of the answer, once its head has come
    _held = b""
    _headers: Mapping[str, str] = MappingProxyType({})
    # Whether the body is not a stream in the clear: an error's, or compressed, or of interest to nobody any more.
    _odd = False
    _error_body = b""
    _unpacker: Decompressor | None = None
    # What is being unpacked, and what is to be done when that is over: the body has ended, or has broken off.
    _unpacked: Iterator[bytes] | None = None
    _then: Callable[[], None] | None = None
    _turn: asyncio.Handle | None = None
    _connection: Connection | None = None
    _tape: RecordingReceiver | None = None
    _pending = 0  # how much is known that is told at the end only
    _kept = 0  # bytes of an unstreamed answer
    _answer: Accumulator | None = None
    # What reads chunks that need no parser, and what sends them on.
    _feed: Callable[[bytes], int]
    _write_chunk: Callable[[bytes], None]
    # Called once, where the client has left and the provider was heard out without it.
    _on_left: Callable[[], None] | None = None

    def __init__(
        self,
        call: Call,
        client: Client,
        reader: EventReader,
        writer: StreamWriter,
        patience: AttemptTimeouts,
        on_outcome: Callable[[Failure | None], None],
    ) -> None:
        """`on_outcome` is called with None when the answer is committed, or with a failure when the next target may be
        tried. After the commit it is called once more when the answer ends: with None if it is complete, else with
        the failure."""
        attempt, control = call.attempts[-1], call.control
        assert control is not None  # it was made with the attempt
        self._watchdog = watchdog = Watchdog(
            self, patience, attempt.gaps, call.started + patience.total_s, streamed=client.stream
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
        self._patience = patience
        self._passthrough = _passthrough(reader, writer)
        if not client.stream:
            self._answer = Accumulator()
        self._on_outcome = on_outcome

    def attach(self, connection: Connection, tape: RecordingReceiver | None = None) -> None:
        """The connection that the answer will come on, and the tape that it passes, if it is recorded."""
        self._attempt.sent = True
        self._connection = connection
        self._tape = tape
        if self._watchdog.paused:
            connection.pause()
        self._watchdog.start()

    # What the upstream's connection calls.

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the provider's answer."""
        self._status = self._attempt.status = status
        self._watchdog.seen_head = True
        self._headers = headers
        if status >= 300:
            self._odd = True  # an error is unpacked when it is whole
        elif "content-encoding" in headers:
            self._take_coding(headers["content-encoding"])

    def _take_coding(self, coding: str) -> None:
        if can_unpack(coding):
            self._odd = True
            self._unpacker = Decompressor(coding)
        elif is_packed(coding):
            self._fail(
                from_transport("upstream_bad_response", f"the answer is encoded as {coding}, which was not asked for")
            )

    def on_data(self, data: bytes, *, last: bool = False) -> None:
        """A piece of its body."""
        if self._odd:
            self._on_odd(data)
            return
        if self._answer is not None and not self._keeps(data):
            return
        fast = self._passthrough
        if fast is not None and not self._watchdog.seen_event and self._take_opening(fast):
            return
        events = self._reader.feed(data)
        if fast is None or not fast.forwardable:
            self._on_events(events, last=last)
        elif self._phase == "streaming":
            self._watchdog.advance()
            self._client.write(data)
            self._count(self._count_text(events))
            if self._call.on_text is not None:
                self._call.on_text(events)
            self._skip_parser(fast)
        else:
            self._take(events, data)
            self._skip_parser(fast)

    def _keeps(self, data: bytes) -> bool:
        """Whether so much more of an unstreamed answer can be kept until it is whole. If not, it has failed."""
        self._kept += len(data)
        if self._kept > self._patience.max_body:
            message = f"the answer has more than {self._patience.max_body} bytes, and was not to be streamed"
            self._fail(from_transport(_TOO_LARGE, message))
            return False
        return True

    def on_end(self) -> None:
        """The body is complete, as far as HTTP can tell."""
        if self._phase == "over":
            return
        if self._unpacked is not None:
            self._connection = None  # it may serve another call by now
            self._then = self.on_end
            return
        if self._status >= 300:
            self._fail(from_status(self._status, self._headers, self._error_body, self._attempt.dialect))
        elif not self._forward_trailer():
            self._take(self._reader.close())

    def on_error(self, error: UpstreamError) -> None:
        """The connection broke before the body was complete. What the reader has may still be a whole answer."""
        if self._phase == "over":
            return
        if self._unpacked is not None:
            self._connection = None
            self._then = partial(self.on_error, error)
            return
        if self._status and self._status < 300:
            events = self._reader.close()
            last = events[-1]
            if isinstance(last, End) and last.ending == "completed":
                self._take(events)
                return
            self._call.watch(events)
        if self._status >= 300:
            self._fail(from_status(self._status, self._headers, self._error_body, self._attempt.dialect))
            return
        ending: Ending = "truncated" if error.code in _CUTS else "failed"
        self._fail(from_transport(error.code, error.message), ending=ending)

    # The fast path.

    def _aligned_chunks(self, fast: PassThrough) -> Sequence[bytes]:
        """What came now, by HTTP chunks, if the next ones may pass without the parser; nothing if not."""
        connection = self._connection
        if connection is None or self._tape is not None or self._answer is not None or self._call.on_text is not None:
            return ()
        return connection.aligned_chunks if fast.max_event >= LONGEST_READ else ()

    def _take_opening(self, fast: PassThrough) -> bool:
        """Take the usual opening, and the first text behind it if that has come: each in an HTTP chunk of its own."""
        chunks = self._aligned_chunks(fast)
        if not 1 <= len(chunks) <= 2 or self._control.transcript is not None:
            return False
        first, text = chunks if len(chunks) == 2 else (chunks[0], b"")
        opening = fast.feed_opening(first, text)
        if opening is None:
            return False
        self._watchdog.first_event()
        self._call.watch(opening.events)
        self._writer.note(opening.events)
        self._held = first
        if text:
            self._commit_text(fast, text, opening.chars)
        elif self._connection is not None:
            self._connection.on_chunk = self._on_first_chunk
        return True

    def _skip_parser(self, fast: PassThrough) -> None:
        """What was read last is healthy text: take the next HTTP chunks without the parser, if they can be."""
        connection = self._connection
        if connection is None or fast.template is None or not self._aligned_chunks(fast):
            return
        if self._phase == "waiting":
            connection.on_chunk = self._on_first_chunk
        else:
            self._forward_chunks(fast)

    def _forward_chunks(self, fast: PassThrough) -> None:
        """Forward chunks of text as they are framed, if the client may get them so."""
        write, connection, template = self._client.chunk_writer(), self._connection, fast.template
        if write is None or connection is None or template is None:
            return
        self._keep_text(fast, template)
        self._feed = fast.feed
        self._write_chunk = write
        connection.on_chunk = self._on_text_chunk

    def _keep_text(self, fast: PassThrough, template: DeltaTemplate) -> None:
        """Have the pass-through write text into the transcript, if there is one."""
        transcript = self._control.transcript
        fast.on_text = len if transcript is None else transcript.writer(template.make_event(""))

    def _on_first_chunk(self, payload: bytes, _raw: bytes) -> bool:
        """The first text, if it matches: the answer is committed."""
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
        """The first text, of so many characters: what was held goes out with it."""
        self._commit()
        self._client.write(self._held + text)
        self._held = b""
        self._forward_chunks(fast)
        self._count(chars)

    def _on_text_chunk(self, payload: bytes, raw: bytes) -> bool:
        """More text, if it matches.

        Nearly every event comes here: so what `Watchdog.advance` and `_count` do is written out.
        """
        if self._call.on_text is not None:
            return False  # whoever reads along is told by the slow path
        chars = self._feed(payload)
        if not chars:
            return self._on_trailer_chunk(payload, raw)
        watchdog = self._watchdog
        now = watchdog.loop.time()
        gap = now - watchdog.progress
        watchdog.progress = now
        gaps = watchdog.gaps
        gaps.counts[bisect_left(BOUNDS, gap)] += 1
        if gap > gaps.notable_s:
            gaps.note(gap, now - gap - watchdog.started)
        self._write_chunk(raw)
        attempt = self._attempt
        attempt.said = said = attempt.said + chars
        if said >= self._control.check_at:
            self._count(0)
        return True

    def _on_trailer_chunk(self, payload: bytes, _raw: bytes) -> bool:
        """The usual ending behind text, or a part of it."""
        fast, connection = self._passthrough, self._connection
        trailer = fast.feed_trailer(payload) if fast is not None else None
        if trailer is None or connection is None:
            return False
        # No text may follow. What comes behind the usage comes with the end of the body, which is the parser's.
        connection.on_chunk = self._on_trailer_chunk if trailer.tokens is None else None
        self._pending = trailer.frames
        self._watchdog.advance()
        if trailer.done and self._phase != "over":
            self._watchdog.arm()  # the end is near, or else it is not waited for
        return True

    def _trailer(self) -> StreamTrailer | None:
        """The usual ending, if it is whole and may be forwarded."""
        trailer = self._passthrough.trailer if self._passthrough is not None else None
        return trailer if trailer is not None and trailer.done else None

    def _forward_trailer(self) -> bool:
        """Forward the usual ending as it came, if the client alone is to be told of it."""
        trailer, attempt = self._trailer(), self._attempt
        if trailer is None or self._phase != "streaming" or self._call.on_text is not None:
            return False
        data = self._writer.forward(trailer)
        if not data:
            return False
        self._watchdog.advance()
        attempt.finishes.append(trailer.finish_reason)
        attempt.tokens = trailer.tokens
        attempt.report_tier(trailer.tier)
        self._finish("completed")
        self._client.end(data)
        return True

    # What the client's side calls.

    def pause(self, by: int = _CLIENT) -> None:
        """The client is slow: the provider must wait."""
        self._watchdog.paused |= by
        if self._connection is not None:
            self._connection.pause()

    def resume(self, by: int = _CLIENT) -> None:
        """The client has caught up."""
        watchdog = self._watchdog
        watchdog.paused &= ~by
        if watchdog.paused:
            return
        watchdog.resume()
        if self._unpacked is not None:
            self._unpack_soon()
        elif self._connection is not None:
            self._connection.resume()
        if self._connection is not None:
            watchdog.arm()

    def cancel(self, failure: Failure, ending: Ending = "cancelled") -> None:
        """Stop: the client has gone, or the gateway is going."""
        self._fail(failure, ending=ending)

    def leave(self, on_left: Callable[[], None]) -> bool:
        """The client has gone. Whether the provider is heard out all the same; `on_left` is called when it has been."""
        if not self._patience.drain_s or not self._attempt.sent or self._phase == "over":
            return False
        self._on_left = on_left
        self._client = DisconnectedClient(stream=self._client.stream)
        self._call.strict = False  # no client is there to refuse an answer
        watchdog = self._watchdog
        watchdog.until = min(watchdog.until, self._loop.time() + self._patience.drain_s)
        if self._connection is not None:
            self._connection.on_chunk = None
        if watchdog.paused & _CLIENT:
            self.resume()
        watchdog.arm()  # it ends sooner now
        return True

    # What is called through the attempt's control.

    @property
    def frames(self) -> int:
        """How many events there were so far."""
        return self._reader.frames

    def stop(self, failure: Failure, ending: Ending = "truncated") -> None:
        """Stop: the gateway, or who runs it, does not want more of it."""
        self._fail(failure, ending=ending)

    def halt(self, halted: bool) -> None:
        """Whether the provider must wait until it is known how much more it may say."""
        if halted:
            self.pause(_LIMIT)
        elif self._watchdog.paused & _LIMIT:
            self.resume(_LIMIT)

    # What the watchdog calls.

    @property
    def done(self) -> bool:
        """Whether the provider has said that nothing more will come."""
        return self._reader.done

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""
        return self._phase == "over"

    def time_out(self, failure: Failure) -> None:
        """The attempt took too long."""
        self._fail(failure, ending="timed_out")

    def send_heartbeat(self) -> None:
        """Keep the client waiting."""
        self._client.begin()
        self._client.write(self._writer.heartbeat())

    # Events.

    def _on_events(self, events: list[Event], *, last: bool) -> None:
        if events:
            self._take(events)
        elif not last or not self._reader.done:  # else the end is seen when the bytes are over, which is at once
            self._see_pending()
            return
        if self._reader.done and not last and self._phase != "over":
            self._watchdog.arm()  # the end is near, or else it is not waited for

    def _see_pending(self) -> None:
        """No event has come. If more is known of the end, it is coming."""
        reader = self._reader
        if reader.pending > self._pending:
            self._pending = reader.pending
            self._watchdog.advance()
        if reader.done and self._phase != "over":
            self._watchdog.arm()

    def _take(self, events: list[Event], data: bytes = b"") -> None:
        """Take what the provider said; `data` is given if it may go on as it came."""
        kinds = set(map(type, events))
        if Fault in kinds:  # what stands behind it counts as if it had never come: nothing may depend on how reads fall
            events = events[: next(place for place, event in enumerate(events) if type(event) is Fault) + 1]
            kinds = set(map(type, events))
        if kinds != {Repair}:
            if self._watchdog.seen_event:
                self._watchdog.advance()
            else:
                self._watchdog.first_event()
        if not kinds.isdisjoint(NOTED):
            self._call.watch(events)
        if not kinds.isdisjoint(SPOKEN):
            self._count(self._count_text(events))
        if self._call.on_text is not None:
            self._call.on_text(events)
        if isinstance(last := events[-1], Fault):
            self._release(events[:-1])
            self._fail(from_fault(last))
        elif isinstance(last, End):
            self._end(events, last)
        else:
            self._release(events, data)

    def _count(self, size: int) -> None:
        """The model has said so much more. What is due then is done when this read has been dealt with."""
        attempt, control = self._attempt, self._control
        attempt.said += size
        if attempt.said >= control.check_at:
            control.check(self._loop.call_soon)
            self._count_text = control.count_text
            if self._connection is not None:
                self._connection.on_chunk = None

    def _release(self, events: list[Event], data: bytes = b"") -> None:
        """Give events to the client. They are held until the commit point, which is when the model says something."""
        if self._answer is not None:
            self._answer.extend(events)
            return
        usual = bool(data)
        if usual:
            self._writer.note(events)
        else:
            data = self._writer.write(events)
        if self._writer.losses and (lost := self._note_losses()) is not None:
            if self._phase == "streaming":
                self._client.write(data)  # what the client's dialect has a place for
            self._fail(lost)
            return
        if self._phase == "waiting":
            self._held += data
            if len(self._held) <= _MAX_HELD and not _is_content(events, usual=usual):
                return
            data, self._held = self._held, b""
            self._commit()
        self._client.write(data)

    def _end(self, events: list[Event], end: End) -> None:
        """The provider's stream is over."""
        if end.ending != "completed":
            message = f"the provider's stream ended before the answer was complete: {end.detail}"
            # Without the finishes: a client that stops at a finish reason would take the answer for whole.
            self._release([event for event in events[:-1] if type(event) is not Finish])
            self._fail(from_transport("upstream_truncated", message), ending="truncated")
            return
        if self._answer is None:
            data = self._held + self._writer.write_end(self._trailer(), events)
        else:
            self._answer.extend(events)
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
        """Note on the call what the writer could not express since the last time; the failure that it is if the call is
        strict and a loss changes the meaning."""
        losses = self._writer.losses[:]
        self._writer.losses.clear()
        self._call.note_losses(losses)
        return from_answer_losses(losses) if self._call.strict and changes_meaning(losses) else None

    def _commit(self) -> None:
        if self._phase != "waiting":
            return
        self._phase = "streaming"
        now = self._loop.time()
        self._call.first_event_s = now - self._call.started
        self._attempt.first_event_s = now - self._watchdog.started
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
        if self._attempt.said and (usage := self._reported()) is not None:
            self._attempt.usage = usage
            self._attempt.report_tier(usage.tier)
        self._finish(ending)
        if committed:
            self._call.code = self._call.code or failure.code
            self._on_outcome(failure)
            self._client.end(self._writer.fail(failure))
        else:
            self._on_outcome(failure)

    def _reported(self) -> Usage | None:
        """The usage that was reported before it failed."""
        failed = self._reader.failed
        if failed is not None:
            return failed.usage.with_total() if failed.usage is not None else None
        return next((event.usage for event in self._reader.close() if type(event) is UsageReport), None)

    def _is_answered(self, failure: Failure, ending: Ending) -> bool:
        """Whether the provider had an answer all the same. An unstreamed one was there before its first byte came."""
        if not 200 <= self._status < 300:
            return False
        unstreamed = "json" in self._headers.get("content-type", "")
        return failure.code in (_TOO_LARGE, TRANSLATION_LOSS) or (unstreamed and ending in ("truncated", "timed_out"))

    def _finish(self, ending: Ending) -> None:
        committed = self._phase == "streaming"
        self._phase = "over"
        self._odd = True
        attempt = self._attempt
        attempt.seconds = self._loop.time() - self._watchdog.started
        attempt.ending = ending
        self._watchdog.stop()
        failed = self._reader.failed
        attempt.events = self._reader.frames if failed is None else failed.frames
        self._control.release()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon(self if self._tape is None else self._tape)
        if self._tape is not None:
            self._tape.stop(ending)
        if committed:
            self._call.ending = self._call.ending or ending
            if ending == "completed":
                self._on_outcome(None)
        if self._on_left is not None:
            self._loop.call_soon(self._on_left)  # when what ends it has been noted
            self._on_left = None

    def _on_odd(self, data: bytes) -> None:
        """A piece of a body that is not a stream in the clear."""
        if self._phase == "over":
            return
        if self._status >= 300:
            self._error_body += data[: MAX_ERROR_BODY - len(self._error_body)]
        else:
            self._on_encoded(data)

    def _on_encoded(self, data: bytes) -> None:
        """A compressed piece, although none was asked for: unpack it a little at a time, so that no bomb goes off."""
        assert self._unpacker is not None
        pieces = self._unpacker.pieces(data)
        if self._unpacked is None:
            self._unpacked = pieces
            self._unpack()
        else:
            self._unpacked = chain(self._unpacked, pieces)

    def _unpack_soon(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._unpack)

    def _unpack(self) -> None:
        """Read the next piece of what is unpacked. The others wait until the loop has served other calls, and until the
        client takes more; meanwhile nothing more is read from the provider."""
        self._turn = None
        if self._unpacked is None or self._watchdog.paused:
            return
        piece = b""
        try:
            piece = next(self._unpacked, b"") if self._phase != "over" else b""
            if piece and (self._answer is None or self._keeps(piece)):
                self._on_events(self._reader.feed(piece), last=False)
        except zlib.error as error:
            self._fail(from_transport("upstream_bad_response", f"the answer cannot be decompressed: {error}"))
        if piece and self._phase != "over":
            if self._connection is not None:
                self._connection.pause()
            self._unpack_soon()
            return
        self._unpacked = None
        if self._connection is not None and not self._watchdog.paused:
            self._connection.resume()
        then, self._then = self._then, None
        if then is not None:
            then()


def _passthrough(reader: EventReader, writer: StreamWriter) -> PassThrough | None:
    """The fast path, where client and provider speak the same dialect and nothing rewrites or watches the events."""
    if not isinstance(reader, StreamReader) or reader.dialect != writer.dialect:
        return None
    return reader.passthrough


def _is_content(events: list[Event], *, usual: bool) -> bool:
    """Whether the model says something in these events. Where they are the usual ones, only text is that."""
    return not _CONTENT.isdisjoint(map(type, events)) or (not usual and any(map(_holds_parts, events)))


def _holds_parts(event: Event) -> bool:
    return (
        isinstance(event, Extra)
        and event.place == "delta"
        and any(part and isinstance(part, _PARTS) for part in event.fields.values())
    )
