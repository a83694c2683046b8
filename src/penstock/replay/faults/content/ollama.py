"""Faults in the lines of Ollama."""

import json
from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    changed,
    edited,
    edited_last,
    object_at,
    objects_in,
    repeated,
    without,
    without_members,
    zero_members,
)
from penstock.replay.faults.form import FaultForm, counted, plain
from penstock.replay.faults.script import ScriptedResponse

_COUNTS = ("prompt_eval_count", "eval_count")


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Send the last line before the first one, too."""
    lasts: list[Json] = []
    changed(script, lambda line: lasts.append(line) if _is_last(line) else None)
    early = iter(lasts)

    def change(line: Json) -> list[Json] | None:
        last = next(early, None)
        return None if last is None or _is_last(line) else [last, line]

    return changed(script, change)


def broken_arguments(line: Json) -> list[Json] | None:
    """Send the arguments of the last tool call as text, without its last character."""
    calls = objects_in(object_at(line, "message").get("tool_calls"))
    function = object_at(calls[-1], "function") if calls else {}
    if not isinstance(function.get("arguments"), dict):
        return None
    function["arguments"] = json.dumps(function["arguments"])[:-1]
    return [line]


def _is_last(line: Json) -> bool:
    return line.get("done") is True


FORMS: Mapping[str, FaultForm] = {
    "no-usage": edited("completed", without_members(*_COUNTS)),
    "zero-usage": edited("completed, `usage-placeholder`", zero_members(*_COUNTS)),
    "no-finish": edited("completed, `finish-mapped`", without_members("done_reason")),
    "early-finish": plain("completed, `data-after-done`, `content-after-finish`, `finish-repeated`", early_finish),
    "broken-arguments": edited_last("completed, `tool-arguments-text`, `tool-arguments-broken`", broken_arguments),
    "no-done": edited("truncated", without(_is_last)),
    "done-twice": edited("completed, `data-after-done`, `finish-repeated`", repeated(_is_last)),
    # The next lines could be the rest of the object.
    "bad-json": counted("truncated", framing.bad_json),
    "glued": plain("completed, `glued-events`", framing.glued),
    "no-final-newline": plain("completed", framing.no_final_newline),
    "split-lines": plain("completed", framing.split_lines),
}
