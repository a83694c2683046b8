"""ScriptedResponse: what a server sends for one request, and when: status, headers, timed pieces, and the ending."""

import json
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

from msgspec import Struct, field, structs

from penstock.core.stream import MAX_EVENT
from penstock.core.wire.frame import Frame
from penstock.core.wire.sniff import Sniffer
from penstock.error_codes import ErrorCode

ScriptEnding: TypeAlias = Literal["end", "closed", "reset", "stall"]

_EVENT_STREAM = "text/event-stream; charset=utf-8"
# What a server says in whose answer an error is to come, as a body and as an event.
ERROR_MESSAGE = "The server failed while it was answering. Try again."
ERROR_CODE: ErrorCode = "internal_error"
ERROR_BODY = json.dumps(
    {"error": {"message": ERROR_MESSAGE, "type": "server_error", "param": None, "code": ERROR_CODE}},
    separators=(",", ":"),
).encode()


class Piece(Struct, frozen=True, gc=False):
    """Bytes that are sent together, so many seconds after the piece before; the first, after the request."""

    after_s: float
    data: bytes


class ScriptedResponse(Struct, frozen=True):
    """What a server sends.

    At its end it ends the body properly, closes or resets the connection before that, or goes on saying nothing.
    """

    pieces: tuple[Piece, ...]
    ending: ScriptEnding = "end"
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": _EVENT_STREAM})
    cut: bool = False
    """Whether it was already ended before its time."""
    error: bytes = b"data: " + ERROR_BODY + b"\n\n"
    """The event that would tell of an error."""
    error_body: bytes = ERROR_BODY
    """The body that would tell of an error, where it has a status of its own."""

    @property
    def data(self) -> bytes:
        """All its bytes."""
        return b"".join(piece.data for piece in self.pieces)

    def by_event(self) -> "ScriptedResponse":
        """The same with one piece per event, each sent when its last byte was; comments go with the event before."""
        data = self.data
        starts = [0, *_starts(data)[1:], len(data)]
        ends = list(accumulate(len(piece.data) for piece in self.pieces))
        times = list(accumulate(piece.after_s for piece in self.pieces))
        pieces, before_s = [], 0.0
        for start, end in pairwise(starts):
            if start < end:
                time_s = times[bisect_left(ends, end)]
                pieces.append(Piece(time_s - before_s, data[start:end]))
                before_s = time_s
        return self.with_pieces(pieces)

    def with_pieces(self, pieces: Iterable[Piece]) -> "ScriptedResponse":
        """The same with other pieces."""
        return structs.replace(self, pieces=tuple(pieces))

    def with_body(self, data: bytes, content_type: str) -> "ScriptedResponse":
        """The same with one body in place of the stream, sent when the stream would begin, and ended properly."""
        after_s = self.pieces[0].after_s if self.pieces else 0.0
        headers = self.headers | {"content-type": content_type}
        pieces = (Piece(after_s, data),) if data else ()
        return structs.replace(self, pieces=pieces, headers=headers, ending="end")


def script(events: Iterable[bytes], *, gap_s: float = 0.0, content_type: str = _EVENT_STREAM) -> ScriptedResponse:
    """The script that sends these events, so many seconds apart."""
    pieces = tuple(Piece(gap_s if number else 0.0, data) for number, data in enumerate(events))
    return ScriptedResponse(pieces, headers={"content-type": content_type})


def _starts(data: bytes) -> list[int]:
    """Where the events begin, as our own reader sees them."""
    sniffer = Sniffer(MAX_EVENT)
    items = sniffer.feed(data) + sniffer.close()
    return [item.offset for item in items if isinstance(item, Frame)]
