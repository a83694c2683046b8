"""ScriptedResponse: what a server sends for one request, and when: status, headers, timed pieces, and the ending."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

from msgspec import Struct, field, structs

from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import DEFAULT_DIALECT, answer_dialect
from penstock.core.hub.events import Event, Start
from penstock.core.hub.failure import Failure
from penstock.core.slow_path import MAX_BODY
from penstock.core.stream import StreamReader
from penstock.core.stream_writer import StreamWriter
from penstock.core.wire.frame import Frame
from penstock.core.wire.sniff import Sniffer
from penstock.error_codes import ErrorCode

ScriptEnding: TypeAlias = Literal["end", "closed", "reset", "stall"]

_EVENT_STREAM = "text/event-stream; charset=utf-8"
# The error that an injected fault sends, as a body and as an event.
ERROR_MESSAGE = "The server failed while it was answering. Try again."
ERROR_CODE: ErrorCode = "internal_error"


_NO_START = Start("", "", None)
_FAILURE = Failure(code=ERROR_CODE, message=ERROR_MESSAGE)


class Piece(Struct, frozen=True, gc=False):
    """Bytes that are sent together, `after_s` seconds after the previous piece; the first, after the request."""

    after_s: float
    data: bytes


class ScriptedResponse(Struct, frozen=True):
    """What a server sends for one request.

    After the last piece the `ending` follows: the server ends the body properly, closes or resets the connection
    without ending the body, or sends nothing more (`stall`).
    """

    pieces: tuple[Piece, ...]
    ending: ScriptEnding = "end"
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": _EVENT_STREAM})
    cut: bool = False
    """Whether a fault has already truncated the body."""
    dialect: str = DEFAULT_DIALECT
    """The dialect of the stream."""
    error: bytes = b""
    """The event that reports an error inside a stream; if it is empty, the dialect's own writer writes it."""

    @property
    def error_body(self) -> bytes:
        """The body of an error response."""
        return answer_dialect(self.dialect).write_error(_FAILURE, "")

    def error_after(self, kept: Iterable[Piece]) -> bytes:
        """The event that reports an error after some of the pieces."""
        if self.error:
            return self.error
        start = next((event for event in _events(self.pieces, self.dialect) if isinstance(event, Start)), _NO_START)
        facts = AnswerFacts(call_id="", id=start.id, model=start.model, created=start.created or 0)
        writer = StreamWriter.for_call(self.dialect, facts)
        writer.write(_events(kept, self.dialect))  # which puts the writer into the same state
        return writer.fail(_FAILURE)

    @property
    def data(self) -> bytes:
        """All bytes of the body."""
        return b"".join(piece.data for piece in self.pieces)

    def by_event(self) -> "ScriptedResponse":
        """Split into one piece per event, sent when its last byte was. A comment stays with the event before it."""
        return self.with_pieces(split_at(self.pieces, list(accumulate(map(len, events_in(self.data))))))

    def with_pieces(self, pieces: Iterable[Piece]) -> "ScriptedResponse":
        """A copy with other pieces."""
        return structs.replace(self, pieces=tuple(pieces))

    def with_body(self, data: bytes, content_type: str) -> "ScriptedResponse":
        """A copy with one body in place of the stream, sent when the stream would start, and ended properly."""
        after_s = self.pieces[0].after_s if self.pieces else 0.0
        headers = self.headers | {"content-type": content_type}
        pieces = (Piece(after_s, data),) if data else ()
        return structs.replace(self, pieces=pieces, headers=headers, ending="end")


def script(
    events: Iterable[bytes],
    *,
    gap_s: float = 0.0,
    content_type: str = _EVENT_STREAM,
    dialect: str = DEFAULT_DIALECT,
) -> ScriptedResponse:
    """A response that sends these events, `gap_s` seconds apart."""
    pieces = tuple(Piece(gap_s if number else 0.0, data) for number, data in enumerate(events))
    return ScriptedResponse(pieces, headers={"content-type": content_type}, dialect=dialect)


def split_at(pieces: Sequence[Piece], places: Sequence[int]) -> list[Piece]:
    """Split the bytes of pieces at these places only. A new piece is sent when its last byte would have been sent."""
    data = b"".join(piece.data for piece in pieces)
    ends = list(accumulate(len(piece.data) for piece in pieces))
    times = list(accumulate(piece.after_s for piece in pieces))
    made: list[Piece] = []
    before_s = 0.0
    for start, end in pairwise([0, *places, len(data)]):
        if start < end:
            at_s = times[bisect_left(ends, end)]
            made.append(Piece(at_s - before_s, data[start:end]))
            before_s = at_s
    return made


def events_in(data: bytes) -> list[bytes]:
    """Split a body into its events, as Penstock's own reader frames them. A comment belongs to the event before it."""
    sniffer = Sniffer(MAX_BODY)
    items = sniffer.feed(data) + sniffer.close()
    starts = [item.offset for item in items if isinstance(item, Frame)]
    return [data[start:end] for start, end in pairwise([0, *starts[1:], len(data)]) if start < end]


def _events(pieces: Iterable[Piece], dialect: str) -> list[Event]:
    return StreamReader(dialect).feed(b"".join(piece.data for piece in pieces))
