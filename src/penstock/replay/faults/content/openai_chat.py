"""Faults in the chunks of chat completions."""

import re
from collections.abc import Iterator, Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    change_last,
    changed,
    object_in,
    repeated,
    replace_json,
    zeroed,
)
from penstock.replay.faults.form import FaultForm, plain
from penstock.replay.faults.script import Piece, ScriptedResponse

_DONE = re.compile(rb"(?m)^data: ?\[DONE\][\r\n]*")


def zero_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace every count of the usage with zero."""

    def change(chunk: Json) -> list[Json] | None:
        places = [place for place in _places(chunk) if place.get("usage")]
        for place in places:
            place["usage"] = zeroed(place["usage"])
        return [chunk] if places else None

    return changed(script, change)


def no_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the usage everywhere."""

    def change(chunk: Json) -> list[Json] | None:
        if not any("usage" in place for place in _places(chunk)):
            return None
        for place in _places(chunk):
            place.pop("usage", None)
        return [chunk] if chunk.get("choices") else []

    return changed(script, change)


def double_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Repeat the usage in a chunk of its own."""

    def change(chunk: Json) -> list[Json] | None:
        return [chunk, chunk | {"choices": []}] if chunk.get("usage") else None

    return changed(script, change)


def no_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the finish reason."""

    def change(chunk: Json) -> list[Json] | None:
        if not _finishes(chunk):
            return None
        for choice in _choices(chunk):
            choice["finish_reason"] = None
        return [chunk]

    return changed(script, change)


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Move the finish reason before the last content, into a chunk of its own."""
    events = list(script.by_event().pieces)
    chunks = [object_in(event.data) or {} for event in events]
    finish = next((number for number, chunk in enumerate(chunks) if _finishes(chunk)), -1)
    contents = [number for number in range(finish + 1) if _has_content(chunks[number])]
    if not contents:
        return script
    early = dict(chunks[finish])
    early.pop("usage", None)
    early["choices"] = [choice | {"delta": {}} for choice in _choices(early)]
    events.insert(contents[-1], Piece(0.0, replace_json(events[finish].data, early)))
    for choice in _choices(chunks[finish]):
        choice["finish_reason"] = None
    events[finish + 1] = Piece(events[finish + 1].after_s, replace_json(events[finish + 1].data, chunks[finish]))
    return script.with_pieces(events)


def late_role(script: ScriptedResponse) -> ScriptedResponse:
    """Move the role into the chunk with the finish reason."""

    def change(chunk: Json) -> list[Json] | None:
        changed = None
        for choice in _choices(chunk):
            delta = choice.get("delta")
            if isinstance(delta, dict) and (delta.pop("role", None) or choice.get("finish_reason")):
                changed = [chunk]
                if choice.get("finish_reason"):
                    delta["role"] = "assistant"
        return changed

    return changed(script, change)


def changing_id(script: ScriptedResponse) -> ScriptedResponse:
    """Give every chunk another id."""
    numbers = iter(range(len(script.data)))
    return changed(script, lambda chunk: [chunk | {"id": f"{chunk['id']}-{next(numbers)}"}] if "id" in chunk else None)


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the last character of the last tool call's arguments."""

    def change(chunk: Json) -> list[Json] | None:
        functions = list(_functions(chunk))
        if not any(function.get("arguments") for function in functions):
            return None
        for function in functions:
            function["arguments"] = str(function.get("arguments") or "")[:-1]
        return [chunk]

    return change_last(script, change)


def no_done(script: ScriptedResponse) -> ScriptedResponse:
    """Remove `[DONE]`."""
    return framing.each(script, lambda data: _DONE.sub(b"", data))


def done_twice(script: ScriptedResponse) -> ScriptedResponse:
    """Send `[DONE]` twice."""
    return framing.each(script, lambda data: _DONE.sub(lambda done: done[0].rstrip(b"\r\n") + b"\n\n" + done[0], data))


def _places(chunk: Json) -> list[Json]:
    """The objects that may have a `usage` member: the chunk, and the objects in it (as Groq's `x_groq`)."""
    return [chunk, *(value for value in chunk.values() if isinstance(value, dict))]


def _choices(chunk: Json) -> list[Json]:
    choices = chunk.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _finishes(chunk: Json) -> bool:
    return any(choice.get("finish_reason") for choice in _choices(chunk))


def _has_content(chunk: Json) -> bool:
    deltas = [choice.get("delta") for choice in _choices(chunk)]
    return any(isinstance(delta, dict) and (delta.get("content") or delta.get("tool_calls")) for delta in deltas)


def _functions(chunk: Json) -> Iterator[Json]:
    for choice in _choices(chunk):
        delta = choice.get("delta")
        calls = delta.get("tool_calls") if isinstance(delta, dict) else None
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield function


FORMS: Mapping[str, FaultForm] = {
    "no-usage": plain("completed", no_usage),
    "zero-usage": plain("completed, `usage-placeholder`", zero_usage),
    "double-usage": plain("completed", double_usage),
    "no-finish": plain("truncated", no_finish),
    "duplicate-finish": plain("completed, `finish-repeated`", lambda script: repeated(script, _finishes)),
    "early-finish": plain("completed, `content-after-finish`", early_finish),
    "late-role": plain("completed, `role-missing`, `role-repeated`", late_role),
    "changing-id": plain("completed, `id-changed`", changing_id),
    "broken-arguments": plain("completed, `tool-arguments-broken`", broken_arguments),
    "no-done": plain("completed, `no-done`", no_done),
    "done-twice": plain("completed, `done-repeated`", done_twice),
    "glued": plain("completed, `glued-events`", framing.glued),
    "json-lines": plain("completed, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`", framing.pings),
}
