"""Faults in the messages of the Converse API. The name of an event is not in its JSON: its members identify it."""

from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    change_last,
    changed,
    moved_behind,
    object_in,
    repeated,
    without,
    without_member,
    zeroed,
)
from penstock.replay.faults.form import FaultForm, counted, plain
from penstock.replay.faults.script import Piece, ScriptedResponse

_INDEX = "contentBlockIndex"


def zero_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace every count of the usage with zero."""
    return changed(script, lambda event: [event | {"usage": zeroed(event["usage"])}] if "usage" in event else None)


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Move the reason before the last block."""
    events = list(script.by_event().pieces)
    objects = [object_in(event.data) or {} for event in events]
    stops = [number for number, value in enumerate(objects) if _finishes(value)]
    indexes = [value.get(_INDEX) for value in objects]
    last = next((index for index in reversed(indexes) if index is not None), None)
    if stops and last is not None:
        events.insert(indexes.index(last), Piece(0.0, events.pop(stops[-1]).data))
    return script.with_pieces(events)


def signature_late(script: ScriptedResponse) -> ScriptedResponse:
    """Move each signature behind the end of its block."""
    return moved_behind(script, lambda event: "signature" in _reasoning(event), _is_stop)


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the last character of the last tool call's arguments."""

    def change(event: Json) -> list[Json] | None:
        use = _delta(event).get("toolUse")
        if not isinstance(use, dict) or not use.get("input"):
            return None
        use["input"] = str(use["input"])[:-1]
        return [event]

    return change_last(script, change)


def _delta(event: Json) -> Json:
    delta = event.get("delta")
    return delta if isinstance(delta, dict) else {}


def _reasoning(event: Json) -> Json:
    reasoning = _delta(event).get("reasoningContent")
    return reasoning if isinstance(reasoning, dict) else {}


def _is_start(event: Json) -> bool:
    return "role" in event


def _is_stop(event: Json) -> bool:
    """Whether a block ends."""
    return _INDEX in event and "delta" not in event and "start" not in event


def _is_metadata(event: Json) -> bool:
    return "metrics" in event or "usage" in event


def _finishes(event: Json) -> bool:
    return "stopReason" in event


FORMS: Mapping[str, FaultForm] = {
    "no-usage": plain("completed", lambda script: without_member(script, "usage")),
    "zero-usage": plain("completed, `usage-placeholder`", zero_usage),
    "double-usage": plain("completed, `data-after-done`", lambda script: repeated(script, _is_metadata)),
    "no-finish": plain("truncated", lambda script: without_member(script, "stopReason")),
    "duplicate-finish": plain("completed, `finish-repeated`", lambda script: repeated(script, _finishes)),
    "early-finish": plain("completed, `content-after-finish`", early_finish),
    "start-missing": plain("completed, `message-start-missing`", lambda script: without(script, _is_start)),
    "start-repeated": plain("completed, `message-start-repeated`", lambda script: repeated(script, _is_start)),
    "block-unclosed": plain("completed, `block-unclosed`", lambda script: without(script, _is_stop)),
    "block-index-missing": plain("completed, `block-index-missing`", lambda script: without_member(script, _INDEX)),
    "signature-late": plain("completed, `block-unclosed`", signature_late),
    "broken-arguments": plain("completed, `tool-arguments-broken`", broken_arguments),
    "no-done": plain("completed, `no-done`", lambda script: without(script, _is_metadata)),
    "crc-wrong": counted("failed, `event-stream-damaged`", framing.crc_wrong),
}
