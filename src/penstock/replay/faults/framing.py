"""Faults in the framing of events: lines, prefixes, names, comments; and in their JSON as plain bytes."""

import re
from collections.abc import Callable

from penstock.core.wire.event_stream import payload_of, with_payload
from penstock.replay.faults.edits import is_message, object_in
from penstock.replay.faults.script import Piece, ScriptedResponse

_EVENT_NAME = re.compile(rb"(?m)^event:[^\r\n]*(?:\r\n|\n|\r)")
_BOM = b"\xef\xbb\xbf"


def bad_json(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """Cut the JSON of one event in the middle."""
    return _changed_event(script, count, _with_half_of_json)


def crc_wrong(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """Change the checksum of one message of an AWS event stream."""
    return _changed_event(script, count, lambda data: data[:-1] + bytes((data[-1] ^ 1,)))


def _changed_event(script: ScriptedResponse, count: int | None, change: Callable[[bytes], bytes]) -> ScriptedResponse:
    """Change the bytes of the event after `count` events, or after half of them."""
    pieces = list(script.by_event().pieces)
    number = min(len(pieces) // 2 if count is None else count, len(pieces) - 1)
    if pieces:
        pieces[number] = Piece(pieces[number].after_s, change(pieces[number].data))
    return script.with_pieces(pieces)


def _with_half_of_json(event: bytes) -> bytes:
    if is_message(event):
        payload = payload_of(event)
        return with_payload(event, payload[: len(payload) // 2])
    line = event.rstrip(b"\r\n")
    return line[: len(line) // 2] + event[len(line) :]


def split_lines(script: ScriptedResponse) -> ScriptedResponse:
    """Write the JSON of every line on two lines."""
    return each(script, lambda data: re.sub(rb",", b",\n", data, count=1))


def no_event_names(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the names of events."""
    return each(script, lambda data: _EVENT_NAME.sub(b"", data))


def no_blank_lines(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the blank lines between events."""
    return each(script, lambda data: re.sub(rb"(\r\n|\n|\r)(\r\n|\n|\r)+", rb"\1", data))


def crlf(script: ScriptedResponse) -> ScriptedResponse:
    """End lines in CR LF."""
    return each(script, lambda data: re.sub(rb"\r\n|\n|\r", rb"\r\n", data))


def cr(script: ScriptedResponse) -> ScriptedResponse:
    """End lines in CR alone."""
    return each(script, lambda data: re.sub(rb"\r\n|\n", rb"\r", data))


def bom(script: ScriptedResponse) -> ScriptedResponse:
    """Send a byte order mark first."""
    first, *rest = script.pieces or (Piece(0.0, b""),)
    return script.with_pieces([Piece(first.after_s, _BOM + first.data), *rest])


def json_next_line(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """In every `count`th event, leave the `data:` line empty and put the JSON on the next line."""
    every = count or 1
    return script.with_pieces(
        Piece(piece.after_s, re.sub(rb"(?m)^data: ?\{", b"data:\n{", piece.data) if number % every == 0 else piece.data)
        for number, piece in enumerate(script.by_event().pieces, start=1)
    )


def keep_alives(script: ScriptedResponse) -> ScriptedResponse:
    """Send a comment before every event."""
    return each(script, lambda data: b": keep-alive\n\n" + data)


def pings(script: ScriptedResponse) -> ScriptedResponse:
    """Send a ping event before every event."""
    return each(script, lambda data: b'event: ping\ndata: {"type": "ping"}\n\n' + data)


def no_space(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the space after `data:`."""
    return each(script, lambda data: re.sub(rb"(?m)^data: ", b"data:", data))


def no_final_newline(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the last line end."""
    *rest, last = script.pieces or (Piece(0.0, b""),)
    return script.with_pieces([*rest, Piece(last.after_s, last.data.rstrip(b"\r\n"))])


def json_lines(script: ScriptedResponse) -> ScriptedResponse:
    """Send plain JSON lines, without SSE framing. Events without JSON are removed."""
    nameless = no_event_names(script)
    only_json = nameless.with_pieces(piece for piece in nameless.pieces if b"{" in piece.data)
    return each(only_json, lambda data: re.sub(rb"(?m)^data: ?", b"", data).rstrip(b"\r\n") + b"\n")


def glued(script: ScriptedResponse) -> ScriptedResponse:
    """Join every two events into one with two JSON objects."""
    pieces: list[Piece] = []
    first: Piece | None = None
    for piece in script.by_event().pieces:
        if first is None and object_in(piece.data) is not None:
            first = piece
        elif first is None:
            pieces.append(piece)
        elif object_in(piece.data) is None:
            pieces += [first, piece]
            first = None
        else:
            second = piece.data[piece.data.index(b"{") :]
            pieces.append(Piece(first.after_s + piece.after_s, first.data.rstrip(b"\r\n") + second))
            first = None
    return script.with_pieces(pieces if first is None else [*pieces, first])


def each(script: ScriptedResponse, change: Callable[[bytes], bytes]) -> ScriptedResponse:
    """Change the bytes of every event; an event that becomes empty is removed."""
    changed = [Piece(piece.after_s, change(piece.data)) for piece in script.by_event().pieces]
    return script.with_pieces(piece for piece in changed if piece.data)
