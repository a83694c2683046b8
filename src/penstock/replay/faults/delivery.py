"""Faults in the delivery of an answer: it is replaced, truncated, delayed, or split at unusual places."""

import re
import zlib
from itertools import pairwise

from msgspec import structs

from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import answer_dialect
from penstock.core.hub.completion import Accumulator
from penstock.core.stream import StreamReader
from penstock.replay.faults.script import Piece, ScriptedResponse

_PAGE = b"""<!DOCTYPE html>
<html><head><title>502 Bad Gateway</title></head>
<body><h1>502 Bad Gateway</h1><p>The server behind this one did not answer.</p></body></html>
"""
# The continuation bytes of a UTF-8 character.
_CONTINUATION_BYTE = re.compile(rb"[\x80-\xbf]")
_OK = 200
_TOO_MANY_REQUESTS = 429
_GZIP = 31


def html(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the stream with an HTML page."""
    return structs.replace(script.with_body(_PAGE, "text/html"), status=_OK)


def status(script: ScriptedResponse, code: int) -> ScriptedResponse:
    """Replace the stream with an error of that status."""
    failed = script.with_body(script.error_body, "application/json")
    retry = {"retry-after": "1"} if code == _TOO_MANY_REQUESTS else {}
    return structs.replace(failed, status=code, headers=failed.headers | retry)


def empty(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the stream with an empty body."""
    return structs.replace(script.with_body(b"", script.headers.get("content-type", "")), status=_OK)


def unstreamed(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the stream with the whole answer as one JSON object."""
    reader, answer = StreamReader(script.dialect), Accumulator(script.dialect)
    answer.extend(reader.feed(script.data))
    answer.extend(reader.close())
    completion = answer.completion
    facts = AnswerFacts(call_id="", id=completion.id, model=completion.model, created=completion.created or 0)
    body = answer_dialect(script.dialect).write_body(completion, facts, [])
    return script.with_body(body, "application/json")


def error_event(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """Send an error after `count` events, or half of them, and end the body."""
    events = script.by_event().pieces
    kept = events[: len(events) // 2 if count is None else count]
    return structs.replace(script, pieces=(*kept, Piece(0.0, script.error_after(kept))), ending="end", cut=True)


def error_first(script: ScriptedResponse) -> ScriptedResponse:
    """Send an error as the only event."""
    return error_event(script, 0)


def wrong_type(script: ScriptedResponse) -> ScriptedResponse:
    """Send a content type that is not an event stream's."""
    return structs.replace(script, headers=script.headers | {"content-type": "text/plain"})


def cut_after(script: ScriptedResponse, count: int) -> ScriptedResponse:
    """End the body after `count` events."""
    return structs.replace(script, pieces=script.by_event().pieces[:count], ending="end", cut=True)


def cut_inside(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """End the body in the middle of the event after `count` events, or after half of them."""
    events = script.by_event().pieces
    place = _place(script, count)
    half = [Piece(event.after_s, event.data[: len(event.data.rstrip()) // 2]) for event in events[place : place + 1]]
    return structs.replace(script, pieces=(*events[:place], *half), ending="end", cut=True)


def cut_bytes(script: ScriptedResponse, count: int) -> ScriptedResponse:
    """End the body after `count` bytes."""
    pieces, left = [], count
    for piece in script.pieces:
        if left > 0:
            pieces.append(Piece(piece.after_s, piece.data[:left]))
        left -= len(piece.data)
    return structs.replace(script, pieces=tuple(pieces), ending="end", cut=True)


def reset(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """Reset the connection after `count` events, or half of them."""
    events = script.by_event().pieces
    return structs.replace(script, pieces=events[: _place(script, count)], ending="reset", cut=True)


def stall(script: ScriptedResponse, seconds: float | None, count: int | None) -> ScriptedResponse:
    """Send nothing for `seconds` after `count` events; without a time, forever."""
    events = script.by_event().pieces
    place = _place(script, count)
    if seconds is None:
        return structs.replace(script, pieces=events[:place], ending="stall", cut=True)
    late = [Piece(piece.after_s + seconds, piece.data) for piece in events[place : place + 1]]
    return script.with_pieces([*events[:place], *late, *events[place + 1 :]])


def slow(script: ScriptedResponse, seconds: float) -> ScriptedResponse:
    """Wait `seconds` before each event."""
    return script.with_pieces(Piece(seconds, piece.data) for piece in script.by_event().pieces)


def compressed(script: ScriptedResponse) -> ScriptedResponse:
    """Compress the body with gzip, without a `content-encoding` header."""
    data = zlib.compress(script.data, wbits=_GZIP)
    return script.with_pieces([Piece(sum(piece.after_s for piece in script.pieces), data)])


def one_read(script: ScriptedResponse) -> ScriptedResponse:
    """Send the whole body at once, at the time of its last byte."""
    return script.with_pieces([Piece(sum(piece.after_s for piece in script.pieces), script.data)])


def split_utf8(script: ScriptedResponse) -> ScriptedResponse:
    """Split the body inside multi-byte characters."""
    pieces: list[Piece] = []
    for piece in script.pieces:
        places = [match.start() for match in _CONTINUATION_BYTE.finditer(piece.data)]
        cuts = pairwise([0, *places, len(piece.data)])
        pieces += _timed(piece, [piece.data[start:end] for start, end in cuts])
    return script.with_pieces(pieces)


def drip(script: ScriptedResponse) -> ScriptedResponse:
    """Send the body one byte at a time."""
    return script.with_pieces(
        dripped
        for piece in script.pieces
        for dripped in _timed(piece, [piece.data[place : place + 1] for place in range(len(piece.data))])
    )


def _timed(piece: Piece, parts: list[bytes]) -> list[Piece]:
    """The parts of a piece, all sent when the piece would be sent."""
    return [Piece(0.0 if number else piece.after_s, part) for number, part in enumerate(parts)]


def _place(script: ScriptedResponse, count: int | None) -> int:
    """After how many events a fault happens: by default half of them, or all if another fault truncated the stream."""
    events = len(script.by_event().pieces)
    if count is not None:
        return count
    return events if script.cut else events // 2
