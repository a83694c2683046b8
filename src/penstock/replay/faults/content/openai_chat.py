"""Faults in the chunks of chat completions."""

import re
from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    edited,
    edited_last,
    numbered,
    object_at,
    object_in,
    objects_in,
    repeated,
    replace_json,
    without_members,
    zero_members,
)
from penstock.replay.faults.form import FaultForm, plain
from penstock.replay.faults.script import Piece, ScriptedResponse

_DONE = re.compile(rb"(?m)^data: ?\[DONE\][\r\n]*")
_WITHOUT_USAGE = without_members("usage")


def no_usage(chunk: Json) -> list[Json] | None:
    """Remove the usage everywhere, and chunks that have nothing else."""
    if _WITHOUT_USAGE(chunk) is None:
        return None
    return [chunk] if chunk.get("choices") else []


def double_usage(chunk: Json) -> list[Json] | None:
    """Repeat the usage in a chunk of its own."""
    return [chunk, chunk | {"choices": []}] if chunk.get("usage") else None


def no_finish(chunk: Json) -> list[Json] | None:
    """Remove the finish reason."""
    if not _finishes(chunk):
        return None
    for choice in _choices(chunk):
        choice["finish_reason"] = None
    return [chunk]


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


def late_role(chunk: Json) -> list[Json] | None:
    """Move the role into the chunk with the finish reason."""
    moved = False
    for choice in _choices(chunk):
        delta = choice.get("delta")
        if isinstance(delta, dict) and (delta.pop("role", None) or choice.get("finish_reason")):
            moved = True
            if choice.get("finish_reason"):
                delta["role"] = "assistant"
    return [chunk] if moved else None


def broken_arguments(chunk: Json) -> list[Json] | None:
    """Remove the last character of the last tool call's arguments."""
    calls = [call for choice in _choices(chunk) for call in objects_in(object_at(choice, "delta").get("tool_calls"))]
    functions = [object_at(call, "function") for call in calls]
    if not any(function.get("arguments") for function in functions):
        return None
    for function in functions:
        function["arguments"] = str(function.get("arguments") or "")[:-1]
    return [chunk]


def no_done(script: ScriptedResponse) -> ScriptedResponse:
    """Remove `[DONE]`."""
    return framing.each(script, lambda data: _DONE.sub(b"", data))


def done_twice(script: ScriptedResponse) -> ScriptedResponse:
    """Send `[DONE]` twice."""
    return framing.each(script, lambda data: _DONE.sub(lambda done: done[0].rstrip(b"\r\n") + b"\n\n" + done[0], data))


def _choices(chunk: Json) -> list[Json]:
    return objects_in(chunk.get("choices"))


def _finishes(chunk: Json) -> bool:
    return any(choice.get("finish_reason") for choice in _choices(chunk))


def _has_content(chunk: Json) -> bool:
    deltas = [object_at(choice, "delta") for choice in _choices(chunk)]
    return any(delta.get("content") or delta.get("tool_calls") for delta in deltas)


FORMS: Mapping[str, FaultForm] = {
    "no-usage": edited("completed", no_usage),
    "zero-usage": edited("completed, `usage-placeholder`", zero_members("usage")),
    "double-usage": edited("completed", double_usage),
    "no-finish": edited("truncated", no_finish),
    "duplicate-finish": edited("completed, `finish-repeated`", repeated(_finishes)),
    "early-finish": plain("completed, `content-after-finish`", early_finish),
    "late-role": edited("completed, `role-missing`, `role-repeated`", late_role),
    "changing-id": plain("completed, `id-changed`", lambda script: numbered(script, "id")),
    "broken-arguments": edited_last("completed, `tool-arguments-broken`", broken_arguments),
    "no-done": plain("completed, `no-done`", no_done),
    "done-twice": plain("completed, `done-repeated`", done_twice),
    "glued": plain("completed, `glued-events`", framing.glued),
    "json-lines": plain("completed, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`", framing.pings),
}
