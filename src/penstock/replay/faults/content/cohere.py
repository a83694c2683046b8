"""Faults in the events of Cohere."""

from collections.abc import Callable, Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import Json, change_last, changed, repeated, without, zeroed
from penstock.replay.faults.form import FaultForm, plain
from penstock.replay.faults.script import ScriptedResponse

_END = "message-end"


def no_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the usage."""
    return _with_end(script, lambda delta: {name: value for name, value in delta.items() if name != "usage"})


def zero_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace every count of the usage with zero."""
    return _with_end(script, lambda delta: delta | {"usage": zeroed(delta.get("usage"))})


def no_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the finish reason."""
    return _with_end(script, lambda delta: {name: value for name, value in delta.items() if name != "finish_reason"})


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the last character of the last tool call's arguments."""

    def change(event: Json) -> list[Json] | None:
        delta = event.get("delta")
        message = delta.get("message") if isinstance(delta, dict) else None
        call = message.get("tool_calls") if isinstance(message, dict) else None
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not function.get("arguments"):
            return None
        function["arguments"] = str(function["arguments"])[:-1]
        return [event]

    return change_last(script, change)


def _with_end(script: ScriptedResponse, change_delta: Callable[[Json], Json]) -> ScriptedResponse:
    """Replace the members of the event that ends the answer."""

    def change(event: Json) -> list[Json] | None:
        delta = event.get("delta")
        return [event | {"delta": change_delta(delta)}] if _is(_END)(event) and isinstance(delta, dict) else None

    return changed(script, change)


def _is(*types: str) -> Callable[[Json], bool]:
    return lambda event: event.get("type") in types


FORMS: Mapping[str, FaultForm] = {
    "no-usage": plain("completed", no_usage),
    "zero-usage": plain("completed, `usage-placeholder`", zero_usage),
    "no-finish": plain("truncated", no_finish),
    "start-missing": plain(
        "completed, `message-start-missing`, `envelope-incomplete`",
        lambda script: without(script, _is("message-start")),
    ),
    "start-repeated": plain(
        "completed, `message-start-repeated`", lambda script: repeated(script, _is("message-start"))
    ),
    "block-start-missing": plain(
        "completed, `block-start-missing`", lambda script: without(script, _is("content-start"))
    ),
    "block-unclosed": plain(
        "completed, `block-unclosed`", lambda script: without(script, _is("content-end", "tool-call-end"))
    ),
    "broken-arguments": plain("completed, `tool-arguments-broken`", broken_arguments),
    "no-done": plain("truncated", lambda script: without(script, _is(_END))),
    "done-twice": plain("completed, `done-repeated`", lambda script: repeated(script, _is(_END))),
    "event-name-missing": plain("completed", framing.no_event_names),
    "glued": plain("completed, `glued-events`", framing.glued),
    "json-lines": plain("completed, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`, `data-after-done`", framing.pings),
}
