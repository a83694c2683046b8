"""Faults in the events of Anthropic Messages."""

from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    change_last,
    changed,
    moved_behind,
    object_in,
    repeated,
    replace_json,
    without,
    zeroed,
)
from penstock.replay.faults.form import FaultForm, plain
from penstock.replay.faults.script import Piece, ScriptedResponse

# Blocks that a reader can recognise by their deltas alone.
_TEXTS = ("text", "thinking")


def no_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the usage from the start and from the end of the message."""

    def change(event: Json) -> list[Json] | None:
        removed = [holder.pop("usage", None) for holder in _usage_holders(event)]
        return [event] if any(removed) else None

    return changed(script, change)


def zero_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace every count of the usage with zero."""
    return _with_zeros(script, ("message_start", "message_delta"))


def usage_start_zero(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the counts in `message_start` with zero."""
    return _with_zeros(script, ("message_start",))


def double_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Send the usage again, in a `message_delta` of its own."""

    def change(event: Json) -> list[Json] | None:
        again = event | {"delta": {"stop_reason": None, "stop_sequence": None}}
        return [event, again] if _finishes(event) else None

    return changed(script, change)


def no_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the stop reason with null."""

    def change(event: Json) -> list[Json] | None:
        delta = _delta(event)
        return [event | {"delta": delta | {"stop_reason": None}}] if _finishes(event) else None

    return changed(script, change)


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Move the event with the stop reason before the last content block."""
    events = list(script.by_event().pieces)
    objects = [object_in(event.data) or {} for event in events]
    finish = next((number for number, value in enumerate(objects) if _finishes(value)), -1)
    starts = [number for number in range(finish + 1) if objects[number].get("type") == "content_block_start"]
    if starts:
        events.insert(starts[-1], Piece(0.0, events.pop(finish).data))
    return script.with_pieces(events)


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the last character of the last tool call's arguments."""

    def change(event: Json) -> list[Json] | None:
        delta = _delta(event)
        arguments = delta.get("partial_json")
        return [event | {"delta": delta | {"partial_json": str(arguments)[:-1]}}] if arguments else None

    return change_last(script, change)


def block_start_missing(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the starts of text and thinking blocks."""
    return without(script, lambda event: _block(event).get("type") in _TEXTS)


def block_index_missing(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the index from the events of content blocks."""

    def change(event: Json) -> list[Json] | None:
        return [event] if event.pop("index", None) is not None else None

    return changed(script, change)


def block_text_repeated(script: ScriptedResponse) -> ScriptedResponse:
    """Put the first piece of a text into the start of its block, too."""
    events = list(script.by_event().pieces)
    objects = [object_in(event.data) or {} for event in events]
    for number, value in enumerate(objects):
        text = _delta(objects[number + 1]).get("text") if number + 1 < len(objects) else None
        if _block(value).get("type") == "text" and text:
            start = value | {"content_block": _block(value) | {"text": text}}
            events[number] = Piece(events[number].after_s, replace_json(events[number].data, start))
    return script.with_pieces(events)


def signature_late(script: ScriptedResponse) -> ScriptedResponse:
    """Move each signature behind the end of its thinking block."""
    return moved_behind(
        script,
        lambda event: _delta(event).get("type") == "signature_delta",
        lambda event: event.get("type") == "content_block_stop",
    )


def _with_zeros(script: ScriptedResponse, types: tuple[str, ...]) -> ScriptedResponse:
    def change(event: Json) -> list[Json] | None:
        holders = [holder for holder in _usage_holders(event) if event.get("type") in types]
        for holder in holders:
            holder["usage"] = zeroed(holder["usage"])
        return [event] if holders else None

    return changed(script, change)


def _usage_holders(event: Json) -> list[Json]:
    """The objects of an event that have a usage: the event, or its message."""
    holders = (event, event.get("message"))
    return [holder for holder in holders if isinstance(holder, dict) and "usage" in holder]


def _finishes(event: Json) -> bool:
    return bool(_delta(event).get("stop_reason"))


def _delta(event: Json) -> Json:
    delta = event.get("delta")
    return delta if isinstance(delta, dict) else {}


def _block(event: Json) -> Json:
    block = event.get("content_block")
    return block if isinstance(block, dict) else {}


def _is_stop(event: Json) -> bool:
    return event.get("type") == "message_stop"


def _is_start(event: Json) -> bool:
    return event.get("type") == "message_start"


FORMS: Mapping[str, FaultForm] = {
    "no-usage": plain("completed", no_usage),
    "zero-usage": plain("completed, `usage-placeholder`", zero_usage),
    "double-usage": plain("completed", double_usage),
    "usage-start-zero": plain("completed, `usage-placeholder`", usage_start_zero),
    "no-finish": plain("truncated", no_finish),
    "duplicate-finish": plain("completed, `finish-repeated`", lambda script: repeated(script, _finishes)),
    "early-finish": plain("completed, `content-after-finish`", early_finish),
    "start-missing": plain(
        "completed, `message-start-missing`, `envelope-incomplete`", lambda script: without(script, _is_start)
    ),
    "start-repeated": plain("completed, `message-start-repeated`", lambda script: repeated(script, _is_start)),
    "block-start-missing": plain("completed, `block-start-missing`", block_start_missing),
    "block-unclosed": plain(
        "completed, `block-unclosed`",
        lambda script: without(script, lambda event: event.get("type") == "content_block_stop"),
    ),
    "block-index-missing": plain("completed, `block-index-missing`", block_index_missing),
    "block-text-repeated": plain("completed, `block-text-repeated`", block_text_repeated),
    "signature-late": plain("completed, `signature-late`", signature_late),
    "broken-arguments": plain("completed, `tool-arguments-broken`", broken_arguments),
    "no-done": plain("completed, `no-done`", lambda script: without(script, _is_stop)),
    "done-twice": plain("completed, `done-repeated`", lambda script: repeated(script, _is_stop)),
    "event-name-missing": plain("completed, `event-name-missing`", framing.no_event_names),
    "glued": plain("completed, `glued-events`, `event-name-missing`", framing.glued),
    "json-lines": plain("completed, `event-name-missing`, `json-lines`", framing.json_lines),
    "pings": plain("completed", framing.pings),
}
