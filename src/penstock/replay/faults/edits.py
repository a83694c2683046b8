"""Edits of the JSON in a stream's events. An event whose JSON changes keeps its framing and its JSON style.

The framing of a message of an AWS event stream is its headers; its lengths and checksums are computed again.
"""

import json
from collections.abc import Callable
from typing import TypeAlias

from penstock.core.json_text import style_of, write_json
from penstock.core.wire.event_stream import payload_of, with_payload
from penstock.replay.faults.script import Piece, ScriptedResponse

Json: TypeAlias = dict[str, object]
# Returns the objects that replace the one of an event; None leaves the event unchanged.
Change: TypeAlias = Callable[[Json], list[Json] | None]


def object_in(event: bytes) -> Json | None:
    """The JSON object of an event, if it has one."""
    event = payload_of(event) if is_message(event) else event
    start, end = _bounds(event)
    try:
        value = json.loads(event[start:end])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def replace_json(event: bytes, value: Json) -> bytes:
    """Replace the JSON of an event, keeping its framing and its JSON style (spaces, escapes)."""
    if is_message(event):
        return with_payload(event, _replaced(payload_of(event), value))
    return _replaced(event, value)


def is_message(event: bytes) -> bool:
    """Whether the event is a message of an AWS event stream, and not text."""
    return event[:1] == b"\0"


def _replaced(event: bytes, value: Json) -> bytes:
    start, end = _bounds(event)
    style = style_of(event[start:end].decode(errors="replace"))
    return event[:start] + write_json(value, style).encode(errors="replace") + event[end:]


def changed(script: ScriptedResponse, change: Change) -> ScriptedResponse:
    """Apply a change to the object of every event."""
    pieces: list[Piece] = []
    for event in script.by_event().pieces:
        value = object_in(event.data)
        written = change(value) if value is not None else None
        if written is None:
            pieces.append(event)
        else:
            pieces += [
                Piece(0.0 if number else event.after_s, replace_json(event.data, value))
                for number, value in enumerate(written)
            ]
    return script.with_pieces(pieces)


def change_last(script: ScriptedResponse, change: Change) -> ScriptedResponse:
    """Apply a change to the last event that it does not leave unchanged."""
    pieces = list(script.by_event().pieces)
    for number in range(len(pieces) - 1, -1, -1):
        value = object_in(pieces[number].data)
        written = change(value) if value is not None else None
        if written is not None:
            data = b"".join(replace_json(pieces[number].data, each) for each in written)
            pieces[number] = Piece(pieces[number].after_s, data)
            break
    return script.with_pieces(pieces)


def without(script: ScriptedResponse, drops: Callable[[Json], bool]) -> ScriptedResponse:
    """Remove the events with such an object."""
    return changed(script, lambda value: [] if drops(value) else None)


def repeated(script: ScriptedResponse, repeats: Callable[[Json], bool]) -> ScriptedResponse:
    """Send the events with such an object twice."""
    return changed(script, lambda value: [value, value] if repeats(value) else None)


def without_member(script: ScriptedResponse, name: str) -> ScriptedResponse:
    """Remove a member of every object that has it."""

    def change(value: Json) -> list[Json] | None:
        return [value] if value.pop(name, None) is not None else None

    return changed(script, change)


def moved_behind(
    script: ScriptedResponse, moves: Callable[[Json], bool], ends: Callable[[Json], bool]
) -> ScriptedResponse:
    """Move the events with such an object behind the next event that `ends`."""
    late: list[Piece] = []
    pieces: list[Piece] = []
    for piece in script.by_event().pieces:
        value = object_in(piece.data) or {}
        if moves(value):
            late.append(piece)
            continue
        pieces.append(piece)
        if ends(value):
            pieces += late
            late = []
    return script.with_pieces(pieces + late)


def zeroed(value: object) -> object:
    """The same JSON with every number replaced by zero."""
    match value:
        case dict():
            return {name: zeroed(item) for name, item in value.items()}
        case list():
            return [zeroed(item) for item in value]
        case bool() | str() | None:
            return value
        case _:
            return 0


def _bounds(event: bytes) -> tuple[int, int]:
    return max(event.find(b"{"), 0), event.rfind(b"}") + 1
