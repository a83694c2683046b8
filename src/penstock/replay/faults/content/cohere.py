"""Faults in the events of Cohere."""

from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    edited,
    edited_last,
    of_type,
    repeated,
    without,
    without_last_character,
    without_members,
    zero_members,
)
from penstock.replay.faults.form import FaultForm, plain

_IS_START = of_type("message-start")
_IS_END = of_type("message-end")

FORMS: Mapping[str, FaultForm] = {
    "no-usage": edited("completed", without_members("usage")),
    "zero-usage": edited("completed, `usage-placeholder`", zero_members("usage")),
    "no-finish": edited("truncated", without_members("finish_reason")),
    "start-missing": edited("completed, `message-start-missing`, `envelope-incomplete`", without(_IS_START)),
    "start-repeated": edited("completed, `message-start-repeated`", repeated(_IS_START)),
    "block-start-missing": edited("completed, `block-start-missing`", without(of_type("content-start"))),
    "block-unclosed": edited("completed, `block-unclosed`", without(of_type("content-end", "tool-call-end"))),
    "broken-arguments": edited_last(
        "completed, `tool-arguments-broken`",
        without_last_character("arguments", "delta", "message", "tool_calls", "function"),
    ),
    "no-done": edited("truncated", without(_IS_END)),
    "done-twice": edited("completed, `done-repeated`", repeated(_IS_END)),
    "event-name-missing": plain("completed", framing.no_event_names),
    "glued": plain("completed, `glued-events`", framing.glued),
    "json-lines": plain("completed, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`, `data-after-done`", framing.pings),
}
