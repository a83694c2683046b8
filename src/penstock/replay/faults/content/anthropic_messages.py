"""Faults in the events of Anthropic Messages."""

from collections.abc import Mapping
from itertools import pairwise

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    edited,
    edited_last,
    moved_behind,
    object_at,
    object_in,
    of_type,
    repeated,
    replace_json,
    without,
    without_last_character,
    without_members,
    zero_members,
)
from penstock.replay.faults.form import FaultForm, plain
from penstock.replay.faults.script import Piece, ScriptedResponse

# Blocks that a reader can recognise by their deltas alone.
_TEXTS = ("text", "thinking")


def double_usage(event: Json) -> list[Json] | None:
    """Send the usage again, in a `message_delta` of its own."""
    again = event | {"delta": {"stop_reason": None, "stop_sequence": None}}
    return [event, again] if _finishes(event) else None


def no_finish(event: Json) -> list[Json] | None:
    """Replace the stop reason with null."""
    return [event | {"delta": object_at(event, "delta") | {"stop_reason": None}}] if _finishes(event) else None


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Move the event with the stop reason before the last content block."""
    events = list(script.by_event().pieces)
    objects = [object_in(event.data) or {} for event in events]
    finish = next((number for number, value in enumerate(objects) if _finishes(value)), -1)
    starts = [number for number in range(finish + 1) if objects[number].get("type") == "content_block_start"]
    if starts:
        events.insert(starts[-1], Piece(0.0, events.pop(finish).data))
    return script.with_pieces(events)


def block_text_repeated(script: ScriptedResponse) -> ScriptedResponse:
    """Put the first piece of a text into the start of its block, too."""
    events = list(script.by_event().pieces)
    objects = [object_in(event.data) or {} for event in events]
    for number, (value, following) in enumerate(pairwise(objects)):
        block, text = object_at(value, "content_block"), object_at(following, "delta").get("text")
        if block.get("type") == "text" and text:
            start = value | {"content_block": block | {"text": text}}
            events[number] = Piece(events[number].after_s, replace_json(events[number].data, start))
    return script.with_pieces(events)


def signature_late(script: ScriptedResponse) -> ScriptedResponse:
    """Move each signature behind the end of its thinking block."""
    return moved_behind(
        script, lambda event: object_at(event, "delta").get("type") == "signature_delta", _is_block_stop
    )


def _finishes(event: Json) -> bool:
    return bool(object_at(event, "delta").get("stop_reason"))


_is_stop, _is_start, _is_block_stop = map(of_type, ("message_stop", "message_start", "content_block_stop"))
_ZERO_USAGE = zero_members("usage")

FORMS: Mapping[str, FaultForm] = {
    "no-usage": edited("completed", without_members("usage")),
    "zero-usage": edited("completed, `usage-placeholder`", _ZERO_USAGE),
    "double-usage": edited("completed", double_usage),
    "usage-start-zero": edited(
        "completed, `usage-placeholder`", lambda event: _ZERO_USAGE(event) if _is_start(event) else None
    ),
    "no-finish": edited("truncated", no_finish),
    "duplicate-finish": edited("completed, `finish-repeated`", repeated(_finishes)),
    "early-finish": plain("completed, `content-after-finish`", early_finish),
    "start-missing": edited("completed, `message-start-missing`, `envelope-incomplete`", without(_is_start)),
    "start-repeated": edited("completed, `message-start-repeated`", repeated(_is_start)),
    "block-start-missing": edited(
        "completed, `block-start-missing`",
        without(lambda event: object_at(event, "content_block").get("type") in _TEXTS),
    ),
    "block-unclosed": edited("completed, `block-unclosed`", without(_is_block_stop)),
    "block-index-missing": edited("completed, `block-index-missing`", without_members("index")),
    "block-text-repeated": plain("completed, `block-text-repeated`", block_text_repeated),
    "signature-late": plain("completed, `signature-late`", signature_late),
    "broken-arguments": edited_last(
        "completed, `tool-arguments-broken`", without_last_character("partial_json", "delta")
    ),
    "no-done": edited("completed, `no-done`", without(_is_stop)),
    "done-twice": edited("completed, `done-repeated`", repeated(_is_stop)),
    "event-name-missing": plain("completed, `event-name-missing`", framing.no_event_names),
    "glued": plain("completed, `glued-events`, `event-name-missing`", framing.glued),
    "json-lines": plain("completed, `event-name-missing`, `json-lines`", framing.json_lines),
    "pings": plain("completed", framing.pings),
}
