"""Faults in what stands around the events' JSON, and in the JSON as mere bytes."""

import re
from collections.abc import Callable

from penstock.replay.faults.answers import chunk_in
from penstock.replay.faults.script import Piece, ScriptedResponse

_DONE = re.compile(rb"(?m)^data: ?\[DONE\][\r\n]*")
_BOM = b"\xef\xbb\xbf"


def bad_json(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """An event whose JSON stops in the middle."""
    pieces = list(script.by_event().pieces)
    number = min(len(pieces) // 2 if count is None else count, len(pieces) - 1)
    if pieces:
        data = pieces[number].data
        line = data.rstrip(b"\r\n")
        pieces[number] = Piece(pieces[number].after_s, line[: len(line) // 2] + data[len(line) :])
    return script.with_pieces(pieces)


def no_done(script: ScriptedResponse) -> ScriptedResponse:
    """No `[DONE]`."""
    return _each(script, lambda data: _DONE.sub(b"", data))


def done_twice(script: ScriptedResponse) -> ScriptedResponse:
    """`[DONE]` twice."""
    return _each(script, lambda data: _DONE.sub(lambda found: found[0].rstrip(b"\r\n") + b"\n\n" + found[0], data))


def no_blank_lines(script: ScriptedResponse) -> ScriptedResponse:
    """No blank line between events."""
    return _each(script, lambda data: re.sub(rb"(\r\n|\n|\r)(\r\n|\n|\r)+", rb"\1", data))


def crlf(script: ScriptedResponse) -> ScriptedResponse:
    """Lines that end in CR LF."""
    return _each(script, lambda data: re.sub(rb"\r\n|\n|\r", rb"\r\n", data))


def cr(script: ScriptedResponse) -> ScriptedResponse:
    """Lines that end in CR."""
    return _each(script, lambda data: re.sub(rb"\r\n|\n", rb"\r", data))


def bom(script: ScriptedResponse) -> ScriptedResponse:
    """A byte order mark before everything."""
    first, *rest = script.pieces or (Piece(0.0, b""),)
    return script.with_pieces([Piece(first.after_s, _BOM + first.data), *rest])


def json_next_line(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """Every so many events `data:` alone, and the JSON on the next line."""
    every = count or 1
    return script.with_pieces(
        Piece(piece.after_s, re.sub(rb"(?m)^data: ?\{", b"data:\n{", piece.data) if number % every == 0 else piece.data)
        for number, piece in enumerate(script.by_event().pieces, start=1)
    )


def keep_alives(script: ScriptedResponse) -> ScriptedResponse:
    """A comment before every event."""
    return _each(script, lambda data: b": keep-alive\n\n" + data)


def pings(script: ScriptedResponse) -> ScriptedResponse:
    """An event that says nothing before every event."""
    return _each(script, lambda data: b'event: ping\ndata: {"type": "ping"}\n\n' + data)


def no_space(script: ScriptedResponse) -> ScriptedResponse:
    """No space behind `data:`."""
    return _each(script, lambda data: re.sub(rb"(?m)^data: ", b"data:", data))


def no_final_newline(script: ScriptedResponse) -> ScriptedResponse:
    """No line end at the end."""
    *rest, last = script.pieces or (Piece(0.0, b""),)
    return script.with_pieces([*rest, Piece(last.after_s, last.data.rstrip(b"\r\n"))])


def json_lines(script: ScriptedResponse) -> ScriptedResponse:
    """JSON and nothing else on every line."""
    return _each(no_done(script), lambda data: re.sub(rb"(?m)^data: ?", b"", data).rstrip(b"\r\n") + b"\n")


def glued(script: ScriptedResponse) -> ScriptedResponse:
    """Two objects in every event."""
    pieces: list[Piece] = []
    waiting: Piece | None = None
    for piece in script.by_event().pieces:
        if waiting is None and chunk_in(piece.data) is not None:
            waiting = piece
        elif waiting is None:
            pieces.append(piece)
        elif chunk_in(piece.data) is None:
            pieces += [waiting, piece]
            waiting = None
        else:
            second = piece.data[piece.data.index(b"{") :]
            pieces.append(Piece(waiting.after_s + piece.after_s, waiting.data.rstrip(b"\r\n") + second))
            waiting = None
    return script.with_pieces(pieces if waiting is None else [*pieces, waiting])


def _each(script: ScriptedResponse, change: Callable[[bytes], bytes]) -> ScriptedResponse:
    """The script with the bytes of every event changed; an event that is empty then is gone."""
    changed = [Piece(piece.after_s, change(piece.data)) for piece in script.by_event().pieces]
    return script.with_pieces(piece for piece in changed if piece.data)
