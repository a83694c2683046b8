"""Faults in the lines of Ollama."""

import json
from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import Json, change_last, changed, repeated, without, zeroed
from penstock.replay.faults.form import FaultForm, counted, plain
from penstock.replay.faults.script import ScriptedResponse

_COUNTS = ("prompt_eval_count", "eval_count")


def no_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Remove the counts of tokens."""
    return _without(script, _COUNTS)


def zero_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the counts of tokens with zero."""

    def change(line: Json) -> list[Json] | None:
        counts: Json = {name: zeroed(line[name]) for name in _COUNTS if name in line}
        return [line | counts] if counts else None

    return changed(script, change)


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Send the last line before the first one, too."""
    lasts: list[Json] = []
    changed(script, lambda line: lasts.append(line) if _is_last(line) else None)
    early = iter(lasts)

    def change(line: Json) -> list[Json] | None:
        last = next(early, None)
        return None if last is None or _is_last(line) else [last, line]

    return changed(script, change)


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Send the arguments of the last tool call as text, without its last character."""

    def change(line: Json) -> list[Json] | None:
        message = line.get("message")
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        call = calls[-1] if isinstance(calls, list) and calls else None
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("arguments"), dict):
            return None
        function["arguments"] = json.dumps(function["arguments"])[:-1]
        return [line]

    return change_last(script, change)


def _without(script: ScriptedResponse, names: tuple[str, ...]) -> ScriptedResponse:
    def change(line: Json) -> list[Json] | None:
        kept = {name: value for name, value in line.items() if name not in names}
        return [kept] if len(kept) < len(line) else None

    return changed(script, change)


def _is_last(line: Json) -> bool:
    return line.get("done") is True


FORMS: Mapping[str, FaultForm] = {
    "no-usage": plain("completed", no_usage),
    "zero-usage": plain("completed, `usage-placeholder`", zero_usage),
    "no-finish": plain("completed, `finish-mapped`", lambda script: _without(script, ("done_reason",))),
    "early-finish": plain("completed, `data-after-done`, `content-after-finish`, `finish-repeated`", early_finish),
    "broken-arguments": plain("completed, `tool-arguments-text`, `tool-arguments-broken`", broken_arguments),
    "no-done": plain("truncated", lambda script: without(script, _is_last)),
    "done-twice": plain("completed, `data-after-done`, `finish-repeated`", lambda script: repeated(script, _is_last)),
    # The next lines could be the rest of the object.
    "bad-json": counted("truncated", framing.bad_json),
    "glued": plain("completed, `glued-events`", framing.glued),
    "no-final-newline": plain("completed", framing.no_final_newline),
    "split-lines": plain("completed", framing.split_lines),
}
