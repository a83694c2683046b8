"""Faults in the messages of the Converse API. The name of an event is not in its JSON: its members identify it."""

from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    edited,
    edited_last,
    moved_behind,
    object_at,
    object_in,
    repeated,
    without,
    without_last_character,
    without_members,
    zero_members,
)
from penstock.replay.faults.form import FaultForm, counted, plain
from penstock.replay.faults.script import Piece, ScriptedResponse

_INDEX = "contentBlockIndex"


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
    return moved_behind(
        script, lambda event: "signature" in object_at(event, "delta", "reasoningContent"), _is_block_stop
    )


def _is_start(event: Json) -> bool:
    return "role" in event


def _is_block_stop(event: Json) -> bool:
    return _INDEX in event and "delta" not in event and "start" not in event


def _is_metadata(event: Json) -> bool:
    return "metrics" in event or "usage" in event


def _finishes(event: Json) -> bool:
    return "stopReason" in event


FORMS: Mapping[str, FaultForm] = {
    "no-usage": edited("completed", without_members("usage")),
    "zero-usage": edited("completed, `usage-placeholder`", zero_members("usage")),
    "double-usage": edited("completed, `data-after-done`", repeated(_is_metadata)),
    "no-finish": edited("truncated", without_members("stopReason")),
    "duplicate-finish": edited("completed, `finish-repeated`", repeated(_finishes)),
    "early-finish": plain("completed, `content-after-finish`", early_finish),
    "start-missing": edited("completed, `message-start-missing`", without(_is_start)),
    "start-repeated": edited("completed, `message-start-repeated`", repeated(_is_start)),
    "block-unclosed": edited("completed, `block-unclosed`", without(_is_block_stop)),
    "block-index-missing": edited("completed, `block-index-missing`", without_members(_INDEX)),
    "signature-late": plain("completed, `block-unclosed`", signature_late),
    "broken-arguments": edited_last(
        "completed, `tool-arguments-broken`", without_last_character("input", "delta", "toolUse")
    ),
    "no-done": edited("completed, `no-done`", without(_is_metadata)),
    "crc-wrong": counted("failed, `event-stream-damaged`", framing.crc_wrong),
}
