"""Faults in the content of events. An event whose JSON changes is written again in its own JSON style; others stay."""

import json
from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import structs

from penstock.core.json_text import style_of, write_json
from penstock.replay.faults.script import Piece, ScriptedResponse

Chunk: TypeAlias = dict[str, object]
# Returns the chunks that replace one chunk; None leaves it unchanged.
Change: TypeAlias = Callable[[Chunk], list[Chunk] | None]


def zero_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace every count of the usage with zero."""
    return _with_usage(script, _zeroed)


def no_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the usage everywhere."""

    def change(chunk: Chunk) -> list[Chunk] | None:
        if not any("usage" in place for place in _places(chunk)):
            return None
        for place in _places(chunk):
            place.pop("usage", None)
        return [chunk] if chunk.get("choices") else []

    return _changed(script, change)


def double_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Repeat the usage in a chunk of its own."""

    def change(chunk: Chunk) -> list[Chunk] | None:
        return [chunk, chunk | {"choices": []}] if chunk.get("usage") else None

    return _changed(script, change)


def no_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the finish reason."""

    def change(chunk: Chunk) -> list[Chunk] | None:
        if not _finishes(chunk):
            return None
        for choice in _choices(chunk):
            choice["finish_reason"] = None
        return [chunk]

    return _changed(script, change)


def duplicate_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Send every chunk with a finish reason twice."""
    return _changed(script, lambda chunk: [chunk, chunk] if _finishes(chunk) else None)


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Move the finish reason before the last content, into a chunk of its own."""
    events = list(script.by_event().pieces)
    chunks = [chunk_in(event.data) or {} for event in events]
    finish = next((number for number, chunk in enumerate(chunks) if _finishes(chunk)), -1)
    contents = [number for number in range(finish + 1) if _has_content(chunks[number])]
    if not contents:
        return script
    early = dict(chunks[finish])
    early.pop("usage", None)
    early["choices"] = [choice | {"delta": {}} for choice in _choices(early)]
    events.insert(contents[-1], Piece(0.0, _replace_json(events[finish].data, early)))
    for choice in _choices(chunks[finish]):
        choice["finish_reason"] = None
    events[finish + 1] = Piece(events[finish + 1].after_s, _replace_json(events[finish + 1].data, chunks[finish]))
    return script.with_pieces(events)


def late_role(script: ScriptedResponse) -> ScriptedResponse:
    """Move the role into the chunk with the finish reason."""

    def change(chunk: Chunk) -> list[Chunk] | None:
        changed = None
        for choice in _choices(chunk):
            delta = choice.get("delta")
            if isinstance(delta, dict) and (delta.pop("role", None) or choice.get("finish_reason")):
                changed = [chunk]
                if choice.get("finish_reason"):
                    delta["role"] = "assistant"
        return changed

    return _changed(script, change)


def changing_id(script: ScriptedResponse) -> ScriptedResponse:
    """Give every chunk another id."""
    numbers = iter(range(len(script.data)))
    return _changed(script, lambda chunk: [chunk | {"id": f"{chunk['id']}-{next(numbers)}"}] if "id" in chunk else None)


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the last character of the last tool call's arguments."""
    pieces = list(script.by_event().pieces)
    for number in range(len(pieces) - 1, -1, -1):
        chunk = chunk_in(pieces[number].data)
        functions = list(_functions(chunk)) if chunk is not None else []
        if chunk is not None and any(function.get("arguments") for function in functions):
            for function in functions:
                function["arguments"] = str(function.get("arguments") or "")[:-1]
            pieces[number] = Piece(pieces[number].after_s, _replace_json(pieces[number].data, chunk))
            break
    return script.with_pieces(pieces)


def error_event(script: ScriptedResponse, count: int | None) -> ScriptedResponse:
    """Send an error after `count` events, or half of them, and end the body."""
    events = script.by_event().pieces
    kept = events[: len(events) // 2 if count is None else count]
    return structs.replace(script, pieces=(*kept, Piece(0.0, script.error)), ending="end", cut=True)


def error_first(script: ScriptedResponse) -> ScriptedResponse:
    """Send an error as the only event."""
    return error_event(script, 0)


def chunk_in(event: bytes) -> Chunk | None:
    """The JSON object of an event, if it has one."""
    start, end = _bounds(event)
    try:
        value = json.loads(event[start:end])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _bounds(event: bytes) -> tuple[int, int]:
    return max(event.find(b"{"), 0), event.rfind(b"}") + 1


def _replace_json(event: bytes, chunk: Chunk) -> bytes:
    """Replace the JSON of an event, keeping its framing and its JSON style (spaces, escapes)."""
    start, end = _bounds(event)
    style = style_of(event[start:end].decode(errors="replace"))
    return event[:start] + write_json(chunk, style).encode(errors="replace") + event[end:]


def _changed(script: ScriptedResponse, change: Change) -> ScriptedResponse:
    """Apply a change to every chunk of the script."""
    pieces: list[Piece] = []
    for event in script.by_event().pieces:
        chunk = chunk_in(event.data)
        changed = change(chunk) if chunk is not None else None
        if changed is None:
            pieces.append(event)
        else:
            pieces += [
                Piece(0.0 if number else event.after_s, _replace_json(event.data, chunk))
                for number, chunk in enumerate(changed)
            ]
    return script.with_pieces(pieces)


def _with_usage(script: ScriptedResponse, change: Callable[[object], object]) -> ScriptedResponse:
    def change_chunk(chunk: Chunk) -> list[Chunk] | None:
        places = [place for place in _places(chunk) if place.get("usage")]
        for place in places:
            place["usage"] = change(place["usage"])
        return [chunk] if places else None

    return _changed(script, change_chunk)


def _zeroed(value: object) -> object:
    match value:
        case dict():
            return {name: _zeroed(item) for name, item in value.items()}
        case bool() | str() | None:
            return value
        case _:
            return 0


def _places(chunk: Chunk) -> list[Chunk]:
    """The objects that may have a `usage` member: the chunk, and the objects in it (as Groq's `x_groq`)."""
    return [chunk, *(value for value in chunk.values() if isinstance(value, dict))]


def _choices(chunk: Chunk) -> list[Chunk]:
    choices = chunk.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _finishes(chunk: Chunk) -> bool:
    return any(choice.get("finish_reason") for choice in _choices(chunk))


def _has_content(chunk: Chunk) -> bool:
    deltas = [choice.get("delta") for choice in _choices(chunk)]
    return any(isinstance(delta, dict) and (delta.get("content") or delta.get("tool_calls")) for delta in deltas)


def _functions(chunk: Chunk) -> Iterator[Chunk]:
    for choice in _choices(chunk):
        delta = choice.get("delta")
        calls = delta.get("tool_calls") if isinstance(delta, dict) else None
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield function
