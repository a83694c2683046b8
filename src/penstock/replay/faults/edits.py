"""Edits of the JSON in a stream's events. An event whose JSON changes keeps its framing and its JSON style.

A `Change` describes a fault by what it makes of the object of one event; `edited` and `edited_last` apply it to a
stream. The framing of a message of an AWS event stream is its headers; its lengths and checksums are computed again.
"""

import json
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from penstock.core.json_text import style_of, write_json
from penstock.core.wire.event_stream import payload_of, with_payload
from penstock.replay.faults.form import FaultForm, plain
from penstock.replay.faults.script import Piece, ScriptedResponse

Json: TypeAlias = dict[str, object]
# Returns the objects that replace the one of an event; None leaves the event unchanged. It may edit the object.
Change: TypeAlias = Callable[[Json], list[Json] | None]
Matches: TypeAlias = Callable[[Json], bool]


def of_type(*types: str) -> Matches:
    """Whether an event is of one of these types, as its member `type` says."""
    return lambda event: event.get("type") in types


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


def _bounds(event: bytes) -> tuple[int, int]:
    return max(event.find(b"{"), 0), event.rfind(b"}") + 1


def edited(result: str, change: Change) -> FaultForm:
    """The form of a fault that changes the object of every event."""
    return plain(result, lambda script: changed(script, change))


def edited_last(result: str, change: Change) -> FaultForm:
    """The form of a fault that changes the last event that it does not leave unchanged."""

    def effect(script: ScriptedResponse) -> ScriptedResponse:
        pieces = list(script.by_event().pieces)
        for number in range(len(pieces) - 1, -1, -1):
            value = object_in(pieces[number].data)
            written = change(value) if value is not None else None
            if written is not None:
                data = b"".join(replace_json(pieces[number].data, each) for each in written)
                pieces[number] = Piece(pieces[number].after_s, data)
                break
        return script.with_pieces(pieces)

    return plain(result, effect)


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


def numbered(script: ScriptedResponse, name: str) -> ScriptedResponse:
    """Append another number to a member in every event that has it."""
    numbers = count()
    return changed(script, lambda event: [event | {name: f"{event[name]}-{next(numbers)}"}] if name in event else None)


def without(drops: Matches) -> Change:
    """Remove the events with such an object."""
    return lambda event: [] if drops(event) else None


def repeated(repeats: Matches) -> Change:
    """Send the events with such an object twice."""
    return lambda event: [event, event] if repeats(event) else None


def without_members(*names: str) -> Change:
    """Remove these members of every object and of the objects in it."""

    def change(event: Json) -> list[Json] | None:
        removed = [place.pop(name, None) for place in _places(event) for name in names]
        return [event] if any(value is not None for value in removed) else None

    return change


def zero_members(*names: str) -> Change:
    """Replace every number in these members of every object, and of the objects in it, with zero."""

    def change(event: Json) -> list[Json] | None:
        counted = [(place, name) for place in _places(event) for name in names if place.get(name)]
        for place, name in counted:
            place[name] = _zeroed(place[name])
        return [event] if counted else None

    return change


def without_last_character(name: str, *path: str) -> Change:
    """Remove the last character of a text, such as the arguments of a tool call, in the object at a path."""

    def change(event: Json) -> list[Json] | None:
        holder = object_at(event, *path)
        if not holder.get(name):
            return None
        holder[name] = str(holder[name])[:-1]
        return [event]

    return change


def moved_behind(script: ScriptedResponse, moves: Matches, ends: Matches) -> ScriptedResponse:
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


def object_at(value: object, *path: str) -> Json:
    """The object at a path of members; an empty one if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[Json]:
    """The objects of a list; none if it is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _places(event: Json) -> list[Json]:
    """The object of an event and the objects in it: one of them has the usage."""
    return [event, *(value for value in event.values() if isinstance(value, dict))]


def _zeroed(value: object) -> object:
    match value:
        case dict():
            return {name: _zeroed(item) for name, item in value.items()}
        case list():
            return [_zeroed(item) for item in value]
        case bool() | str() | None:
            return value
        case _:
            return 0
